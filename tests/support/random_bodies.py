"""Makers of random control flow and sequences: bodies that read values from outside, and lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.random_models import FLOATS, Draft, NoFit, Value, may_be_empty

__all__ = ["BODY_MAKERS"]

Maker = Callable[[Draft], Any]


def _grow(body: Draft, count: int) -> None:
    from tests.support.random_nodes import grow

    grow(body, count)


def _info(value: Value, *, shaped: bool = True) -> onnx.ValueInfoProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    dims = [dim if isinstance(dim, int) else None for dim in value.dims]
    return helper.make_tensor_value_info(value.name, number, dims if shaped else None)


def _graph(body: Draft, outputs: Sequence[Value], inputs: Sequence[Value] = ()) -> onnx.GraphProto:
    return helper.make_graph(
        body.nodes, body.fresh("body"), [_info(v) for v in inputs], [_info(v) for v in outputs], body.weights
    )


def _result(body: Draft, like: Value) -> Value:
    """Something of the body's own with a type and a rank."""
    own = [
        v
        for v in body.values
        if v.dtype == like.dtype and v.rank == like.rank and v.bound <= 1000 and not _is_input(body, v)
    ]
    if own and body.chance(0.8):
        return own[-1]
    return body.add("Identity", [like], like)


def _is_input(body: Draft, value: Value) -> bool:
    return any(value.name == other.name for other in body.inputs)


def _merge(draft: Draft, left: Value, right: Value) -> Value:
    dims = tuple(a if a == b else draft.symbol() for a, b in zip(left.dims, right.dims, strict=True))
    grid = None if left.grid is None or right.grid is None else max(left.grid, right.grid)
    return Value("", left.dtype, dims, max(left.bound, right.bound), grid)


def _condition(draft: Draft) -> Value:
    """A boolean of one element that depends on the inputs."""
    x = draft.pick("float32", "int64", "int32", exact=True, bound=1000, fits=lambda v: not may_be_empty(v))
    total = x
    if x.rank:
        total = draft.add("ReduceSum", [x], replace(x, dims=(), bound=x.bound * 100), keepdims=0)
    return draft.add("Greater", [total, draft.scalar(0, x.dtype)], Value("", "bool", (), 1.0, 0))


def add_if(draft: Draft) -> None:
    condition = draft.scalar(draft.chance(0.5), "bool") if draft.chance(0.1) else _condition(draft)
    bases = [draft.pick(*FLOATS, "int64", bound=1000) for _ in range(draft.rng.randint(1, 2))]
    sides = []
    for _ in range(2):
        body = draft.body()
        if draft.chance(0.85):
            _grow(body, draft.rng.randint(1, 4))
        results = [_result(body, base) for base in bases]
        if len({result.name for result in results}) < len(results):
            results[-1] = body.add("Identity", [results[-1]], results[-1])
        sides.append((body, results))
        draft.read.update(body.read)
    merged = [_merge(draft, left, right) for left, right in zip(sides[0][1], sides[1][1], strict=True)]
    graphs = [
        _graph(body, [replace(like, name=value.name) for like, value in zip(merged, results, strict=True)])
        for body, results in sides
    ]
    names = draft.emit("If", [condition], len(bases), then_branch=graphs[0], else_branch=graphs[1])
    for name, like in zip(names, merged, strict=True):
        draft.keep(replace(like, name=name))


def _trip(draft: Draft) -> Value:
    """How often a loop runs: a constant, or a size."""
    if draft.chance(0.6):
        return draft.scalar(draft.rng.choice([0, 1, 2, 3]), "int64")
    x = draft.pick(fits=lambda v: v.rank >= 1)
    shape = draft.add("Shape", [x], Value("", "int64", (x.rank,), 100, 0))
    return draft.add("Gather", [shape, draft.scalar(0, "int64")], replace(shape, dims=()))


