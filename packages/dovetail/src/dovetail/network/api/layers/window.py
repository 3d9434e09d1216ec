"""What layers with a sliding window share: stride, padding, and how the four padding modes are said in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.enums import PaddingMode
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, dims
from dovetail.types import Dims

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = ["WindowLayer"]


class WindowLayer(ILayer):
    """A layer whose window slides over the spatial dimensions, those after batch and channels."""

    stride_nd = Property(dims(minimum=1), "The step of the window in each spatial dimension.")
    pre_padding = Property(dims(minimum=0), "Padding before each spatial dimension.")
    post_padding = Property(dims(minimum=0), "Padding after each spatial dimension.")
    padding_mode = Property(choice(PaddingMode), "How padding and output size follow from each other.")

    def _init_window(self, num_spatial: int) -> None:
        self.stride_nd = (1,) * num_spatial
        self.pre_padding = (0,) * num_spatial
        self.post_padding = (0,) * num_spatial
        self.padding_mode = PaddingMode.EXPLICIT_ROUND_DOWN

    @property
    def padding_nd(self) -> Dims:
        """The same padding before and after; setting it sets both."""
        return self.pre_padding

    @padding_nd.setter
    def padding_nd(self, value: Any) -> None:
        self.pre_padding = value
        self.post_padding = value

    def _check_window(self, e: Emitter, x: ir.Value, num_spatial: int, **lists: Sequence[int]) -> None:
        e.require_rank(x, num_spatial + 2, "input")
        for name in ("stride_nd", "pre_padding", "post_padding"):
            e.require_length(self._values[name], num_spatial, name)
        for name, numbers in lists.items():
            e.require_length(numbers, num_spatial, name)

    def _padding(self) -> dict[str, Any]:
        """The attributes for the padding modes that ONNX has."""
        if self.padding_mode == PaddingMode.SAME_UPPER:
            return {"auto_pad": "SAME_UPPER"}
        if self.padding_mode == PaddingMode.SAME_LOWER:
            return {"auto_pad": "SAME_LOWER"}
        return {"pads": [*self.pre_padding, *self.post_padding]}

    def _round_up(self, e: Emitter, x: ir.Value, extents: Sequence[int]) -> ir.Value:
        """Pad the end so that the last window fits: what rounding up means where ONNX only rounds down.

        Args:
            e: Where to write.
            x: The input.
            extents: The window's reach in each spatial dimension, dilation included.
        """
        margins = [a + b - k for a, b, k in zip(self.pre_padding, self.post_padding, extents, strict=True)]
        axes = range(2, 2 + len(extents))
        sizes = e.dims(x)[2:]
        zeros = e.ints([0] * len(extents), "no_padding")
        if all(size is not None for size in sizes):
            rest = [
                -((size or 0) + margin) % stride
                for size, margin, stride in zip(sizes, margins, self.stride_nd, strict=True)
            ]
            if not any(rest):
                return x
            extra = e.ints(rest, "extra_padding")
        else:
            room = e.op("Add", e.shape_of(x, 2), e.ints(margins, "margins"))
            extra = e.op("Mod", e.op("Neg", room), e.ints(list(self.stride_nd), "strides"))
        pads = e.op("Concat", zeros, extra, axis=0)
        return e.op("Pad", x, pads, None, e.ints(list(axes), "spatial_axes"))
