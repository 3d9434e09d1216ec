"""What ONNX Runtime itself cannot run on a CPU, although it knows the operator: read from its own kernel registry.

The registry can be read through ONNX Runtime's Python module only, so a host without one gets no such answers. The
module must be the runtime that loaded the library and not a second one of another version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from dovetail.build.assign.layers import NodeLayer
from onnxruntime_ep_dovetail.abi import OrtRuntime

__all__ = ["find_lacking", "is_registry_readable"]

_MODULE = "onnxruntime"


def is_registry_readable(runtime: OrtRuntime) -> bool:
    """Whether the Python module of this runtime is loaded."""
    module = sys.modules.get(_MODULE)
    return module is not None and getattr(module, "__version__", None) == runtime.version_text


def find_lacking(nodes: Iterable[ir.Node], opsets: Mapping[str, int], runtime: OrtRuntime) -> set[ir.Node]:
    """The nodes for whose domain, operator, version and types ONNX Runtime has a schema and no kernel.

    An operator that ONNX Runtime runs by the others that define it is not among them.
    """
    if not is_registry_readable(runtime):
        return set()
    return {node for node in nodes if _is_lacking(NodeLayer(node, _MODULE, opsets))}


def _is_lacking(layer: NodeLayer) -> bool:
    from dovetail.providers.onnxruntime.capability import has_kernel, runs_by_body
    from dovetail.providers.onnxruntime.kernel_defs import schema_version

    if layer.is_control or schema_version(layer.op, layer.domain, layer.opset) is None:
        return False
    return not has_kernel(layer, layer.opset) and not runs_by_body(layer, layer.opset)
