"""Layers that rearrange: shuffle, concatenation, padding, squeeze and unsqueeze."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.emission import INT64_MAX
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, dims, flag, integer, permutation
from dovetail.network.api.tensor import ITensor
from dovetail.types import Dims, Permutation

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter

__all__ = [
    "IConcatenationLayer",
    "IPaddingLayer",
    "IShuffleLayer",
    "ISqueezeLayer",
    "IUnsqueezeLayer",
    "ShuffleLayers",
]


class IShuffleLayer(ILayer):
    """Transposes, reshapes, and transposes again. Input 1 takes the place of ``reshape_dims``."""

    __slots__ = ()

    _layer_type = LayerType.SHUFFLE
    _kind = "Shuffle"
    _input_names = ("input", "reshape_dims")
    _shape_inputs = frozenset({1})

    zero_is_placeholder = Property(flag, "Whether 0 in the reshape copies the input's dimension, or means empty.")

    def __init__(self, network: NetworkCore, tensor: ITensor) -> None:
        super().__init__(network, [tensor])
        self._values |= {"first_transpose": None, "reshape_dims": None, "second_transpose": None}
        self.zero_is_placeholder = True

    @property
    def first_transpose(self) -> Permutation:
        """The order of axes before the reshape; the identity until it is set."""
        given: Permutation | None = self._values["first_transpose"]
        tensor = self.get_input(0)
        if given is None:
            return Permutation(range(len(tensor.shape)) if tensor is not None else ())
        return Permutation(given)

    @first_transpose.setter
    def first_transpose(self, value: Any) -> None:
        self._values["first_transpose"] = permutation(value, self._where, "first_transpose")
        self._changed()

    @property
    def reshape_dims(self) -> Dims:
        """The new dimensions: 0 copies one, -1 is found; invalid dims until they are set."""
        given: Dims | None = self._values["reshape_dims"]
        return Dims.invalid() if given is None else Dims(given)

    @reshape_dims.setter
    def reshape_dims(self, value: Any) -> None:
        given = dims(minimum=-1)(value, self._where, "reshape_dims")
        self._values["reshape_dims"] = given
        self._drop_input(1)
        self._changed()

    @property
    def second_transpose(self) -> Permutation:
        """The order of axes after the reshape; the identity until it is set."""
        given: Permutation | None = self._values["second_transpose"]
        return Permutation(range(Dims.MAX_DIMS) if given is None else given)

    @second_transpose.setter
    def second_transpose(self, value: Any) -> None:
        self._values["second_transpose"] = permutation(value, self._where, "second_transpose")
        self._changed()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = self._transpose(e, e.input(0), "first_transpose")
        shape = e.optional_input(1)
        if shape is not None:
            e.require_rank(shape, 1, "reshape_dims")
            x = e.op("Reshape", x, e.int64(shape), allowzero=None if self.zero_is_placeholder else 1)
        elif self._values["reshape_dims"] is not None:
            x = self._reshape(e, x, list(self._values["reshape_dims"]))
        x = self._transpose(e, x, "second_transpose")
        return [x if x is not e.input(0) else e.op("Identity", x)]

    def _transpose(self, e: Emitter, x: ir.Value, name: str) -> ir.Value:
        order: Permutation | None = self._values[name]
        if order is None:
            return x
        if len(order) != e.rank(x):
            raise e.error(f"'{name}' has the wrong length", expected=e.rank(x), got=f"{len(order)}: {order}")
        return e.transpose(x, list(order))

    def _reshape(self, e: Emitter, x: ir.Value, shape: list[int]) -> ir.Value:
        sizes = e.dims(x)
        if shape.count(-1) > 1:
            raise e.error("'reshape_dims' has -1 more than once", got=tuple(shape))
        if not self.zero_is_placeholder and 0 in shape and -1 in shape:
            raise e.error("'reshape_dims' has both 0 and -1 while 0 means empty", got=tuple(shape))
        zeros = [axis for axis, size in enumerate(shape) if size == 0] if self.zero_is_placeholder else []
        if zeros and zeros[-1] >= len(sizes):
            raise e.error(
                f"'reshape_dims' copies dimension {zeros[-1]}, which the input does not have",
                got=f"{tuple(shape)} for {e.describe(x)}",
            )
        wanted = [sizes[axis] if axis in zeros else size for axis, size in enumerate(shape)]
        self._check_volume(e, x, sizes, wanted)
        return e.op("Reshape", x, e.ints(shape, "reshape_dims"), allowzero=None if self.zero_is_placeholder else 1)

    def _check_volume(self, e: Emitter, x: ir.Value, sizes: Sequence[int | None], wanted: Sequence[int | None]) -> None:
        if None in sizes or None in wanted:
            return
        have = math.prod(size or 0 for size in sizes)
        known = math.prod(size or 0 for size in wanted if size != -1)
        fits = have == known if -1 not in wanted else (known != 0 and have % known == 0)
        if not fits:
            raise e.error("'reshape_dims' does not hold the elements of the input", expected=have, got=tuple(wanted))


class IConcatenationLayer(ILayer):
    """Joins tensors along an axis."""

    __slots__ = ()

    _layer_type = LayerType.CONCATENATION
    _kind = "Concatenation"

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor]) -> None:
        super().__init__(network, tensors)
        self._values["axis"] = None

    @property
    def _max_inputs(self) -> int:
        return len(self._inputs)

    @property
    def axis(self) -> int:
        """The axis; until it is set the third from last, or the first of fewer than three."""
        given: int | None = self._values["axis"]
        tensor = self.get_input(0)
        return max(0, len(tensor.shape) - 3) if given is None and tensor is not None else given or 0

    @axis.setter
    def axis(self, value: int) -> None:
        self._values["axis"] = integer()(value, self._where, "axis")
        self._changed()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        values = [e.input(index) for index in range(len(self._inputs))]
        e.require_same_type(*values)
        rank = e.rank(values[0])
        given: int | None = self._values["axis"]
        axis = max(0, rank - 3) if given is None else e.axis(given, rank)
        for index, value in enumerate(values):
            e.require_rank(value, rank, f"inputs[{index}]")
            self._check_dims(e, values[0], value, axis)
        return [e.op("Concat", *values, axis=axis)]

    def _check_dims(self, e: Emitter, first: ir.Value, value: ir.Value, axis: int) -> None:
        for index, (a, b) in enumerate(zip(e.dims(first), e.dims(value), strict=True)):
            if index != axis and a is not None and b is not None and a != b:
                raise e.error(
                    f"dimension {index} of the inputs differs",
                    expected=f"equal dimensions except axis {axis}",
                    got=f"{e.describe(first)} and {e.describe(value)}",
                )


class IPaddingLayer(ILayer):
    """Adds zeros around the last dimensions; a negative number cuts off."""

    __slots__ = ()

    _layer_type = LayerType.PADDING
    _kind = "Padding"

    pre_padding_nd = Property(dims(), "What is added before each of the last dimensions.")
    post_padding_nd = Property(dims(), "What is added after each of the last dimensions.")

    def __init__(self, network: NetworkCore, tensor: ITensor, pre: Any, post: Any) -> None:
        super().__init__(network, [tensor])
        self.pre_padding_nd, self.post_padding_nd = pre, post

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        pre, post = list(self.pre_padding_nd), list(self.post_padding_nd)
        e.require_length(post, len(pre), "post_padding_nd")
        if not pre or len(pre) > e.rank(x):
            raise e.error("'pre_padding_nd' has the wrong length", expected=f"1 to {e.rank(x)}", got=len(pre))
        axes = list(range(e.rank(x) - len(pre), e.rank(x)))
        x = _crop(e, x, pre, post, axes)
        added = [max(0, count) for count in (*pre, *post)]
        if any(added):
            x = e.op("Pad", x, e.ints(added, "padding"), None, e.ints(axes, "axes"))
        return [x if x is not e.input(0) else e.op("Identity", x)]


def _crop(e: Emitter, x: ir.Value, pre: list[int], post: list[int], axes: list[int]) -> ir.Value:
    if all(count >= 0 for count in (*pre, *post)):
        return x
    starts = [max(0, -count) for count in pre]
    ends = [count if count < 0 else INT64_MAX for count in post]
    return e.op("Slice", x, e.ints(starts, "starts"), e.ints(ends, "ends"), e.ints(axes, "crop_axes"))


class _AxesLayer(ILayer):
    """A layer whose second input, or a list given when it was added, names axes."""

    __slots__ = ()

    _input_names = ("input", "axes")
    _shape_inputs = frozenset({1})
    _op: str

    def __init__(self, network: NetworkCore, tensor: ITensor, axes: Any) -> None:
        is_tensor = isinstance(axes, ITensor)
        super().__init__(network, [tensor, axes if is_tensor else None])
        self._values["axes"] = None if is_tensor else dims()(axes, self._where, "axes")

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, given = e.input(0), e.optional_input(1)
        if given is None:
            axes = e.ints(list(self._values["axes"]), "axes")
            numbers: list[int] | None = list(self._values["axes"])
        else:
            axes = e.to_vector(e.int64(given))
            numbers = e.constant_ints(axes)
        if numbers is not None:
            self._check(e, x, numbers)
        return [e.op(self._op, x, axes)]

    def _check(self, e: Emitter, x: ir.Value, axes: list[int]) -> None:
        raise NotImplementedError


class ISqueezeLayer(_AxesLayer):
    """Removes dimensions of one."""

    __slots__ = ()

    _layer_type = LayerType.SQUEEZE
    _kind = "Squeeze"
    _op = "Squeeze"

    def _check(self, e: Emitter, x: ir.Value, axes: list[int]) -> None:
        for axis in axes:
            size = e.dims(x)[e.axis(axis, e.rank(x), "axes")]
            if size not in (1, None):
                raise e.error(f"dimension {axis} cannot be removed", expected=1, got=f"{size} of {e.describe(x)}")


class IUnsqueezeLayer(_AxesLayer):
    """Inserts dimensions of one."""

    __slots__ = ()

    _layer_type = LayerType.UNSQUEEZE
    _kind = "Unsqueeze"
    _op = "Unsqueeze"

    def _check(self, e: Emitter, x: ir.Value, axes: list[int]) -> None:
        rank = e.rank(x) + len(axes)
        if len({e.axis(axis, rank, "axes") for axis in axes}) != len(axes):
            raise e.error("'axes' names an axis twice", got=axes)


class ShuffleLayers(NetworkCore):
    """The methods that add layers which rearrange."""

    __slots__ = ()

    def add_shuffle(self, input: ITensor) -> IShuffleLayer:
        """Add a layer that transposes and reshapes as its properties say."""
        return self._add_layer(IShuffleLayer(self, self._check_tensor(input, where="add_shuffle", argument="input")))

    def add_concatenation(self, inputs: Sequence[ITensor]) -> IConcatenationLayer:
        """Add a layer that joins tensors."""
        tensors = self._check_tensors(inputs, where="add_concatenation", argument="inputs", minimum=1)
        return self._add_layer(IConcatenationLayer(self, tensors))

    def add_padding_nd(
        self,
        input: ITensor,
        pre_padding: Iterable[int],
        post_padding: Iterable[int],
    ) -> IPaddingLayer:
        """Add zeros around the last dimensions, or cut them with negative numbers."""
        tensor = self._check_tensor(input, where="add_padding_nd", argument="input")
        return self._add_layer(IPaddingLayer(self, tensor, pre_padding, post_padding))

    def add_squeeze(self, input: ITensor, axes: ITensor | Sequence[int]) -> ISqueezeLayer:
        """Add a layer that removes dimensions of one; axes are a tensor or numbers."""
        return self._add_layer(ISqueezeLayer(self, *self._axes_arguments("add_squeeze", input, axes)))

    def add_unsqueeze(self, input: ITensor, axes: ITensor | Sequence[int]) -> IUnsqueezeLayer:
        """Add a layer that inserts dimensions of one; axes are a tensor or numbers."""
        return self._add_layer(IUnsqueezeLayer(self, *self._axes_arguments("add_unsqueeze", input, axes)))

    def _axes_arguments(self, where: str, tensor: ITensor, axes: Any) -> tuple[ITensor, Any]:
        if axes is None or isinstance(axes, ITensor | ILayer):
            self._check_tensor(axes, where=where, argument="axes")
        return self._check_tensor(tensor, where=where, argument="input"), axes