def add_loop(draft: Draft) -> None:
    trip = _trip(draft)
    states = [draft.pick(*FLOATS, "int64", bound=100) for _ in range(draft.rng.randint(1, 2))]
    body = draft.body()
    count = Value(body.fresh("i"), "int64", (), 8, 0)
    going = Value(body.fresh("go"), "bool", (), 1, 0)
    grows = draft.chance(0.3) and states[0].rank >= 1 and 0 not in states[0].dims
    inner = [replace(s, name=body.fresh("s"), bound=100.0, grid=None if s.dtype in FLOATS else 0) for s in states]
    if grows:
        inner[0] = replace(inner[0], dims=(body.symbol(), *inner[0].dims[1:]))
    body.inputs += [count, going, *inner]
    for value in body.inputs:
        body.keep(value)
    _grow(body, draft.rng.randint(1, 4))
    after = [_step(body, value) for value in inner]
    if grows:
        after[0] = body.add("Concat", [after[0], states[0]], inner[0], axis=0)
    scanned = [value for value in body.values if not _is_input(body, value) and not _is_loose(draft, body, value)][-1:]
    scanned = scanned if draft.chance(0.5) else []
    if scanned and scanned[0].name in {v.name for v in after}:
        scanned = []
    if draft.chance(0.4):
        limit = body.scalar(draft.rng.randint(0, 2), "int64")
        going_on = body.add("Less", [count, limit], going)
    else:
        going_on = body.add("Identity", [going], going)
    draft.read.update(body.read)
    graph = _graph(body, [going_on, *after, *scanned], body.inputs)
    start: list[Any] = [trip, draft.rng.choice(["", draft.scalar(True, "bool")]), *states]
    names = draft.emit("Loop", start, len(states) + len(scanned), body=graph)
    for name, value, state in zip(names, after, states, strict=False):
        dims = (draft.symbol(), *state.dims[1:]) if grows and value is after[0] else state.dims
        draft.keep(
            replace(
                state, name=name, dims=dims, bound=max(100.0, value.bound), grid=None if state.dtype in FLOATS else 0
            )
        )
    for name, value in zip(names[len(states) :], scanned, strict=True):
        draft.keep(replace(value, name=name, dims=(draft.symbol(), *value.dims)))


def _is_loose(draft: Draft, body: Draft, value: Value) -> bool:
    """Whether a dimension is one that changes from round to round, so that parts could not be joined."""
    known = {dim for outer in draft.visible for dim in outer.dims}
    return any(isinstance(dim, str) and dim not in known for dim in value.dims)


def _step(body: Draft, state: Value) -> Value:
    """The next value of what a loop carries, bounded and of the same dimensions."""
    if state.dtype not in FLOATS:
        return body.add(body.rng.choice(["Add", "Sub"]), [state, body.scalar(1, state.dtype)], state)
    other = body.floats([1] * state.rank, state.dtype)
    moved = body.add("Add", [state, other], replace(state, grid=None))
    return body.add(body.rng.choice(["Tanh", "Sin", "Abs"]), [moved], replace(state, grid=None))


def add_scan(draft: Draft) -> None:
    x = draft.pick("float32", bound=100, fits=lambda v: v.rank >= 2 and not may_be_empty(v))
    axis = draft.rng.randrange(x.rank) if draft.chance(0.4) else 0
    rest = (*x.dims[:axis], *x.dims[axis + 1 :])
    if not all(isinstance(dim, int) for dim in rest):
        raise NoFit
    start = draft.floats([int(dim) for dim in rest], "float32")
    body = draft.body()
    state = Value(body.fresh("s"), "float32", rest, 100.0)
    part = Value(body.fresh("p"), "float32", rest, x.bound)
    body.inputs += [state, part]
    for value in body.inputs:
        body.keep(value)
    _grow(body, draft.rng.randint(0, 3))
    total = body.add("Add", [state, part], replace(state, bound=200.0))
    after = body.add(draft.rng.choice(["Tanh", "Sigmoid"]), [total], replace(state, bound=1.0))
    out = body.add("Mul", [after, part], replace(state, bound=x.bound))
    draft.read.update(body.read)
    attrs: dict[str, Any] = {"num_scan_inputs": 1, "body": _graph(body, [after, out], body.inputs)}
    attrs |= {"scan_input_axes": [axis]} if axis else {}
    attrs |= {"scan_input_directions": [1]} if draft.chance(0.3) else {}
    attrs |= {"scan_output_directions": [1]} if draft.chance(0.3) else {}
    names = draft.emit("Scan", [start, x], 2, **attrs)
    draft.keep(Value(names[0], "float32", rest, 1.0))
    draft.keep(Value(names[1], "float32", (x.dims[axis], *rest), x.bound))


# sequences


def _keep_sequence(draft: Draft, name: str, dtype: str, dims: tuple[Any, ...], bound: float, grid: int | None) -> Value:
    value = Value(name, dtype, dims, bound, grid)
    draft.sequences.append(value)
    return value


