"""Layers that sample an image: resize and grid sample."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import (
    InterpolationMode,
    LayerType,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
)
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, dims, flag, real, reals
from dovetail.types import Dims

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IGridSampleLayer", "IResizeLayer", "ResizeLayers"]

_MODES: Final = {
    InterpolationMode.NEAREST: "nearest",
    InterpolationMode.LINEAR: "linear",
    InterpolationMode.CUBIC: "cubic",
}
_ROUNDING: Final = {
    ResizeRoundMode.HALF_UP: "round_prefer_ceil",
    ResizeRoundMode.HALF_DOWN: "round_prefer_floor",
    ResizeRoundMode.FLOOR: "floor",
    ResizeRoundMode.CEIL: "ceil",
}
_COORDINATES: Final = {
    ResizeCoordinateTransformation.ALIGN_CORNERS: "align_corners",
    ResizeCoordinateTransformation.ASYMMETRIC: "asymmetric",
    ResizeCoordinateTransformation.HALF_PIXEL: "half_pixel",
}
_OUTSIDE: Final = {SampleMode.FILL: "zeros", SampleMode.CLAMP: "border", SampleMode.REFLECT: "reflection"}


class IResizeLayer(ILayer):
    """Resizes to a shape or by scales, one number for each dimension; what was set last counts.

    Input 1 takes the place of the shape. Input 2 is a region (starts, then ends, as shares of each dimension) that the
    output is sampled from.
    """

    __slots__ = ()

    _layer_type = LayerType.RESIZE
    _kind = "Resize"
    _input_names = ("input", "shape", "roi")
    _shape_inputs = frozenset({1})

    resize_mode = Property(choice(InterpolationMode), "How values between elements are found.")
    coordinate_transformation = Property(
        choice(ResizeCoordinateTransformation), "How an output coordinate maps to the input."
    )
    selector_for_single_pixel = Property(
        choice(ResizeSelector), "Which coordinate a dimension resized to one takes: by formula, or the first."
    )
    nearest_rounding = Property(choice(ResizeRoundMode), "How NEAREST rounds a coordinate.")
    exclude_outside = Property(flag, "Whether weights outside the input count as zero.")
    cubic_coeff = Property(real, "The coefficient of CUBIC.")

    def __init__(self, network: NetworkCore, tensor: ITensor) -> None:
        super().__init__(network, [tensor])
        self._values |= {"shape": None, "scales": None}
        self.resize_mode = InterpolationMode.NEAREST
        self.coordinate_transformation = ResizeCoordinateTransformation.ASYMMETRIC
        self.selector_for_single_pixel = ResizeSelector.FORMULA
        self.nearest_rounding = ResizeRoundMode.FLOOR
        self.exclude_outside = False
        self.cubic_coeff = -0.75

    @property
    def shape(self) -> Dims:
        """The output's shape; invalid dims while it is not set."""
        given: Dims | None = self._values["shape"]
        return Dims.invalid() if given is None else Dims(given)

    @shape.setter
    def shape(self, value: Any) -> None:
        self._values |= {"shape": dims(minimum=0)(value, self._where, "shape"), "scales": None}
        self._drop_input(1)
        self._changed()

    @property
    def scales(self) -> list[float]:
        """The factor of each dimension; empty while it is not set."""
        return list(self._values["scales"] or ())

    @scales.setter
    def scales(self, value: Any) -> None:
        self._values |= {"scales": reals(value, self._where, "scales"), "shape": None}
        self._drop_input(1)
        self._changed()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, shape, roi = e.input(0), e.optional_input(1), e.optional_input(2)
        scales: ir.Value | None = None
        if shape is not None:
            e.require_rank(shape, 1, "shape")
            shape = e.int64(shape)
        elif self._values["shape"] is not None:
            e.require_length(self._values["shape"], e.rank(x), "shape")
            shape = e.ints(list(self._values["shape"]), "shape")
        elif self._values["scales"] is not None:
            e.require_length(self._values["scales"], e.rank(x), "scales")
            scales = e.constant(np.asarray(self._values["scales"], np.float32), "scales")
        else:
            raise e.error("the layer has no size", fix="set shape, scales, or set_input(1, shape)")
        if roi is not None:
            e.require_rank(roi, 1, "roi")
        return [e.op("Resize", x, roi, scales, shape, **self._attributes(has_roi=roi is not None))]

    def _attributes(self, *, has_roi: bool) -> dict[str, Any]:
        coordinates = _COORDINATES[self.coordinate_transformation]
        if self.selector_for_single_pixel == ResizeSelector.UPPER and coordinates == "half_pixel":
            coordinates = "pytorch_half_pixel"  # the same, but the first element when the output has one
        is_nearest = self.resize_mode == InterpolationMode.NEAREST
        return {
            "mode": _MODES[self.resize_mode],
            "coordinate_transformation_mode": "tf_crop_and_resize" if has_roi else coordinates,
            "nearest_mode": _ROUNDING[self.nearest_rounding] if is_nearest else None,
            "exclude_outside": int(self.exclude_outside) or None,
            "cubic_coeff_a": self.cubic_coeff if self.resize_mode == InterpolationMode.CUBIC else None,
        }


class IGridSampleLayer(ILayer):
    """Samples an image at the coordinates of a grid, which run from -1 to 1."""

    __slots__ = ()

    _layer_type = LayerType.GRID_SAMPLE
    _kind = "GridSample"
    _input_names = ("input", "grid")
    _required_inputs = 2

    interpolation_mode = Property(choice(InterpolationMode), "How values between elements are found.")
    align_corners = Property(flag, "Whether -1 and 1 are the centres of the corner elements, or their outer edges.")
    sample_mode = Property(choice(SampleMode), "What lies outside: FILL with zero, CLAMP or REFLECT.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor]) -> None:
        super().__init__(network, tensors)
        self.interpolation_mode = InterpolationMode.LINEAR
        self.align_corners = False
        self.sample_mode = SampleMode.FILL

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, grid = e.input(0), e.input(1)
        e.require_rank(grid, e.rank(x), "grid")
        if e.dims(grid)[-1] not in (e.rank(x) - 2, None):
            raise e.error(
                "'grid' must end in one coordinate for each spatial dimension",
                expected=e.rank(x) - 2,
                got=e.describe(grid),
            )
        if self.sample_mode not in _OUTSIDE:
            raise e.error(
                "'sample_mode' is not one of grid sample",
                expected=", ".join(mode.name for mode in _OUTSIDE),
                got=self.sample_mode.name,
            )
        mode, outside = _MODES[self.interpolation_mode], _OUTSIDE[self.sample_mode]
        align = int(self.align_corners) or None
        return [e.op("GridSample", x, grid, mode=mode, padding_mode=outside, align_corners=align)]


class ResizeLayers(NetworkCore):
    """The methods that add layers which sample."""

    __slots__ = ()

    def add_resize(self, input: ITensor) -> IResizeLayer:
        """Add a resize; set ``shape``, ``scales`` or input 1."""
        return self._add_layer(IResizeLayer(self, self._check_tensor(input, where="add_resize", argument="input")))

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> IGridSampleLayer:
        """Add a layer that samples (N, C, H, W) at the (N, H', W', 2) coordinates of a grid."""
        return self._add_layer(IGridSampleLayer(self, self._check_named("add_grid_sample", input=input, grid=grid)))
