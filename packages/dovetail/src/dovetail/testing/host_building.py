"""What a host device builds: packed weights, payloads and device code for single nodes, and a rewrite of its own.

Packed weights of MatMul are transposed, and turned back when a step reads them: one that was packed in another way, or
not again after a refit, gives wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import (
    BuildContext,
    BuiltKernel,
    KernelRequest,
    PackedWeight,
    RewriteContext,
    StoredKernel,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.testing.host_device import HostDevice

__all__ = [
    "RECIPE",
    "build_kernel",
    "check_code",
    "find_packed",
    "make_code",
    "pack",
    "pack_weight",
    "report_steps",
    "rewrite_relu",
    "unpack_inputs",
]

Array = npt.NDArray[Any]

RECIPE: Final = "transpose"
_VERSION: Final = "1"
_PACKED: Final = b"packed"


def build_kernel(device: HostDevice, request: KernelRequest, context: BuildContext) -> BuiltKernel:
    """What the options say: packed weights, device code, a workspace."""
    report_steps(device, context)
    packed = {}
    weight = request.constants.get(1)
    if device.options.packs and request.op == "MatMul" and weight is not None and weight.ndim == 2:
        packed[1] = pack(weight, request.weight_names[1])
    code = make_code(device, request.name)
    return BuiltKernel(
        payload=_PACKED if packed else b"",
        version=_VERSION if packed or code else "",
        tactic=RECIPE if packed else "",
        weights=packed,
        code=code,
        workspace_bytes=device.options.workspace_bytes,
    )


def unpack_inputs(device: HostDevice, stored: StoredKernel, function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel over weights as they were stored."""
    where = f"provider '{device.name}', '{stored.name}'"
    if stored.version not in ("", _VERSION):
        raise ProviderError(
            "the kernel was built by another version",
            where=where,
            expected=_VERSION,
            got=stored.version,
            fix="build the plan again",
        )
    if bytes(stored.payload) != (_PACKED if stored.tactic == RECIPE else b""):
        raise ProviderError("a kernel that it did not build", where=where, fix="build the plan again")
    return (lambda first, weight: function(first, weight.T)) if stored.payload else function


def report_steps(device: HostDevice, context: BuildContext) -> None:
    """Report as many steps as the options say."""
    for step in range(device.options.num_reports):
        context.report(step + 1, device.options.num_reports)


# weights


def pack(weight: Array, name: str) -> PackedWeight:
    """A weight transposed."""
    return PackedWeight(array=np.ascontiguousarray(weight.T), sources=(name,), recipe=RECIPE)


def pack_weight(device: HostDevice, recipe: str, sources: Mapping[str, Any]) -> Array:
    """The same again, for a refit."""
    if recipe != RECIPE or len(sources) != 1:
        raise ProviderError(f"it has no recipe {recipe!a}", where=f"provider '{device.name}'")
    return np.ascontiguousarray(next(iter(sources.values())).T)


def find_packed(model: ir.Model) -> set[str]:
    """The weights of a partition that only matrix products read, as their second input."""
    names = set()
    for name, value in model.graph.initializers.items():
        uses = value.uses()
        is_second = bool(uses) and all(use.node.op_type == "MatMul" and use.idx == 1 for use in uses)
        if is_second and value.shape is not None and len(value.shape) == 2 and not value.is_graph_output():
            names.add(name)
    return names


# device code


def make_code(device: HostDevice, name: str) -> dict[str, bytes]:
    """Device code, where the options want some."""
    return {"main": _code_of(device, name)} if device.options.has_code else {}


def check_code(device: HostDevice, name: str, code: Mapping[str, memoryview]) -> None:
    """Refuse a step without the code that was built for it."""
    expected = make_code(device, name)
    if {key: bytes(blob) for key, blob in code.items()} != expected:
        raise ProviderError("a step without its device code", where=f"provider '{device.name}', step '{name}'")


def _code_of(device: HostDevice, name: str) -> bytes:
    return f"host device code of {device.name} for {name}".encode()


# passes


def rewrite_relu(model: ir.Model, context: RewriteContext) -> Sequence[str]:
    """Write Relu as LeakyRelu without a slope, which gives the same numbers under another name."""
    import onnx_ir as ir

    lines = []
    for node in list(model.graph.all_nodes()):
        if context.is_own(node) and node.op_type == "Relu":
            node.op_type = "LeakyRelu"
            node.attributes.add(ir.AttrFloat32("alpha", 0.0))
            lines.append(f"Relu '{node.name}' became LeakyRelu")
    return lines
