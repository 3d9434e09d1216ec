"""Makers of random nodes: elementwise, broadcasting, reductions, products; and the list of all makers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from tests.support.random_models import (
    FLOATS,
    INTS,
    PLUGIN_DOMAIN,
    PLUGIN_OP,
    Draft,
    NoFit,
    Value,
    broadcast,
    common_grid,
    may_be_empty,
)

__all__ = ["axes_arguments", "grow"]

Maker = Callable[[Draft], Any]


def grow(draft: Draft, count: int) -> None:
    """Add nodes until there are so many, or nothing fits any more."""
    from tests.support.random_blocks import BLOCK_MAKERS
    from tests.support.random_bodies import BODY_MAKERS
    from tests.support.random_images import IMAGE_MAKERS
    from tests.support.random_shapes import SHAPE_MAKERS

    table = {**NODE_MAKERS, **SHAPE_MAKERS, **IMAGE_MAKERS, **BLOCK_MAKERS, **(BODY_MAKERS if draft.depth < 2 else {})}
    makers, weights = list(table), list(table.values())
    for _ in range(count * 20):
        if len(draft.nodes) >= count:
            return
        try:
            draft.rng.choices(makers, weights)[0](draft)
        except NoFit:
            continue


# elementwise

_SMOOTH = {
    "Sigmoid": 1.0,
    "Tanh": 1.0,
    "Softsign": 1.0,
    "Sin": 1.0,
    "Cos": 1.0,
    "HardSigmoid": 1.0,
    "Erf": 1.0,
}
_LIKE_RELU = {
    "Softplus": 1,
    "Elu": 1,
    "Selu": 1,
    "LeakyRelu": 1,
    "Celu": 12,
    "HardSwish": 14,
    "Mish": 18,
    "Gelu": 20,
    "Swish": 24,
    "ThresholdedRelu": 10,
}


def add_smooth(draft: Draft) -> None:
    x = draft.pick_float()
    op = draft.rng.choice(list(_SMOOTH))
    draft.add(op, [x], replace(x, bound=1.0, grid=None))


def add_like_relu(draft: Draft) -> None:
    x = draft.pick_float(bound=1000)
    op = draft.rng.choice([op for op, since in _LIKE_RELU.items() if draft.opset >= since])
    if (op == "ThresholdedRelu" and not x.is_exact) or (op == "Celu" and x.dtype != "float32"):
        raise NoFit
    draft.add(op, [x], replace(x, bound=2 * x.bound, grid=x.grid if op == "ThresholdedRelu" else None))


def add_exact_unary(draft: Draft) -> None:
    x = draft.pick_float()
    op = draft.rng.choice(["Relu", "Abs", "Neg", "Identity", "Relu"])
    draft.add(op, [x], x)


def add_rounding(draft: Draft) -> None:
    x = draft.pick_float(exact=True)
    op = draft.rng.choice(["Floor", "Ceil", "Sign", *(["Round"] if draft.opset >= 11 else [])])
    draft.add(op, [x], replace(x, grid=0, bound=x.bound + 1))


def add_careful_unary(draft: Draft) -> None:
    """Functions that need small or positive arguments."""
    x = draft.pick_float(bound=4.0)
    op = draft.rng.choice(["Exp", "Sqrt", "Log", "Reciprocal"])
    if op != "Exp":
        y = draft.add("Abs", [x], x)
        x = draft.add("Add", [y, draft.scalar(1.0, x.dtype)], replace(y, bound=y.bound + 1))
    draft.add(op, [x], replace(x, bound=60.0 if op == "Exp" else 3.0, grid=None))


def add_int_unary(draft: Draft) -> None:
    x = draft.pick("int64", "int32", "int8")
    op = draft.rng.choice(["Abs", "Neg", "Sign", *(["BitwiseNot"] if draft.opset >= 18 else [])])
    draft.add(op, [x], replace(x, bound=x.bound + 1))


def add_not(draft: Draft) -> None:
    x = draft.pick("bool")
    draft.add("Not", [x], x)


def add_is_nan(draft: Draft) -> None:
    x = draft.pick_float()
    if x.dtype == "float16" and draft.opset < 13:
        raise NoFit
    draft.add("IsNaN", [x], replace(x, dtype="bool"))


def _second(draft: Draft, x: Value, *, exact: bool = False, bound: float = 1e4) -> Value:
    """Something that broadcasts with ``x``: another value, or a weight."""
    if draft.chance(0.45):
        try:
            return draft.pick(x.dtype, fits=lambda v: broadcast(v.dims, x.dims) is not None, exact=exact, bound=bound)
        except NoFit:
            pass
    rank = draft.rng.randint(0, x.rank)
    shape = [d if isinstance(d, int) and draft.chance(0.7) else 1 for d in x.dims[x.rank - rank :]]
    if x.dtype in FLOATS:
        return draft.floats(shape, x.dtype, spread=2)
    if x.dtype == "bool":
        return draft.weight(draft.shared.arrays.random(shape) < 0.5)
    return draft.weight(draft.shared.arrays.integers(1, 5, shape).astype(x.dtype))


def _pair(draft: Draft, x: Value, y: Value) -> tuple[list[Value], Any]:
    dims = broadcast(x.dims, y.dims)
    if dims is None:
        raise NoFit
    return ([y, x] if draft.chance(0.3) else [x, y]), dims


def add_sum(draft: Draft) -> None:
    x = draft.pick_float()
    y = _second(draft, x)
    pair, dims = _pair(draft, x, y)
    op = draft.rng.choice(["Add", "Add", "Sub", "Max", "Min", "Sum", "Mean"])
    grid = common_grid(x, y)
    if op == "Mean":
        grid = None if grid is None else grid + 1
    draft.add(op, pair, Value("", x.dtype, dims, x.bound + y.bound, grid))


def add_product(draft: Draft) -> None:
    x = draft.pick_float(bound=100)
    y = _second(draft, x, bound=100)
    pair, dims = _pair(draft, x, y)
    grid = None if x.grid is None or y.grid is None else x.grid + y.grid
    draft.add("Mul", pair, Value("", x.dtype, dims, x.bound * y.bound, grid))


def add_scale(draft: Draft) -> None:
    """Large values made small again, on the grid."""
    x = draft.pick_float(fits=lambda v: v.bound > 8)
    grid = None if x.grid is None else x.grid + 4
    draft.add("Mul", [x, draft.scalar(1 / 16, x.dtype)], replace(x, bound=x.bound / 16, grid=grid))


def add_quotient(draft: Draft) -> None:
    x, y = draft.pick_float(bound=100), draft.pick_float(bound=50)
    if x.dtype != y.dtype or broadcast(x.dims, y.dims) is None:
        raise NoFit
    below = draft.add("Add", [draft.add("Abs", [y], y), draft.scalar(0.5, y.dtype)], replace(y, bound=y.bound + 1))
    draft.add("Div", [x, below], Value("", x.dtype, broadcast(x.dims, y.dims) or (), x.bound * 2, None))


def add_power(draft: Draft) -> None:
    x = draft.pick_float(bound=20)
    exponent = draft.rng.choice([2.0, 3.0, 2.0])
    grid = None if x.grid is None or exponent != 2.0 else 2 * x.grid
    draft.add("Pow", [x, draft.scalar(exponent, x.dtype)], replace(x, bound=x.bound**exponent, grid=grid))


def add_int_pair(draft: Draft) -> None:
    x = draft.pick("int64", "int32", *(["uint8", "int8"] if draft.opset >= 14 else []), bound=1000)
    y = _second(draft, x, bound=1000)
    pair, dims = _pair(draft, x, y)
    ops = ["Add", "Sub", "Mul", *(["Max", "Min"] if draft.opset >= 12 else [])]
    op = draft.rng.choice(ops + (["BitwiseAnd", "BitwiseOr", "BitwiseXor"] if draft.opset >= 18 else []))
    bound = x.bound * y.bound if op == "Mul" else 2 * (x.bound + y.bound) + 4
    draft.add(op, pair, Value("", x.dtype, dims, bound, 0))


def add_int_division(draft: Draft) -> None:
    x = draft.pick("int64", "int32")
    op = draft.rng.choice(["Div", *(["Mod"] if draft.opset >= 10 else [])])
    draft.add(op, [x, draft.scalar(draft.rng.randint(2, 4), x.dtype)], x)


def add_comparison(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", "int32", exact=True)
    y = _second(draft, x, exact=True)
    pair, dims = _pair(draft, x, y)
    ops = ["Greater", "Less", *(["Equal"] if draft.opset >= 11 or x.dtype not in FLOATS else [])]
    op = draft.rng.choice(ops + (["GreaterOrEqual", "LessOrEqual"] if draft.opset >= 12 else []))
    draft.add(op, pair, Value("", "bool", dims, 1.0, 0))


def add_logic(draft: Draft) -> None:
    x = draft.pick("bool")
    pair, dims = _pair(draft, x, _second(draft, x))
    draft.add(draft.rng.choice(["And", "Or", "Xor"]), pair, Value("", "bool", dims, 1.0, 0))


def add_where(draft: Draft) -> None:
    x = draft.pick(*FLOATS, "int64", "int32", "uint8")
    y = _second(draft, x)
    dims = broadcast(x.dims, y.dims)
    condition = draft.pick("bool", fits=lambda v: dims is not None and broadcast(v.dims, dims) is not None)
    result = broadcast(condition.dims, dims or ())
    if dims is None or result is None:
        raise NoFit
    bound = max(x.bound, y.bound)
    draft.add("Where", [condition, x, y], Value("", x.dtype, result, bound, common_grid(x, y)))


def add_clip(draft: Draft) -> None:
    x = draft.pick_float() if draft.opset < 12 or draft.chance(0.7) else draft.pick("int64", "int32", "uint8", "int8")
    if x.dtype == "float16" and draft.opset < 11:
        raise NoFit
    is_float = x.dtype in FLOATS
    low, high = (-1.5, 2.5) if is_float else (1, 3)
    like = replace(x, bound=min(x.bound, 4.0))
    if draft.opset < 11:
        draft.add("Clip", [x], like, min=float(low), max=float(high))
        return
    kind = draft.rng.randint(0, 2)
    bounds: list[Any] = [
        draft.scalar(low, x.dtype) if kind != 1 else "",
        draft.scalar(high, x.dtype) if kind != 2 else "",
    ]
    draft.add("Clip", [x, *bounds], like if not kind else replace(x, bound=x.bound + 4))


def add_cast(draft: Draft) -> None:
    x = draft.pick(*FLOATS, *INTS, "bool", exact=True, bound=120)
    choices = [draft.shared.float_type, "float32", "float16", "int64", "int32", "int8", "bool", "uint8"]
    target = draft.rng.choices(choices, (6, 2, 1, 2, 2, 1, 1, 0.5))[0]
    if target == x.dtype or (target in ("uint8", "int8") and x.dtype in FLOATS):
        raise NoFit
    grid = x.grid if target in FLOATS else 0
    like = Value("", target, x.dims, x.bound + 1, 0 if grid is None and x.dtype not in FLOATS else grid)
    if draft.opset >= 15 and draft.chance(0.2):
        draft.add("CastLike", [x, draft.scalar(0, target)], like)
    else:
        draft.add("Cast", [x], like, to=int(np_to_onnx(target)))


def np_to_onnx(name: str) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(name))


# reductions


def axes_arguments(draft: Draft, axes: list[int] | None, since: int) -> tuple[list[Value], dict[str, Any]]:
    """Axes as an attribute before an opset, and as an input from it on."""
    if axes is None:
        return [], {}
    return ([draft.ints(*axes)], {}) if draft.opset >= since else ([], {"axes": axes})


_REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)


def _some_axes(draft: Draft, rank: int) -> list[int] | None:
    if rank == 0 or draft.chance(0.15):
        return None
    axes = sorted(draft.rng.sample(range(rank), draft.rng.randint(1, min(2, rank))))
    return [axis - rank if draft.chance(0.4) else axis for axis in axes]


def _reduced(value: Value, axes: list[int] | None, keep: bool) -> tuple[Any, ...]:
    gone = set(range(value.rank)) if axes is None else {axis % value.rank for axis in axes}
    return tuple(1 if axis in gone else dim for axis, dim in enumerate(value.dims) if keep or axis not in gone)


def add_reduction(draft: Draft) -> None:
    op = draft.rng.choice(_REDUCTIONS)
    bound = 10 if op in ("ReduceL2", "ReduceSumSquare", "ReduceLogSumExp") else 1000
    x = (
        draft.pick_float(bound=bound, fits=lambda v: v.rank > 0)
        if draft.chance(0.8)
        else draft.pick("int64", "int32", bound=50)
    )
    if x.dtype not in FLOATS and op not in ("ReduceSum", "ReduceMax", "ReduceMin"):
        raise NoFit
    if may_be_empty(x):
        raise NoFit  # ONNX Runtime gives reductions of nothing another shape than ONNX says
    axes, keep = _some_axes(draft, x.rank), draft.chance(0.6)
    extra, attrs = axes_arguments(draft, axes, 13 if op == "ReduceSum" else 18)
    exact = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
    growth = 1 if op in ("ReduceMax", "ReduceMin", "ReduceMean") else 64
    size = (x.bound**2 if op == "ReduceSumSquare" else x.bound) * growth
    like = Value("", x.dtype, _reduced(x, axes, keep), size, x.grid if exact else (None if x.dtype in FLOATS else 0))
    draft.add(op, [x, *extra], like, keepdims=None if keep and draft.chance(0.5) else int(keep), **attrs)


def add_arg_extreme(draft: Draft) -> None:
    x = draft.pick("float32", "int32", exact=True, fits=lambda v: v.rank > 0 and not may_be_empty(v))
    axis, keep = draft.rng.randrange(-x.rank, x.rank), draft.chance(0.5)
    last = {"select_last_index": 1} if draft.opset >= 12 and draft.chance(0.3) else {}
    like = Value("", "int64", _reduced(x, [axis], keep), 8, 0)
    draft.add(draft.rng.choice(["ArgMax", "ArgMin"]), [x], like, axis=axis, keepdims=int(keep), **last)


def add_softmax(draft: Draft) -> None:
    x = draft.pick_float(bound=100, fits=lambda v: v.rank > 0 and not may_be_empty(v))
    op = draft.rng.choice(["Softmax", "Softmax", "LogSoftmax"])
    default = draft.chance(0.2)
    axis = None if default else draft.rng.randrange(-x.rank if draft.opset >= 11 else 0, x.rank)
    if axis is None and draft.opset < 13 and x.rank < 2:
        raise NoFit
    draft.add(op, [x], replace(x, bound=1.0 if op == "Softmax" else x.bound + 5, grid=None), axis=axis)


def add_cumulative_sum(draft: Draft) -> None:
    if draft.opset < 11:
        raise NoFit
    x = draft.pick("float32", "int64", "int32", bound=50, fits=lambda v: v.rank > 0)
    axis = draft.scalar(draft.rng.randrange(-x.rank, x.rank), "int64")
    attrs = {"exclusive": draft.rng.randint(0, 1), "reverse": draft.rng.randint(0, 1)}
    draft.add("CumSum", [x, axis], replace(x, bound=x.bound * 8), **attrs)


# products


def _summed(x: Value, y: Value, count: Any) -> tuple[float, int | None]:
    times = count if isinstance(count, int) else 8
    grid = None if x.grid is None or y.grid is None else x.grid + y.grid
    return x.bound * y.bound * max(times, 1), grid


def add_matmul_weight(draft: Draft) -> None:
    x = draft.pick_float(bound=200, fits=lambda v: v.rank >= 1 and isinstance(v.dims[-1], int))
    width = draft.rng.choice([1, 2, 3, 4, 8])
    weight = draft.floats([int(x.dims[-1]), width], x.dtype)
    bound, grid = _summed(x, weight, x.dims[-1])
    y = draft.add("MatMul", [x, weight], Value("", x.dtype, (*x.dims[:-1], width), bound, grid))
    if draft.chance(0.5):
        bias = draft.floats([width], x.dtype)
        draft.add("Add", [y, bias] if draft.chance(0.7) else [bias, y], replace(y, bound=y.bound + 1))


def add_matmul(draft: Draft) -> None:
    x = draft.pick_float(bound=30, fits=lambda v: v.rank >= 1)
    y = draft.pick(x.dtype, bound=30, fits=lambda v: v.rank >= 1 and v.dims[max(v.rank - 2, 0)] == x.dims[-1])
    batch = broadcast(x.dims[:-2], y.dims[:-2])
    if batch is None or (y.rank == 1 and x.rank == 1):
        raise NoFit
    rows, columns = x.dims[-2:-1] if x.rank > 1 else (), y.dims[-1:] if y.rank > 1 else ()
    bound, grid = _summed(x, y, x.dims[-1])
    draft.add("MatMul", [x, y], Value("", x.dtype, (*batch, *rows, *columns), bound, grid))


def add_gemm(draft: Draft) -> None:
    trans_a, trans_b = draft.rng.randint(0, 1), draft.rng.randint(0, 1)
    x = draft.pick_float(bound=100, fits=lambda v: v.rank == 2 and isinstance(v.dims[0 if trans_a else 1], int))
    if may_be_empty(x):
        raise NoFit  # ONNX Runtime forgets beta when there is nothing to multiply
    depth, rows = int(x.dims[0 if trans_a else 1]), x.dims[1 if trans_a else 0]
    width = draft.rng.choice([1, 3, 4, 8])
    weight = draft.floats([width, depth] if trans_b else [depth, width], x.dtype)
    bound, grid = _summed(x, weight, depth)
    shape: list[Any] = draft.rng.choice(
        [[width], [1, width], [1], [], None, *([[rows, width]] if isinstance(rows, int) else [])]
    )
    bias = [draft.floats(shape, x.dtype)] if shape is not None else []
    if not bias and draft.opset < 11:
        raise NoFit
    scale = {"alpha": 0.5} if draft.chance(0.3) else {}
    scale |= {"beta": 2.0} if draft.chance(0.3) else {}
    like = Value("", x.dtype, (rows, width), bound + 2, None if grid is None else grid + 1)
    draft.add("Gemm", [x, weight, *bias], like, transA=trans_a or None, transB=trans_b or None, **scale)


def add_einsum(draft: Draft) -> None:
    if draft.opset < 12:
        raise NoFit
    x = draft.pick("float32", bound=30, fits=lambda v: v.rank == 3)
    if may_be_empty(x):
        raise NoFit  # ONNX Runtime ends the process
    y = draft.pick(
        "float32",
        bound=30,
        fits=lambda v: v.rank == 3 and not may_be_empty(v) and v.dims[0] == x.dims[0] and v.dims[2] == x.dims[2],
    )
    bound, grid = _summed(x, y, x.dims[2])
    like = Value("", "float32", (x.dims[0], x.dims[1], y.dims[1]), bound, grid)
    draft.add("Einsum", [x, y], like, equation=draft.rng.choice(["bij,bkj->bik", "b i j, b k j -> b i k"]))


def add_integer_matmul(draft: Draft) -> None:
    if draft.opset < 10:
        raise NoFit
    x = draft.pick("uint8", "int8", fits=lambda v: v.rank >= 2 and isinstance(v.dims[-1], int))
    weight = draft.weight(draft.shared.arrays.integers(-20, 20, (int(x.dims[-1]), 3)).astype("int8"))
    zeros = [draft.scalar(3, x.dtype), draft.scalar(1, "int8")] if draft.chance(0.5) else []
    if x.dtype == "int8" and zeros:
        zeros = [draft.scalar(-2, "int8"), zeros[1]]
    draft.add("MatMulInteger", [x, weight, *zeros], Value("", "int32", (*x.dims[:-1], 3), 1e5, 0))


def add_again(draft: Draft) -> None:
    """A node that is there already, once more."""
    known = {value.name: value for value in draft.values}
    nodes = [node for node in draft.nodes if node.op_type != "Constant" and all(name in known for name in node.output)]
    if not nodes:
        raise NoFit
    node = onnx.NodeProto()
    node.CopyFrom(draft.rng.choice(nodes))
    if any(attribute.HasField("g") for attribute in node.attribute):
        raise NoFit  # names in bodies would be there twice
    results = [draft.keep(replace(known[name], name=draft.fresh("v"))) for name in node.output]
    node.output[:] = [value.name for value in results]
    node.name = draft.fresh("again_")
    draft.nodes.append(node)


def add_plugin(draft: Draft) -> None:
    """A custom layer that negates."""
    if not draft.shared.use_plugins:
        raise NoFit
    x = draft.pick_float()
    draft.add(PLUGIN_OP, [x], x, domain=PLUGIN_DOMAIN, factor=-1.0)


NODE_MAKERS: dict[Maker, float] = {
    add_smooth: 3,
    add_like_relu: 2,
    add_exact_unary: 4,
    add_rounding: 1,
    add_careful_unary: 1.5,
    add_int_unary: 1,
    add_not: 0.7,
    add_is_nan: 0.3,
    add_sum: 6,
    add_product: 4,
    add_scale: 3,
    add_quotient: 1,
    add_power: 1,
    add_int_pair: 3,
    add_int_division: 1,
    add_comparison: 2,
    add_logic: 1,
    add_where: 2,
    add_clip: 2,
    add_cast: 4,
    add_reduction: 5,
    add_arg_extreme: 1,
    add_softmax: 2,
    add_cumulative_sum: 0.7,
    add_matmul_weight: 3,
    add_matmul: 3,
    add_gemm: 3,
    add_einsum: 0.7,
    add_integer_matmul: 1,
    add_again: 2,
    add_plugin: 14,
}
