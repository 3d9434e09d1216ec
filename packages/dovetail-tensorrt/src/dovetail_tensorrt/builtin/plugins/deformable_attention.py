"""MultiscaleDeformableAttnPlugin_TRT: the attention of Deformable DETR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, INDICES, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.deformable import plan_attention
from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.host.deformable import attend_deformably

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["DeformableAttentionPlugin"]


class DeformableAttentionPlugin(BuiltinPlugin):
    """Values, shapes and starts of levels, places and weights in; (n, q, m, d) out. It has no fields."""

    name = "MultiscaleDeformableAttnPlugin_TRT"
    versions = ("1", "2")
    input_counts = (5,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Shapes and starts are INT32, or INT64 as exported models have them; all others are of one type."""
        if pos in (1, 2):
            return INDICES
        return FLOATS if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """A value for each query and head."""
        return [DimsExprs([inputs[0][0], inputs[3][1], inputs[0][2], inputs[0][3]])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Ranks and sizes that inputs share."""
        value, levels, starts, places, weights = shapes
        for name, shape, rank in (
            ("value", value, 4),
            ("spatial_shapes", levels, 2),
            ("level_start_index", starts, 1),
            ("sampling_locations", places, 6),
            ("attention_weights", weights, 5),
        ):
            require(self.name, len(shape) == rank, f"'{name}' has another rank", rank, shape)
        require(self.name, levels[1] in (2, -1), "the shape of 'spatial_shapes' does not fit", "(l, 2)", levels)
        require(self.name, agree(starts, levels[:1]), "'level_start_index' has another length", levels[0], starts)
        wanted = (value[0], places[1], value[2], levels[0], places[4])
        require(self.name, agree(places, (*wanted, 2)), "'sampling_locations' does not fit", (*wanted, 2), places)
        require(self.name, agree(weights, wanted), "'attention_weights' does not fit", wanted, weights)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Attend on the host."""
        return [attend_deformably(*inputs)]

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_attention(inputs, outputs[0])