def add_sequence(draft: Draft) -> None:
    """Made of values of one type and rank, and joined again or looked up."""
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", "int64", fits=lambda v: v.rank >= 1)
    parts = [x, *(draft.pick(x.dtype, fits=lambda v: v.dims == x.dims) for _ in range(draft.rng.randint(0, 2)))]
    bound = max(part.bound for part in parts)
    grid = None if any(part.grid is None for part in parts) else max(part.grid or 0 for part in parts)
    (name,) = draft.emit("SequenceConstruct", parts)
    sequence = _keep_sequence(draft, name, x.dtype, x.dims, bound, grid)
    length = len(parts)
    if draft.chance(0.5):
        (name,) = draft.emit(
            "SequenceInsert", [sequence, x, *([draft.scalar(0, "int64")] if draft.chance(0.5) else [])]
        )
        sequence, length = _keep_sequence(draft, name, x.dtype, x.dims, bound, grid), length + 1
    if length > 1 and draft.chance(0.3):
        (name,) = draft.emit("SequenceErase", [sequence, *([draft.scalar(-1, "int64")] if draft.chance(0.5) else [])])
        sequence, length = _keep_sequence(draft, name, x.dtype, x.dims, bound, grid), length - 1
    _use_sequence(draft, sequence, length)


def _use_sequence(draft: Draft, sequence: Value, length: int) -> None:
    like = replace(sequence, name="")
    kind = draft.rng.choice(["at", "join", "stack", "length"])
    if kind == "at":
        draft.add("SequenceAt", [sequence, draft.scalar(draft.rng.randrange(-length, length), "int64")], like)
    elif kind == "stack":
        draft.add("ConcatFromSequence", [sequence], replace(like, dims=(length, *like.dims)), axis=0, new_axis=1)
    elif kind == "join":
        size: Any = length * like.dims[0] if isinstance(like.dims[0], int) else draft.symbol()
        draft.add("ConcatFromSequence", [sequence], replace(like, dims=(size, *like.dims[1:])), axis=0)
    else:
        draft.add("SequenceLength", [sequence], Value("", "int64", (), 8, 0))


def add_split_sequence(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", "int64", fits=lambda v: v.rank >= 1 and isinstance(v.dims[0], int) and v.dims[0] > 1)
    keep = draft.rng.randint(0, 1)
    (name,) = draft.emit("SplitToSequence", [x], axis=0, keepdims=keep)
    dims = (1, *x.dims[1:]) if keep else x.dims[1:]
    if not dims:
        raise NoFit
    _use_sequence(draft, _keep_sequence(draft, name, x.dtype, dims, x.bound, x.grid), int(x.dims[0]))


def add_sequence_loop(draft: Draft) -> None:
    """A loop that collects what it makes in a sequence."""
    if draft.opset < 13:
        raise NoFit
    x = draft.pick("float32", bound=100)
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    kind = helper.make_sequence_type_proto(tensor)
    body = draft.body()
    count, going = Value(body.fresh("i"), "int64", (), 8, 0), Value(body.fresh("go"), "bool", (), 1, 0)
    held, (going_on,) = body.fresh("q"), body.emit("Identity", [going])
    index = body.add("Cast", [count], replace(count, dtype="float32"), to=onnx.TensorProto.FLOAT)
    part = body.add("Add", [x, index], replace(x, bound=x.bound + 8))
    (longer,) = body.emit("SequenceInsert", [held, part])
    draft.read.update(body.read)
    inputs = [_info(count), _info(going), helper.make_value_info(held, kind)]
    outputs = [_info(replace(going, name=going_on)), helper.make_value_info(longer, kind)]
    graph = helper.make_graph(body.nodes, body.fresh("body"), inputs, outputs, body.weights)
    (empty,) = draft.emit("SequenceEmpty", [])
    (name,) = draft.emit("Loop", [draft.scalar(3, "int64"), "", empty], body=graph)
    sequence = _keep_sequence(draft, name, "float32", x.dims, x.bound + 8, x.grid)
    if x.rank:
        _use_sequence(draft, sequence, 3)


BODY_MAKERS: dict[Maker, float] = {
    add_if: 2,
    add_loop: 2,
    add_scan: 1.2,
    add_sequence: 1,
    add_split_sequence: 0.6,
    add_sequence_loop: 0.5,
}
