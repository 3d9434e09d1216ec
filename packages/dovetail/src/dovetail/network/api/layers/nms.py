"""Non-maximum suppression: of boxes that overlap, the best stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import BoundingBoxFormat, LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, data_type, integer
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["INMSLayer", "NMSLayers"]


class INMSLayer(ILayer):
    """Picks boxes by score, leaving out those that overlap a better one of the same class.

    Boxes are (batch, boxes, 4), or (batch, boxes, classes, 4) when each class has its own; scores are (batch, boxes,
    classes). Inputs 3 and 4 are the overlap and the score a box must not and must exceed; both are zero when not set.
    The outputs are (selected, 3) of batch, class and box, and how many were selected.
    """

    __slots__ = ()

    _layer_type = LayerType.NMS
    _kind = "NMS"
    _input_names = ("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold")
    _required_inputs = 3

    bounding_box_format = Property(choice(BoundingBoxFormat), "What the four numbers of a box are.")
    topk_box_limit = Property(integer(minimum=0), "How many of the best boxes of a batch item count; 0 means all.")
    indices_type = Property(data_type(DataType.INT32, DataType.INT64), "The type of the outputs.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], indices_type: Any) -> None:
        super().__init__(network, tensors, num_outputs=2)
        self.bounding_box_format = BoundingBoxFormat.CORNER_PAIRS
        self.topk_box_limit = 0
        self.indices_type = indices_type

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        boxes, scores = self._check_inputs(e)
        scores = e.transpose(e.cast(scores, ir.DataType.FLOAT), [0, 2, 1])
        if self.topk_box_limit:
            scores = self._limit(e, scores)
        boxes = e.cast(boxes, ir.DataType.FLOAT)
        if e.rank(boxes) == 3:
            selected = self._suppress(e, boxes, scores)
        else:
            selected = self._suppress_per_class(e, boxes, scores)
        selected = e.cast(selected, ir_type_from_data_type(self.indices_type))
        count = e.to_scalar(e.shape_of(selected, 0, 1), "count")
        return [selected, e.cast(count, ir_type_from_data_type(self.indices_type))]

    def _check_inputs(self, e: Emitter) -> tuple[ir.Value, ir.Value]:
        boxes, scores = e.input(0), e.input(1)
        e.require_same_type(boxes, scores)
        e.require_rank(scores, 3, "scores")
        if e.rank(boxes) not in (3, 4) or e.dims(boxes)[-1] not in (4, None):
            raise e.error(
                "'boxes' has the wrong shape",
                expected="(batch, boxes, 4) or (batch, boxes, classes, 4)",
                got=e.describe(boxes),
            )
        return boxes, scores

    def _suppress(self, e: Emitter, boxes: ir.Value, scores: ir.Value) -> ir.Value:
        limit = e.to_vector(e.int64(e.input(2)))
        is_centre = self.bounding_box_format == BoundingBoxFormat.CENTER_SIZES
        return e.op(
            "NonMaxSuppression",
            boxes,
            scores,
            limit,
            self._threshold(e, 3, "iou_threshold"),
            self._threshold(e, 4, "score_threshold"),
            center_point_box=int(is_centre) or None,
        )

    def _threshold(self, e: Emitter, index: int, role: str) -> ir.Value:
        given = e.optional_input(index)
        if given is None:
            return e.constant(np.zeros(1, np.float32), role)
        return e.to_vector(e.cast(given, ir.DataType.FLOAT))

    def _limit(self, e: Emitter, scores: ir.Value) -> ir.Value:
        """Put out of reach every score of a batch item that is not among the best, all classes together."""
        flat = e.reshape(scores, [0, -1], "flat")
        count = e.op("Min", e.ints([self.topk_box_limit], "limit"), e.dim(flat, 1))
        best, _ = e.ops("TopK", flat, count, count=2, axis=1)
        least = e.op("ReduceMin", best, e.ints([1], "best_axis"), keepdims=1)
        keep = e.op("GreaterOrEqual", scores, e.op("Unsqueeze", least, e.ints([2], "box_axis")))
        return e.op("Where", keep, scores, e.scalar(-np.inf, "lowest", ir.DataType.FLOAT))

    def _suppress_per_class(self, e: Emitter, boxes: ir.Value, scores: ir.Value) -> ir.Value:
        """Treat each class as a batch item of its own, and take the two apart afterwards."""
        count, classes = e.dim(boxes, 1), e.dim(boxes, 2)
        by_class = e.transpose(boxes, [0, 2, 1, 3])
        rest, four, one = e.ints([-1], "rest"), e.ints([4], "four"), e.ints([1], "one")
        merged_boxes = e.reshape(by_class, e.op("Concat", rest, count, four, axis=0))
        merged_scores = e.reshape(scores, e.op("Concat", rest, one, count, axis=0))
        selected = self._suppress(e, merged_boxes, merged_scores)
        item = e.op("Gather", selected, e.ints([0], "item"), axis=1)
        box = e.op("Gather", selected, e.ints([2], "box"), axis=1)
        return e.op("Concat", e.op("Div", item, classes), e.op("Mod", item, classes), box, axis=1)


class NMSLayers(NetworkCore):
    """The method that adds non-maximum suppression."""

    __slots__ = ()

    def add_nms(
        self,
        boxes: ITensor,
        scores: ITensor,
        max_output_boxes_per_class: ITensor,
        indices_type: DataType = DataType.INT32,
    ) -> INMSLayer:
        """Add non-maximum suppression; the limit is a 0-D integer tensor."""
        tensors = self._check_named(
            "add_nms", boxes=boxes, scores=scores, max_output_boxes_per_class=max_output_boxes_per_class
        )
        return self._add_layer(INMSLayer(self, tensors, indices_type))
