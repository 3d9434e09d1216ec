"""Channels last (option ``prefer_nhwc``): which operators ONNX Runtime is asked to rewrite, with transposes around.

It asks for an operator, not for a node, and then rewrites every such node that was taken; a node so rewritten can run
nowhere else. So an operator is refused when one of its nodes seen so far could not be taken again.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from dovetail.build.assign.layers import NodeLayer
from dovetail.provider.kernels import Kernel
from onnxruntime_ep_dovetail.abi import OrtRuntime, read_text, write_int
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.graph.read import NHWC_DOMAIN
from onnxruntime_ep_dovetail.kernels.table import knows_operator
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["LayoutPreference"]

_NCHW: Final = 0
_NHWC: Final = 1
_TRAINING: Final = "training_mode"


class LayoutPreference:
    """What an execution provider says of layouts."""

    runtime: OrtRuntime
    backend: Backend
    options: EpOptions
    opsets: dict[str, int]

    def start_layout(self) -> None:
        """Get ready, before graphs are shown."""
        self._unfit: set[str] = set()

    def note_nodes(self, graph: ir.Graph) -> None:
        """Remember operators with a node that could not be taken with its channels last."""
        if self.options.prefer_nhwc:
            self._unfit |= {node.op_type for node in graph.all_nodes() if not self._fits(node)}

    def _fits(self, node: ir.Node) -> bool:
        kernel = self._find_kernel(node.op_type)
        if kernel is None or node.domain == NHWC_DOMAIN:
            return True
        layer = NodeLayer(node, self.backend.name, self.opsets)
        has_types = all(kernel.types.get(name, {dtype}) >= {dtype} for name, dtype in layer.types.items())
        return has_types and kernel.attributes >= layer.attributes.keys() and _is_rewritable(node)

    def get_preferred_data_layout(self, target: int) -> None:
        """Channels last when the session asks for it."""
        write_int(target, _NHWC if self.options.prefer_nhwc else _NCHW)

    def should_convert_data_layout_for_op(self, domain: int, op: int, layout: int, answer: int) -> None:
        """Whether to rewrite the nodes of an operator; never left to ONNX Runtime, which would rewrite all it can."""
        is_ours = layout == _NHWC and read_text(domain) in ("", "ai.onnx") and self._can_take(read_text(op))
        write_int(answer, int(is_ours))

    def _can_take(self, op: str) -> bool:
        is_unfit = op in self._unfit or op in self.options.exclude
        opset = self.opsets.get("", 1)
        return (
            not is_unfit and self._find_kernel(op) is not None and knows_operator(self.runtime, op, NHWC_DOMAIN, opset)
        )

    def _find_kernel(self, op: str) -> Kernel | None:
        return self.backend.provider.kernels.find(op, NHWC_DOMAIN, self.opsets.get("", 1))


def _is_rewritable(node: ir.Node) -> bool:
    """Whether nothing has to move but the first input and output, around which ONNX Runtime puts transposes."""
    is_training = _TRAINING in node.attributes and bool(node.attributes[_TRAINING].as_int())
    return not is_training and sum(bool(value.name) for value in node.outputs) == 1
