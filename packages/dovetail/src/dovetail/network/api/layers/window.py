"""Base class of layers with a sliding window: stride, padding, and the four padding modes in ONNX."""

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

    __slots__ = ()

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

    @property
    def _is_same(self) -> bool:
        return self.padding_mode in (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER)

    def _padding(self) -> dict[str, Any]:
        """Return the attributes for the padding modes that ONNX has."""
        if self._is_same:
            return {"auto_pad": self.padding_mode.name}
        return {"pads": [*self.pre_padding, *self.post_padding]}

    def _split(self, totals: Sequence[int]) -> list[int]:
        """Split the total padding of each axis into that before and that after; SAME_LOWER puts the odd one before."""
        smaller = [total // 2 for total in totals]
        larger = [total - half for total, half in zip(totals, smaller, strict=True)]
        return [*smaller, *larger] if self.padding_mode == PaddingMode.SAME_UPPER else [*larger, *smaller]

    def _same_padding(self, e: Emitter, x: ir.Value, extents: Sequence[int]) -> dict[str, Any]:
        """Return the attributes for SAME padding with a dilated filter.

        ``PaddingMode`` of NvInfer.h gives, with I the size of the image, S the stride and DK the dilated filter size,
        P = floor((I - 1) / S) * S + DK - I, which is DK - 1 - (I - 1) mod S. It is written as numbers where I does not
        matter or is known, because few back ends resolve ``auto_pad`` with dilations.

        Args:
            e: Emitter of the nodes.
            x: The input.
            extents: The dilated filter size in each spatial dimension.
        """
        totals = [
            extent - 1 if stride == 1 else None if size is None else max(extent - 1 - (size - 1) % stride, 0)
            for size, extent, stride in zip(e.dims(x)[2:], extents, self.stride_nd, strict=True)
        ]
        known = [total for total in totals if total is not None]
        return {"pads": self._split(known)} if len(known) == len(totals) else self._padding()

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
