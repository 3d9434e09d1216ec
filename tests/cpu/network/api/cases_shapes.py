"""Layers that rearrange, slice, gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.network.api.enums import GatherMode, SampleMode, ScatterMode
from dovetail.types import Permutation
from tests.support.layer_cases import Expected, Sketch, case, rand


@case("add_shuffle", "reshape with a copied and a found dimension", reshape=(0, -1), shape=(2, 12))
@case("add_shuffle", "first transpose", first=(2, 0, 1), shape=None)
@case("add_shuffle", "everything", first=(1, 2, 0), reshape=(6, 4), second=(1, 0), shape=(6, 4))
@case("add_shuffle", "nothing", shape=None)
def shuffle(sketch: Sketch, shape: Any, first: Any = None, reshape: Any = None, second: Any = None) -> Expected:
    x = rand(2, 3, 4)
    layer = sketch.network.add_shuffle(sketch.input(x))
    wanted = x
    if first is not None:
        layer.first_transpose = Permutation(first)
        wanted = wanted.transpose(first)
    if reshape is not None:
        layer.reshape_dims = reshape
        wanted = wanted.reshape(shape)
    if second is not None:
        layer.second_transpose = second
        wanted = wanted.transpose(second)
    return [(layer.get_output(0), wanted)]


@case("add_shuffle", "reshape from a tensor", dtype=np.int32, numbers=(0, 4, 3), wanted=(2, 4, 3))
@case("add_shuffle", "reshape from a long tensor", dtype=np.int64, numbers=(-1, 6), wanted=(4, 6))
def shuffle_input(sketch: Sketch, dtype: Any, numbers: Any, wanted: Any) -> Expected:
    x = rand(2, 3, 4)
    layer = sketch.network.add_shuffle(sketch.input(x))
    layer.reshape_dims = (24,)
    layer.set_input(1, sketch.numbers(*numbers, dtype=dtype))
    return [(layer.get_output(0), x.reshape(wanted))]


@case("add_shuffle", "zero means empty")
def shuffle_empty(sketch: Sketch) -> Expected:
    x = np.empty((0, 3), np.float32)
    layer = sketch.network.add_shuffle(sketch.input(x))
    layer.reshape_dims, layer.zero_is_placeholder = (5, 0), False
    return [(layer.get_output(0), x.reshape(5, 0))]


@case("add_concatenation", "default axis", shapes=((2, 1, 3), (4, 1, 3)), wanted=0)
@case("add_concatenation", "another axis", shapes=((2, 1, 3), (2, 4, 3), (2, 2, 3)), axis=1, wanted=1)
@case("add_concatenation", "from the end", shapes=((2, 3), (2, 1)), axis=-1, wanted=1)
def concatenation(sketch: Sketch, shapes: Any, wanted: int, axis: int | None = None) -> Expected:
    parts = [rand(*shape) for shape in shapes]
    layer = sketch.network.add_concatenation([sketch.input(part) for part in parts])
    if axis is not None:
        layer.axis = axis
    return [(layer.get_output(0), np.concatenate(parts, wanted))]


@case("add_concatenation", "another input later")
def concatenation_input(sketch: Sketch) -> Expected:
    a, b = rand(2, 3), rand(1, 3)
    layer = sketch.network.add_concatenation([sketch.input(a), sketch.input(a)])
    layer.set_input(1, sketch.input(b))
    return [(layer.get_output(0), np.concatenate([a, b]))]


@case("add_padding_nd", "zeros around", pre=(1, 0), post=(2, 3))
@case("add_padding_nd", "cut off", pre=(-1, 2), post=(0, -2))
@case("add_padding_nd", "nothing", pre=(0, 0), post=(0, 0))
@case("add_padding_nd", "three dimensions", pre=(1, 0, 2), post=(-1, 1, 0))
def padding(sketch: Sketch, pre: Any, post: Any) -> Expected:
    x = rand(2, 3, 4, 5)
    layer = sketch.network.add_padding_nd(sketch.input(x), (0, 0), (0, 0))
    layer.pre_padding_nd, layer.post_padding_nd = pre, post
    spatial = x.shape[-len(pre) :]
    cut = tuple(slice(max(0, -a), size - max(0, -z)) for a, z, size in zip(pre, post, spatial, strict=True))
    widths = [(0, 0)] * (4 - len(pre)) + [(max(0, a), max(0, z)) for a, z in zip(pre, post, strict=True)]
    return [(layer.get_output(0), np.pad(x[(..., *cut)], widths))]


@case("add_squeeze", "numbers", axes=(0, -1), open_dims=False)
def squeeze(sketch: Sketch, axes: Any) -> Expected:
    x = rand(1, 3, 1, 1)
    return [(sketch.network.add_squeeze(sketch.input(x), axes).get_output(0), x.squeeze((0, 3)))]


@case("add_squeeze", "a constant tensor", dtype=np.int32)
@case("add_squeeze", "a long constant tensor", dtype=np.int64)
def squeeze_tensor(sketch: Sketch, dtype: Any) -> Expected:
    x = rand(1, 3, 1)
    layer = sketch.network.add_squeeze(sketch.input(x), sketch.constant(np.array([0], dtype)))
    layer.set_input(1, sketch.constant(np.array([2], dtype)))
    return [(layer.get_output(0), x.squeeze(2))]


@case("add_unsqueeze", "numbers", axes=(0, 3))
def unsqueeze(sketch: Sketch, axes: Any) -> Expected:
    x = rand(2, 3)
    return [(sketch.network.add_unsqueeze(sketch.input(x), axes).get_output(0), x.reshape(1, 2, 3, 1))]


@case("add_unsqueeze", "a constant tensor")
def unsqueeze_tensor(sketch: Sketch) -> Expected:
    x = rand(2, 3)
    layer = sketch.network.add_unsqueeze(sketch.input(x), sketch.constant(np.array([0], np.int32)))
    layer.set_input(1, sketch.constant(np.array(-1, np.int32)))
    return [(layer.get_output(0), x[..., None])]


def sample(x: np.ndarray, axes: Any, start: Any, size: Any, stride: Any, mode: SampleMode, fill: float) -> np.ndarray:
    """What a slice takes, axis by axis."""
    outside: Any = False
    for axis, first, count, step in zip(axes, start, size, stride, strict=True):
        index, limit = first + np.arange(count) * step, x.shape[axis]
        bad = (index < 0) | (index >= limit)
        if mode == SampleMode.WRAP:
            index = index % limit
        elif mode == SampleMode.REFLECT:
            line = np.concatenate([np.arange(limit), np.arange(limit)[-2:0:-1]]) if limit > 1 else np.zeros(1, int)
            index = line[index % len(line)]
        else:
            index = np.clip(index, 0, limit - 1)
        x = x.take(index, axis)
        if mode == SampleMode.FILL:
            outside = outside | np.expand_dims(bad, [a for a in range(x.ndim) if a != axis])
    return np.where(outside, np.float32(fill), x)


SLICES: dict[str, dict[str, Any]] = {
    "inside": {"start": (0, 1, 2), "size": (2, 2, 2), "stride": (1, 1, 1)},
    "steps": {"start": (1, 0, 0), "size": (1, 2, 2), "stride": (1, 2, 3)},
    "backwards": {"start": (1, 2, 4), "size": (2, 3, 2), "stride": (-1, -1, -3)},
    "repeated": {"start": (0, 1, 0), "size": (2, 4, 5), "stride": (1, 0, 1)},
    "some axes": {"start": (4, 0), "size": (3, 2), "stride": (-2, 1), "axes": (2, 0)},
    "wrap": {"start": (-1, 1, 0), "size": (4, 3, 5), "stride": (1, 2, 1), "mode": SampleMode.WRAP},
    "clamp": {"start": (-2, 2, 0), "size": (5, 3, 5), "stride": (1, 1, 1), "mode": SampleMode.CLAMP},
    "fill": {"start": (-1, 0, 3), "size": (3, 3, 4), "stride": (1, 1, 1), "mode": SampleMode.FILL},
    "fill elsewhere": {"start": (3, -1), "size": (3, 5), "stride": (2, 1), "axes": (-1, 1), "mode": SampleMode.FILL},
    "reflect": {"start": (-3, 1, 0), "size": (6, 9, 5), "stride": (1, 1, 1), "mode": SampleMode.REFLECT},
}


def slice_layer(sketch: Sketch, which: str, dynamic: str = "", fill: float | None = None) -> Expected:
    numbers = {"mode": SampleMode.STRICT_BOUNDS, "axes": None, **SLICES[which]}
    x = rand(2, 3, 5)
    count = len(numbers["start"])
    layer = sketch.network.add_slice(sketch.input(x), (0,) * count, (1,) * count, (1,) * count)
    layer.mode, layer.axes = numbers["mode"], numbers["axes"]
    for index, (key, name) in enumerate((("start", "start"), ("size", "shape"), ("stride", "stride")), 1):
        if key in dynamic.split():
            layer.set_input(index, sketch.numbers(*numbers[key], dtype=np.int32 if index == 1 else np.int64))
        else:
            setattr(layer, name, numbers[key])
    if fill is not None:
        layer.set_input(4, sketch.input(np.float32(fill)))
    if "axes" in dynamic.split():
        layer.set_input(5, sketch.constant(np.array(numbers["axes"], np.int32)))
    axes = [axis % 3 for axis in numbers["axes"] or range(3)]
    rest = (numbers["start"], numbers["size"], numbers["stride"], numbers["mode"], fill or 0.0)
    return [(layer.get_output(0), sample(x, axes, *rest))]


for _which in SLICES:
    case("add_slice", _which, which=_which)(slice_layer)
    case("add_slice", f"{_which}, numbers from tensors", which=_which, dynamic="start size stride")(slice_layer)
for _key in ("start", "size", "stride"):
    case("add_slice", f"backwards, {_key} from a tensor", which="backwards", dynamic=_key)(slice_layer)
    case("add_slice", f"inside, {_key} from a tensor", which="inside", dynamic=_key)(slice_layer)
case("add_slice", "fill with a value", which="fill", fill=7.5)(slice_layer)
case("add_slice", "some axes from a tensor", which="some axes", dynamic="axes")(slice_layer)


@case("add_gather", "slices", shape=(3, 4, 5), indices=[[0, 2], [3, 1]], axis=1, later=1)
@case("add_gather", "from the end", shape=(3, 4), indices=[-1, 0], axis=0, later=-1)
def gather(sketch: Sketch, shape: Any, indices: Any, axis: int, later: int) -> Expected:
    x, index = rand(*shape), np.array(indices, np.int32)
    layer = sketch.network.add_gather(sketch.input(x), sketch.input(index), axis)
    layer.axis = later
    return [(layer.get_output(0), x.take(index, later))]


@case("add_gather", "with elementwise dimensions", axis=2, together=1)
@case("add_gather", "the next axis", axis=1, together=1)
@case("add_gather", "two elementwise dimensions", axis=3, together=2)
def gather_together(sketch: Sketch, axis: int, together: int) -> Expected:
    x = rand(2, 3, 4, 5)
    index = np.random.default_rng(0).integers(0, 3, (*x.shape[:together], 2, 3)).astype(np.int64)
    layer = sketch.network.add_gather(sketch.input(x), sketch.input(index), 0)
    layer.axis, layer.num_elementwise_dims = axis, together
    parts = [x[place].take(index[place], axis - together) for place in np.ndindex(*x.shape[:together])]
    wanted = np.stack(parts).reshape(*x.shape[:together], *parts[0].shape)
    return [(layer.get_output(0), wanted)]


@case("add_gather_v2", "default", mode=GatherMode.DEFAULT)
@case("add_gather_v2", "element", mode=GatherMode.ELEMENT)
def gather_v2(sketch: Sketch, mode: GatherMode) -> Expected:
    x, index = rand(3, 4), np.array([[1, 0], [2, 3], [0, 0]], np.int64)
    layer = sketch.network.add_gather_v2(sketch.input(x), sketch.input(index), GatherMode.ND)
    layer.mode, layer.axis = mode, 1
    wanted = x.take(index, 1) if mode == GatherMode.DEFAULT else np.take_along_axis(x, index, 1)
    return [(layer.get_output(0), wanted)]


@case("add_gather_v2", "positions", together=0)
@case("add_gather_v2", "positions with elementwise dimensions", together=1)
def gather_nd(sketch: Sketch, together: int) -> Expected:
    x = rand(2, 3, 4)
    index = np.array([[[1, 0], [0, 2]], [[1, 1], [0, 0]]], np.int32)
    layer = sketch.network.add_gather_v2(sketch.input(x), sketch.input(index, fixed=True), GatherMode.ND)
    layer.num_elementwise_dims = together
    if together:
        wanted = np.stack([x[b][tuple(index[b].T)] for b in range(2)])
    else:
        wanted = x[index[..., 0], index[..., 1]]
    return [(layer.get_output(0), wanted)]


@case("add_scatter", "element", axis=1)
@case("add_scatter", "element of the last axis", axis=-1)
def scatter_elements(sketch: Sketch, axis: int) -> Expected:
    x, index, updates = rand(2, 4), np.array([[3, 0], [1, 2]], np.int32), rand(2, 2)
    layer = sketch.network.add_scatter(sketch.input(x), sketch.input(index), sketch.input(updates), ScatterMode.ELEMENT)
    layer.axis = axis
    wanted = x.copy()
    np.put_along_axis(wanted, index.astype(np.int64), updates, 1)
    return [(layer.get_output(0), wanted)]


@case("add_scatter", "positions")
def scatter_nd(sketch: Sketch) -> Expected:
    x, index, updates = rand(4, 3), np.array([[2], [0]], np.int32), rand(2, 3)
    tensors = (sketch.input(x), sketch.input(index), sketch.input(updates))
    layer = sketch.network.add_scatter(*tensors, ScatterMode.ELEMENT)
    layer.mode = ScatterMode.ND
    wanted = x.copy()
    wanted[[2, 0]] = updates
    return [(layer.get_output(0), wanted)]


@case("add_one_hot", "last axis", axis=-1)
@case("add_one_hot", "first axis", axis=0)
def one_hot(sketch: Sketch, axis: int) -> Expected:
    index, values = np.array([[0, 3], [2, 1]], np.int32), np.array([-1.0, 2.0], np.float32)
    layer = sketch.network.add_one_hot(sketch.input(index), sketch.input(values), sketch.scalar(4, np.int32), 1)
    layer.axis = axis
    rows = np.where(np.arange(4) == index[..., None], values[1], values[0])
    return [(layer.get_output(0), np.moveaxis(rows, -1, axis))]


@case("add_reverse_sequence", "as it is", batch=1, sequence=0)
@case("add_reverse_sequence", "other way round", batch=0, sequence=1)
@case("add_reverse_sequence", "later axes", batch=2, sequence=1)
def reverse_sequence(sketch: Sketch, batch: int, sequence: int) -> Expected:
    x = rand(3, 3, 3)
    lengths = np.array([1, 3, 2], np.int32)
    layer = sketch.network.add_reverse_sequence(sketch.input(x), sketch.input(lengths))
    layer.batch_axis, layer.sequence_axis = batch, sequence
    moved = np.moveaxis(x, (batch, sequence), (0, 1)).copy()
    for row, count in enumerate(lengths):
        moved[row, :count] = moved[row, :count][::-1].copy()
    return [(layer.get_output(0), np.moveaxis(moved, (0, 1), (batch, sequence)))]
