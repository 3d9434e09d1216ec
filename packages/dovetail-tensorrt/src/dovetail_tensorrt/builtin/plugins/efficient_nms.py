"""EfficientNMS_TRT: non-maximum suppression at the end of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.expr import DimsExprs
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from dovetail_tensorrt.builtin.base import FLOATS, Array, BuiltinPlugin, Shape, agree, require
from dovetail_tensorrt.builtin.device.launch import BufferSize, DeviceBuffer, DeviceTensor, KernelLaunch
from dovetail_tensorrt.builtin.device.selection import plan_suppression, size_suppression
from dovetail_tensorrt.builtin.fields import FieldRule, is_flag
from dovetail_tensorrt.builtin.host.detection import NmsOptions, suppress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.expr import IExprBuilder
    from dovetail.types import PluginTensorDesc

__all__ = ["EfficientNmsPlugin"]


class EfficientNmsPlugin(BuiltinPlugin):
    """Boxes, scores and optional anchors in; counts, boxes, scores and classes of detections out."""

    name = "EfficientNMS_TRT"
    versions = ("1",)
    rules = (
        FieldRule(
            name="score_threshold",
            type=PluginFieldType.FLOAT32,
            is_valid=lambda value: value >= 0,
            expected="0 or more",
        ),
        FieldRule(
            name="iou_threshold",
            type=PluginFieldType.FLOAT32,
            is_valid=lambda value: value >= 0,
            expected="0 or more",
        ),
        FieldRule(name="max_output_boxes", is_valid=lambda value: value > 0, expected="1 or more"),
        FieldRule(name="background_class"),
        FieldRule(name="score_activation", is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="class_agnostic", default=0, is_valid=is_flag, expected="0 or 1"),
        FieldRule(name="box_coding", is_valid=is_flag, expected="0 or 1"),
    )
    input_counts = (2, 3)
    num_outputs = 4

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__(version, namespace, values)
        self.options = NmsOptions(
            score_threshold=values["score_threshold"],
            iou_threshold=values["iou_threshold"],
            max_output_boxes=values["max_output_boxes"],
            background_class=values["background_class"],
            has_logits=bool(values["score_activation"]),
            is_class_agnostic=bool(values["class_agnostic"]),
            has_centers=bool(values["box_coding"]),
        )

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """Counts and classes are INT32, all others are of one floating-point type."""
        if pos in (num_inputs, num_inputs + 3):
            return (DataType.INT32,)
        return FLOATS if pos == 0 else (first,)

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """Counts, boxes, scores and classes."""
        return [DataType.INT32, input_types[0], input_types[0], DataType.INT32]

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """As many places for detections as there are at most."""
        batch, most = inputs[0][0], builder.constant(self.options.max_output_boxes)
        one, four = builder.constant(1), builder.constant(4)
        return [
            DimsExprs([batch, one]),
            DimsExprs([batch, most, four]),
            DimsExprs([batch, most]),
            DimsExprs([batch, most]),
        ]

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Boxes (n, a, 4) or (n, a, 1 or c, 4), scores (n, a, c), anchors (1 or n, a, 4)."""
        boxes, scores = shapes[:2]
        is_boxes = len(boxes) in (3, 4) and boxes[-1] in (4, -1)
        require(self.name, is_boxes, "the shape of 'boxes' does not fit", "(n, a, 4) or (n, a, c, 4)", boxes)
        is_scores = len(scores) == 3 or (len(scores) == 4 and scores[3] in (1, -1))
        require(self.name, is_scores, "the shape of 'scores' does not fit", "(n, a, c)", scores)
        agrees = agree(boxes[:2], scores[:2]) and (len(boxes) == 3 or boxes[2] == 1 or agree(boxes[2:3], scores[2:3]))
        require(self.name, agrees, "'boxes' and 'scores' have different sizes", boxes, scores)
        if len(shapes) == 3:
            anchors = shapes[2]
            is_anchors = len(anchors) == 3 and anchors[-1] in (4, -1) and agree(anchors[1:2], boxes[1:2])
            is_anchors = is_anchors and (anchors[0] == 1 or agree(anchors[:1], boxes[:1]))
            require(self.name, is_anchors, "the shape of 'anchors' does not fit", "(1 or n, a, 4)", anchors)

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """Suppress on the host."""
        boxes, scores = inputs[:2]
        scores = scores.reshape(scores.shape[:3])
        boxes = boxes if boxes.ndim == 4 else boxes[:, :, None]
        return suppress(boxes, scores, inputs[2] if len(inputs) == 3 else None, self.options)

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """What the kernels need."""
        return size_suppression(shapes[1])

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels."""
        return plan_suppression(inputs, outputs, buffers, self.options)
