"""PillarScatterPlugin: features of pillars onto the dense map of PointPillars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dovetail.expr import DimsExprs
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, INDICES, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.indexing import plan_pillars, size_pillars
from dovetail_tensorrt.builtin.device.launch import BufferSize, DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.fields import FieldRule, is_positive
from dovetail_tensorrt.builtin.host.indexing import scatter_pillars

if TYPE_CHECKING:
    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["PillarScatterPlugin"]


class PillarScatterPlugin(BuiltinPlugin):
    """Features (n, p, c), places (n, p, 4) and counts (n,) in; a map (n, c, h, w) out."""

    name = "PillarScatterPlugin"
    versions = ("1",)
    rules = (FieldRule(name="dense_shape", count=2, is_valid=is_positive, expected="height and width of 1 or more"),)
    input_counts = (3,)

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Places and counts are INT32, or INT64; features are floating point."""
        if pos in (1, 2):
            return INDICES
        return FLOATS if pos == 0 else (first,)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The map that the field says."""
        height, width = (builder.constant(size) for size in self.values["dense_shape"])
        return [DimsExprs([inputs[0][0], inputs[0][2], height, width])]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """A place for each pillar and a count for each frame."""
        features, places, counts = shapes
        require(self.name, len(features) == 3, "the shape of 'voxels' does not fit", "(n, p, c)", features)
        wanted = (*features[:2], 4)
        require(self.name, agree(places, wanted), "the shape of 'voxel_coords' does not fit", wanted, places)
        fits = len(counts) >= 1 and agree(counts[:1], features[:1]) and all(size in (1, -1) for size in counts[1:])
        require(self.name, fits, "the shape of 'num_pillar' does not fit", f"({features[0]},)", counts)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Scatter on the host."""
        features, places, counts = inputs
        height, width = self.values["dense_shape"]
        return [scatter_pillars(features, places, counts, height, width)]

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """What the kernels need."""
        return size_pillars(shapes[0][0], *self.values["dense_shape"])

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_pillars(inputs, outputs[0], buffers[0])
