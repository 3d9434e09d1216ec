"""Makers of random nodes that move, cut, join and look up elements, and that compute shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.support.random_models import FLOATS, Draft, NoFit, Value, common_grid, may_be_empty, product
from tests.support.random_nodes import axes_arguments

__all__ = ["SHAPE_MAKERS"]

Maker = Callable[[Draft], Any]


def _factors(draft: Draft, count: int) -> list[int]:
    """Some way to write a number as a product."""
    parts: list[int] = []
    while count > 1 and len(parts) < 3:
        divisors = [d for d in range(2, min(count, 8) + 1) if count % d == 0]
        if not divisors or draft.chance(0.25):
            break
        parts.append(draft.rng.choice(divisors))
        count //= parts[-1]
    parts.append(count)
    draft.rng.shuffle(parts)
    return parts


def add_reshape(draft: Draft) -> None:
    x = draft.pick()
    if x.is_static and not may_be_empty(x):
        dims = _factors(draft, product(x.dims))
        target = list(dims)
        if draft.chance(0.4):
            target[draft.rng.randrange(len(target))] = -1
        draft.add("Reshape", [x, draft.ints(*target)], replace(x, dims=tuple(dims)))
        return
    if x.rank < 2:
        raise NoFit
    kind = draft.rng.choice(["flat", "first", "tail"])
    if kind == "flat":
        draft.add("Reshape", [x, draft.ints(-1)], replace(x, dims=(draft.symbol(),)))
    elif kind == "first" and not may_be_empty(x):
        draft.add("Reshape", [x, draft.ints(0, -1)], replace(x, dims=(x.dims[0], _joined(draft, x.dims[1:]))))
    elif isinstance(x.dims[-1], int) and x.dims[-1]:
        draft.add(
            "Reshape", [x, draft.ints(-1, x.dims[-1])], replace(x, dims=(_joined(draft, x.dims[:-1]), x.dims[-1]))
        )


def _joined(draft: Draft, dims: Any) -> Any:
    if all(isinstance(dim, int) for dim in dims):
        return product(dims)
    named = [dim for dim in dims if dim != 1]
    return named[0] if len(named) == 1 else draft.symbol()


def add_computed_reshape(draft: Draft) -> None:
    """Shape -> Gather or Slice -> Concat -> Reshape, as exporters write it."""
    x = draft.pick(fits=lambda v: v.rank >= 2 and not may_be_empty(v))
    shape = Value(draft.emit("Shape", [x])[0], "int64", (x.rank,), 100, 0)
    last = draft.add("Gather", [shape, draft.scalar(x.rank - 1, "int64")], replace(shape, dims=()), axis=0)
    extra, attrs = axes_arguments(draft, [0], 13)
    single = draft.add("Unsqueeze", [last, *extra], replace(last, dims=(1,)), **attrs)
    parts = [draft.ints(-1), single]
    joined = draft.add("Concat", parts, replace(shape, dims=(2,)), axis=0)
    draft.add("Reshape", [x, joined], replace(x, dims=(_joined(draft, x.dims[:-1]), x.dims[-1])))


def add_heads(draft: Draft) -> None:
    """Split the last dimension in two with a shape that is computed, then swap; the start of attention."""
    x = draft.pick(fits=lambda v: v.rank == 3 and not may_be_empty(v) and v.dims[-1] in (2, 4, 8))
    width = int(x.dims[-1])
    shape = draft.add("Shape", [x], Value("", "int64", (3,), 100, 0))
    start, end = draft.ints(0), draft.ints(2)
    if draft.opset >= 10:
        head = draft.add("Slice", [shape, start, end], replace(shape, dims=(2,)))
    else:
        head = draft.add("Slice", [shape], replace(shape, dims=(2,)), starts=[0], ends=[2])
    target = draft.add("Concat", [head, draft.ints(2, width // 2)], replace(shape, dims=(4,)), axis=0)
    y = draft.add("Reshape", [x, target], replace(x, dims=(*x.dims[:2], 2, width // 2)))
    draft.add("Transpose", [y], replace(y, dims=(y.dims[0], 2, y.dims[1], width // 2)), perm=[0, 2, 1, 3])


def add_transpose(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: v.rank >= 1)
    perm = list(range(x.rank))
    draft.rng.shuffle(perm)
    given = None if draft.chance(0.2) else perm
    order = perm if given is not None else perm[:0] or list(range(x.rank))[::-1]
    draft.add("Transpose", [x], replace(x, dims=tuple(x.dims[axis] for axis in order)), perm=given)


def add_flatten(draft: Draft) -> None:
    x = draft.pick(*FLOATS, fits=lambda v: v.rank >= 2)
    axis = draft.rng.randint(0, x.rank)
    dims = (_joined(draft, x.dims[:axis]) if axis else 1, _joined(draft, x.dims[axis:]) if axis < x.rank else 1)
    draft.add("Flatten", [x], replace(x, dims=dims), axis=axis)


def add_squeeze(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: 1 in v.dims)
    axes = [axis for axis, dim in enumerate(x.dims) if dim == 1 and draft.chance(0.8)] or [x.dims.index(1)]
    extra, attrs = axes_arguments(draft, axes, 13)
    dims = tuple(dim for axis, dim in enumerate(x.dims) if axis not in axes)
    draft.add("Squeeze", [x, *extra], replace(x, dims=dims), **attrs)


def add_unsqueeze(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: v.rank <= 3)
    axis = draft.rng.randint(0, x.rank)
    given = axis - x.rank - 1 if draft.opset >= 11 and draft.chance(0.4) else axis
    extra, attrs = axes_arguments(draft, [given], 13)
    draft.add("Unsqueeze", [x, *extra], replace(x, dims=(*x.dims[:axis], 1, *x.dims[axis:])), **attrs)


def add_slice(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", "int32", "bool", fits=lambda v: v.rank >= 1)
    axis = draft.rng.randrange(x.rank)
    size = x.dims[axis]
    start, end, step = draft.rng.choice(
        [
            (0, 2, 1),
            (1, 2**31 - 1, 1),
            (-2, 2**62, 1),
            (0, -1, 1),
            (-1, -(2**31), -1),
            (0, 9, 2),
            (5, 1, -2),
            (3, 3, 1),
            (-1, -(2**63) + 1, -1),
            (-1, -9, -1),
        ]
    )
    if draft.opset < 10:
        if step != 1:
            raise NoFit
        name = draft.emit("Slice", [x], axes=[axis], starts=[start], ends=[end])[0]
    else:
        kind = "int32" if abs(end) < 2**31 and draft.chance(0.3) else "int64"
        named = axis - x.rank if draft.chance(0.3) else axis
        parts = [draft.ints(value, dtype=kind) for value in (start, end, named)]
        name = draft.emit("Slice", [x, *parts, *([draft.ints(step, dtype=kind)] if step != 1 else [])])[0]
    length: Any = len(range(int(size))[start:end:step]) if isinstance(size, int) else draft.symbol()
    draft.keep(replace(x, name=name, dims=(*x.dims[:axis], length, *x.dims[axis + 1 :])))


def add_gather(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: v.rank >= 1)
    axis = draft.rng.randrange(x.rank)
    size = x.dims[axis]
    if size == 0 or (isinstance(size, str) and size.startswith("?")):
        raise NoFit
    room = size if isinstance(size, int) else 1
    shape = draft.rng.choice([(), (1,), (3,), (2, 2)])
    low = -room if draft.opset >= 11 else 0
    indices = draft.weight(draft.shared.arrays.integers(low, room, shape).astype(draft.rng.choice(["int64", "int32"])))
    given = axis - x.rank if draft.chance(0.3) else axis
    draft.add("Gather", [x, indices], replace(x, dims=(*x.dims[:axis], *shape, *x.dims[axis + 1 :])), axis=given)


def _indices(draft: Draft, room: int) -> Value:
    """Indices that are computed from what there is, and surely inside."""
    x = draft.pick("int64", "int32", fits=lambda v: v.rank >= 1)
    y = draft.add("Abs", [x], x) if draft.opset >= 6 else x
    if draft.opset < 10:
        raise NoFit
    return draft.add("Mod", [y, draft.scalar(room, x.dtype)], replace(x, bound=room))


def add_computed_gather(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", fits=lambda v: v.rank in (1, 2) and isinstance(v.dims[0], int) and v.dims[0])
    indices = _indices(draft, int(x.dims[0]))
    if indices.rank + x.rank > 5:
        raise NoFit
    draft.add("Gather", [x, indices], replace(x, dims=(*indices.dims, *x.dims[1:])))


def add_gather_elements(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick(*FLOATS, "int64", fits=lambda v: v.rank >= 1 and v.is_static and not may_be_empty(v))
    axis = draft.rng.randrange(x.rank)
    indices = draft.weight(draft.shared.arrays.integers(-int(x.dims[axis]), int(x.dims[axis]), x.dims))
    draft.add("GatherElements", [x, indices], x, axis=axis)


def add_scatter(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", "int64", fits=lambda v: v.rank >= 1 and v.is_static and not may_be_empty(v))
    if draft.chance(0.5):
        row = draft.rng.randrange(int(x.dims[0]))
        updates = (
            draft.floats((1, *x.dims[1:]), "float32")
            if x.dtype == "float32"
            else draft.weight(np.ones((1, *x.dims[1:]), np.int64))
        )
        draft.add("ScatterND", [x, draft.weight(np.asarray([[row]])), updates], x)
        return
    axis = draft.rng.randrange(x.rank)
    shape = tuple(1 if a == axis else d for a, d in enumerate(x.dims))
    indices = draft.weight(draft.shared.arrays.integers(0, int(x.dims[axis]), shape))
    updates = draft.floats(shape, "float32") if x.dtype == "float32" else draft.weight(np.ones(shape, np.int64))
    attrs = {"reduction": "add"} if draft.opset >= 16 and draft.chance(0.4) else {}
    draft.add("ScatterElements", [x, indices, updates], replace(x, bound=x.bound + 2), axis=axis, **attrs)


def add_concat(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: v.rank >= 1)
    axis = draft.rng.randrange(x.rank)

    def fits(other: Value) -> bool:
        rest = [a == b for i, (a, b) in enumerate(zip(x.dims, other.dims, strict=False)) if i != axis]
        return other.rank == x.rank and all(rest)

    parts = [x, *(draft.pick(x.dtype, fits=fits) for _ in range(draft.rng.randint(1, 2)))]
    sizes = [part.dims[axis] for part in parts]
    size: Any = sum(sizes) if all(isinstance(s, int) for s in sizes) else draft.symbol()
    given = axis - x.rank if draft.opset >= 11 and draft.chance(0.3) else axis
    dims = (*x.dims[:axis], size, *x.dims[axis + 1 :])
    like = Value("", x.dtype, dims, max(p.bound for p in parts), common_grid(*parts))
    draft.add("Concat", parts, like, axis=given)


def add_split(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", "int32", fits=lambda v: any(isinstance(d, int) and d >= 2 for d in v.dims))
    axis = draft.rng.choice([a for a, d in enumerate(x.dims) if isinstance(d, int) and d >= 2])
    size = int(x.dims[axis])
    first = draft.rng.randint(0 if draft.opset >= 13 and draft.chance(0.1) else 1, size - 1)
    parts = [first, size - first]
    extra: list[Value] = []
    attrs: dict[str, Any] = {"axis": axis}
    if size % 2 == 0 and draft.chance(0.4):
        parts = [size // 2] * 2
        attrs |= {"num_outputs": 2} if draft.opset >= 18 else {}
    elif draft.opset >= 13:
        extra = [draft.ints(*parts)]
    else:
        attrs["split"] = parts
    for name, part in zip(draft.emit("Split", [x, *extra], 2, **attrs), parts, strict=True):
        draft.keep(replace(x, name=name, dims=(*x.dims[:axis], part, *x.dims[axis + 1 :])))


def add_expand(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: v.rank <= 3)
    if x.is_static or draft.chance(0.5):
        lead = draft.rng.choice([(), (2,), (3,)])
        target = [*lead, *(draft.rng.choice([2, 3, 1]) if d == 1 else (d if isinstance(d, int) else 1) for d in x.dims)]
        dims = (*lead, *(t if d == 1 else d for t, d in zip(target[len(lead) :], x.dims, strict=True)))
        draft.add("Expand", [x, draft.ints(*target)], replace(x, dims=dims))
        return
    other = draft.pick(
        fits=lambda v: v.rank == x.rank and all(a in (b, 1) for a, b in zip(x.dims, v.dims, strict=True))
    )
    shape = draft.add("Shape", [other], Value("", "int64", (other.rank,), 100, 0))
    draft.add("Expand", [x, shape], replace(x, dims=other.dims))


def add_tile(draft: Draft) -> None:
    x = draft.pick(fits=lambda v: 1 <= v.rank <= 4)
    counts = [draft.rng.choice([1, 1, 2, 3]) for _ in x.dims]
    dims = tuple(
        d * c if isinstance(d, int) else (d if c == 1 else draft.symbol()) for d, c in zip(x.dims, counts, strict=True)
    )
    draft.add("Tile", [x, draft.ints(*counts)], replace(x, dims=dims))


def add_pad(draft: Draft) -> None:
    x = draft.pick(*FLOATS, *(["int64", "int32"] if draft.opset >= 13 else []), fits=lambda v: v.rank >= 1)
    mode = draft.rng.choice(["constant", "constant", "edge", "reflect"])
    large = all(isinstance(d, int) and d >= 3 for d in x.dims)
    if mode != "constant" and not large:
        mode = "constant"
    pads = [draft.rng.choice([0, 0, 1, 2]) for _ in range(2 * x.rank)]
    dims = tuple(
        d + a + b if isinstance(d, int) else (d if a + b == 0 else draft.symbol())
        for d, a, b in zip(x.dims, pads[: x.rank], pads[x.rank :], strict=True)
    )
    named = None if mode == "constant" else mode
    if draft.opset < 11:
        draft.add("Pad", [x], replace(x, dims=dims), pads=pads, mode=named, value=0.5 if named is None else None)
        return
    fill = [draft.scalar(1, x.dtype)] if named is None and draft.chance(0.5) else []
    draft.add("Pad", [x, draft.ints(*pads), *fill], replace(x, dims=dims, bound=max(x.bound, 1)), mode=named)


def add_shape(draft: Draft) -> None:
    x = draft.pick()
    if draft.chance(0.3):
        draft.add("Size", [x], Value("", "int64", (), 1e4, 0))
        return
    attrs = {"start": 1} if draft.opset >= 15 and x.rank > 1 and draft.chance(0.3) else {}
    draft.add("Shape", [x], Value("", "int64", (x.rank - len(attrs),), 100, 0), **attrs)


def add_fill(draft: Draft) -> None:
    """A constant in the shape of something else."""
    from onnx import numpy_helper

    x = draft.pick(fits=lambda v: v.rank >= 1)
    shape = draft.add("Shape", [x], Value("", "int64", (x.rank,), 100, 0))
    dtype = draft.rng.choice(["float32", "int64", draft.shared.float_type])
    tensor = numpy_helper.from_array(np.asarray([1.5 if dtype in FLOATS else 2], dtype))
    draft.add("ConstantOfShape", [shape], Value("", dtype, x.dims, 2.0, 1), value=tensor)


def add_range(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick(fits=lambda v: v.rank >= 1)
    axis = draft.rng.randrange(x.rank)
    shape = draft.add("Shape", [x], Value("", "int64", (x.rank,), 100, 0))
    size = draft.add("Gather", [shape, draft.scalar(axis, "int64")], replace(shape, dims=()))
    draft.add(
        "Range", [draft.scalar(0, "int64"), size, draft.scalar(1, "int64")], Value("", "int64", (x.dims[axis],), 100, 0)
    )


def add_top_k(draft: Draft) -> None:
    x = draft.pick(
        "float32", "int64", exact=True, fits=lambda v: v.rank >= 1 and isinstance(v.dims[-1], int) and v.dims[-1]
    )
    if x.dtype == "int64" and draft.opset < 11:
        raise NoFit
    count = draft.rng.randint(1, int(x.dims[-1]))
    attrs = {"largest": draft.rng.randint(0, 1)} if draft.opset >= 11 else {}
    if draft.opset < 10:
        values, places = draft.emit("TopK", [x], 2, axis=-1, k=count)
    else:
        values, places = draft.emit("TopK", [x, draft.ints(count)], 2, axis=-1, **attrs)
    draft.keep(replace(x, name=values, dims=(*x.dims[:-1], count)))
    draft.keep(Value(places, "int64", (*x.dims[:-1], count), 8, 0))


def add_one_hot(draft: Draft) -> None:
    x = draft.pick("int64", fits=lambda v: 1 <= v.rank <= 3)
    values = draft.weight(np.asarray([0.0, 1.0], np.float32))
    axis = draft.rng.choice([-1, 0]) if draft.opset >= 11 else -1
    dims = (*x.dims, 5) if axis == -1 else (5, *x.dims)
    draft.add("OneHot", [x, draft.scalar(5, "int64"), values], Value("", "float32", dims, 1.0, 0), axis=axis)


def add_triangle(draft: Draft) -> None:
    if draft.opset < 14:
        raise NoFit
    x = draft.pick("float32", "int64", fits=lambda v: v.rank >= 2)
    extra = [draft.scalar(draft.rng.randint(-2, 2), "int64")] if draft.chance(0.5) else []
    draft.add("Trilu", [x, *extra], x, upper=draft.rng.randint(0, 1))


def add_arithmetic(draft: Draft) -> None:
    """Something whose sizes are computed by whatever there is of integers, made small and positive."""
    x = draft.pick("int64", fits=lambda v: v.rank == 1 and isinstance(v.dims[0], int) and 1 <= v.dims[0] <= 4)
    like = replace(x, bound=6)
    if draft.opset >= 12 and draft.chance(0.5):
        x = draft.add("Min", [x, draft.scalar(draft.rng.randint(3, 6), "int64")], like)
        x = draft.add("Max", [x, draft.scalar(1, "int64")] if draft.chance(0.5) else [draft.ints(2), x], like)
    elif draft.opset >= 10:
        x = draft.add("Mod", [x, draft.scalar(4, "int64")], like)
        x = draft.add("Add", [draft.add("Abs", [x], like), draft.ints(1)], like)
    else:
        raise NoFit
    dims = tuple(draft.symbol() for _ in range(int(x.dims[0])))
    y = draft.add("ConstantOfShape", [x], Value("", "float32", dims, 0.0, 0))
    draft.add("Neg", [y], y)


def add_sized(draft: Draft) -> None:
    """Something whose shape is made of the contents of an input."""
    sizes = draft.pick("int64", "int32", fits=lambda v: v.is_size)
    count = 1 if not sizes.rank else int(sizes.dims[0])
    wide = sizes if sizes.dtype == "int64" else draft.add("Cast", [sizes], replace(sizes, dtype="int64"), to=7)
    vector = wide if sizes.rank else draft.add("Reshape", [wide, draft.ints(1)], replace(wide, dims=(1,)))
    dims = tuple(draft.symbol() for _ in range(count))
    kind = draft.rng.choice(["fill", "expand", "tile", "range", "slice", "pad", "reshape", "top"])
    if kind == "fill":
        draft.add("ConstantOfShape", [vector], Value("", "float32", dims, 0.0, 0))
    elif kind == "expand":
        draft.add("Expand", [draft.floats((), "float32"), vector], Value("", "float32", dims, 1.0, 3))
    elif kind == "tile":
        x = draft.pick("float32", "int64", fits=lambda v: v.rank == count)
        draft.add("Tile", [x, vector], replace(x, dims=dims))
    elif kind == "range" and count == 1 and draft.opset >= 11:
        end = wide if not sizes.rank else draft.add("Squeeze", *_squeezed(draft, vector))
        draft.add("Range", [draft.scalar(0, "int64"), end, draft.scalar(1, "int64")], Value("", "int64", dims, 4, 0))
    elif kind == "slice" and draft.opset >= 10:
        x = draft.pick("float32", "int64", fits=lambda v: v.rank == count)
        draft.add("Slice", [x, draft.ints(*[0] * count), vector], replace(x, dims=dims))
    elif kind == "pad" and draft.opset >= 11:
        x = draft.pick("float32", fits=lambda v: v.rank == count)
        pads = draft.add("Concat", [vector, draft.ints(*[1] * count)], replace(vector, dims=(2 * count,)), axis=0)
        draft.add("Pad", [x, pads], replace(x, dims=dims))
    elif kind == "reshape" and count == 1:
        x = draft.pick("float32", "int64", fits=lambda v: v.is_static and v.rank >= 1 and product(v.dims) % 12 == 0)
        if not product(x.dims):
            raise NoFit
        target = draft.add("Concat", [vector, draft.ints(-1)], replace(vector, dims=(2,)), axis=0)
        draft.add("Reshape", [x, target], replace(x, dims=(dims[0], draft.symbol())))
    elif kind == "top" and count == 1 and draft.opset >= 11:
        x = draft.pick(
            "float32", exact=True, fits=lambda v: v.rank >= 1 and isinstance(v.dims[-1], int) and v.dims[-1] >= 4
        )
        names = draft.emit("TopK", [x, vector], 2, axis=-1)
        draft.keep(replace(x, name=names[0], dims=(*x.dims[:-1], dims[0])))


def _squeezed(draft: Draft, x: Value) -> tuple[list[Any], Value]:
    if draft.opset < 13:
        raise NoFit
    return [x, draft.ints(0)], replace(x, dims=())


# shapes that the data decide


def add_nonzero(draft: Draft) -> None:
    x = draft.pick("float32", "bool", "int64", exact=True, fits=lambda v: v.rank >= 1)
    count = draft.symbol()
    found = draft.add("NonZero", [x], Value("", "int64", (x.rank, count), 8, 0))
    if draft.chance(0.5) and draft.opset >= 11:
        places = draft.add("Transpose", [found], replace(found, dims=(count, x.rank)), perm=[1, 0])
        draft.add("GatherND", [x, places], replace(x, dims=(count,)))


def add_compress(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", "int32", fits=lambda v: v.rank >= 1)
    mask = draft.pick("bool", fits=lambda v: v.rank == 1)
    axis = next((a for a, d in enumerate(x.dims) if d == mask.dims[0]), None)
    if axis is None:
        raise NoFit
    draft.add("Compress", [x, mask], replace(x, dims=(*x.dims[:axis], draft.symbol(), *x.dims[axis + 1 :])), axis=axis)


def add_unique(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", "int64", exact=True, fits=lambda v: v.rank >= 1)
    names = draft.emit("Unique", [x], draft.rng.choice([1, 2, 4]), sorted=draft.rng.randint(0, 1))
    count = draft.symbol()
    draft.keep(replace(x, name=names[0], dims=(count,)))
    for name, size in zip(names[1:], (count, draft.symbol(), count), strict=False):
        draft.keep(Value(name, "int64", (size,), 100, 0))


def add_nms(draft: Draft) -> None:
    if draft.opset < 10:
        raise NoFit
    count = 6
    corners = draft.shared.arrays.random((1, count, 2)).astype(np.float32) * 4
    boxes = draft.weight(np.concatenate([corners, corners + 2], axis=2))
    scores = draft.pick("float32", exact=True, fits=lambda v: v.is_static and v.dims and product(v.dims) == count)
    scores = draft.add("Reshape", [scores, draft.ints(1, 1, count)], replace(scores, dims=(1, 1, count)))
    limits = [draft.scalar(3, "int64"), draft.scalar(0.3, "float32"), draft.scalar(-3.0, "float32")]
    draft.add("NonMaxSuppression", [boxes, scores, *limits], Value("", "int64", (draft.symbol(), 3), 8, 0))


def add_identity(draft: Draft) -> None:
    x = draft.pick()
    draft.add("Identity", [x], x)


def add_reverse(draft: Draft) -> None:
    if draft.opset < 10:
        raise NoFit
    x = draft.pick(
        "float32",
        "int64",
        fits=lambda v: (
            v.rank >= 2 and isinstance(v.dims[1], int) and v.dims[1] and isinstance(v.dims[0], int) and v.dims[0]
        ),
    )
    lengths = draft.weight(draft.shared.arrays.integers(1, int(x.dims[0]) + 1, (int(x.dims[1]),)))
    draft.add("ReverseSequence", [x, lengths], x, time_axis=0, batch_axis=1)


SHAPE_MAKERS: dict[Maker, float] = {
    add_reshape: 5,
    add_computed_reshape: 2,
    add_heads: 1.5,
    add_transpose: 4,
    add_flatten: 1,
    add_squeeze: 2,
    add_unsqueeze: 2,
    add_slice: 3,
    add_gather: 3,
    add_computed_gather: 1,
    add_gather_elements: 1,
    add_scatter: 1,
    add_concat: 3,
    add_split: 2,
    add_expand: 2,
    add_tile: 1,
    add_pad: 2,
    add_shape: 2,
    add_fill: 1,
    add_range: 1,
    add_top_k: 1,
    add_one_hot: 0.7,
    add_triangle: 0.7,
    add_sized: 8,
    add_arithmetic: 3,
    add_nonzero: 1,
    add_compress: 1,
    add_unique: 0.8,
    add_nms: 0.5,
    add_identity: 1,
    add_reverse: 0.4,
}
