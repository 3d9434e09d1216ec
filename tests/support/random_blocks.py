"""Makers of random groups of nodes: what exporters write for normalizations, GELU, attention and recurrences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onnx import helper

from tests.support.random_models import Draft, NoFit, Value, may_be_empty
from tests.support.random_nodes import axes_arguments

__all__ = ["BLOCK_MAKERS"]

Maker = Callable[[Draft], Any]


def _rows(draft: Draft, *, bound: float = 50, ranks: tuple[int, ...] = (2, 3)) -> Value:
    """Something whose last dimension is known and has more than one element."""
    return draft.pick_float(
        bound=bound,
        fits=lambda v: v.rank in ranks and isinstance(v.dims[-1], int) and v.dims[-1] > 1 and not may_be_empty(v),
    )


def _mean(draft: Draft, x: Value) -> Value:
    extra, attrs = axes_arguments(draft, [-1], 18)
    return draft.add("ReduceMean", [x, *extra], replace(x, dims=(*x.dims[:-1], 1), grid=None), **attrs)


def _affine(draft: Draft, x: Value, *, bias: bool = True) -> Value:
    width = int(x.dims[-1])
    y = draft.add("Mul", [x, draft.floats([width], x.dtype)], replace(x, bound=x.bound))
    return draft.add("Add", [y, draft.floats([width], x.dtype)], y) if bias else y


def add_layer_norm_parts(draft: Draft) -> None:
    x = _rows(draft)
    if draft.opset < 11:
        raise NoFit
    if draft.chance(0.4):
        other = draft.floats([int(x.dims[-1])], x.dtype)
        x = draft.add("Add", [x, other], replace(x, bound=x.bound + 1))
    centred = draft.add("Sub", [x, _mean(draft, x)], replace(x, grid=None))
    if draft.chance(0.7):
        square = draft.add("Pow", [centred, draft.scalar(2.0, x.dtype)], replace(centred, bound=x.bound**2))
    else:
        square = draft.add("Mul", [centred, centred], replace(centred, bound=x.bound**2))
    below = draft.add(
        "Add", [_mean(draft, square), draft.scalar(0.01, x.dtype)], replace(square, dims=(*x.dims[:-1], 1))
    )
    root = draft.add("Sqrt", [below], replace(below, bound=x.bound))
    y = draft.add("Div", [centred, root], replace(centred, bound=4.0))
    _affine(draft, y, bias=draft.chance(0.8))


def add_rms_norm_parts(draft: Draft) -> None:
    x = _rows(draft, bound=20)
    square = draft.add("Pow", [x, draft.scalar(2.0, x.dtype)], replace(x, bound=x.bound**2, grid=None))
    below = draft.add(
        "Add", [_mean(draft, square), draft.scalar(0.01, x.dtype)], replace(square, dims=(*x.dims[:-1], 1))
    )
    root = draft.add("Sqrt", [below], replace(below, bound=x.bound))
    if draft.chance(0.5):
        y = draft.add("Div", [x, root], replace(x, bound=4.0, grid=None))
    else:
        y = draft.add(
            "Mul", [x, draft.add("Reciprocal", [root], replace(root, bound=10.0))], replace(x, bound=4.0, grid=None)
        )
    weight = draft.floats([int(x.dims[-1])], x.dtype)
    draft.add("Mul", [y, weight] if draft.chance(0.5) else [weight, y], y)


def add_norm_op(draft: Draft) -> None:
    x = _rows(draft, ranks=(2, 3, 4))
    width = int(x.dims[-1])
    if draft.opset >= 23 and draft.chance(0.4):
        draft.add(
            "RMSNormalization", [x, draft.floats([width], x.dtype)], replace(x, bound=4.0, grid=None), epsilon=0.01
        )
        return
    if draft.opset < 17:
        raise NoFit
    parts = [draft.floats([width], x.dtype) for _ in range(draft.rng.randint(1, 2))]
    draft.add("LayerNormalization", [x, *parts], replace(x, bound=4.0, grid=None), epsilon=0.01)


def add_gelu_erf(draft: Draft) -> None:
    x = _rows(draft, ranks=(1, 2, 3, 4))
    ratio = draft.add("Div", [x, draft.scalar(math.sqrt(2), x.dtype)], replace(x, grid=None))
    erf = draft.add("Erf", [ratio], replace(ratio, bound=1.0))
    plus = draft.add("Add", [erf, draft.scalar(1.0, x.dtype)], replace(erf, bound=2.0))
    if draft.chance(0.5):
        y = draft.add("Mul", [x, plus], replace(x, grid=None, bound=2 * x.bound))
        draft.add("Mul", [y, draft.scalar(0.5, x.dtype)], replace(y, bound=x.bound))
    else:
        half = draft.add("Mul", [x, draft.scalar(0.5, x.dtype)], replace(x, grid=None))
        draft.add("Mul", [half, plus], replace(half, bound=x.bound))


def add_gelu_tanh(draft: Draft) -> None:
    x = _rows(draft, bound=15, ranks=(1, 2, 3, 4))
    loose = replace(x, grid=None)
    cube = draft.add("Pow", [x, draft.scalar(3.0, x.dtype)], replace(loose, bound=x.bound**3))
    small = draft.add("Mul", [cube, draft.scalar(0.044715, x.dtype)], cube)
    inner = draft.add("Add", [x, small], cube)
    scaled = draft.add("Mul", [inner, draft.scalar(math.sqrt(2 / math.pi), x.dtype)], cube)
    tanh = draft.add("Tanh", [scaled], replace(loose, bound=1.0))
    plus = draft.add("Add", [tanh, draft.scalar(1.0, x.dtype)], replace(tanh, bound=2.0))
    half = draft.add("Mul", [x, draft.scalar(0.5, x.dtype)], loose)
    draft.add("Mul", [half, plus], loose)


def add_attention_parts(draft: Draft) -> None:
    """Projections, heads, scores, softmax and the sum, for something of three dimensions."""
    x = _rows(draft, bound=10, ranks=(3,))
    width, heads = int(x.dims[-1]), 2
    if width % heads:
        raise NoFit
    batch, length, loose = x.dims[0], x.dims[1], replace(x, grid=None, bound=x.bound * width)

    def project(perm: list[int], dims: tuple[Any, ...]) -> Value:
        y = draft.add("MatMul", [x, draft.floats([width, width], x.dtype)], loose)
        if draft.chance(0.5):
            y = draft.add("Add", [y, draft.floats([width], x.dtype)], loose)
        y = draft.add(
            "Reshape",
            [y, draft.ints(0, -1, heads, width // heads)],
            replace(loose, dims=(batch, length, heads, width // heads)),
        )
        return draft.add("Transpose", [y], replace(loose, dims=dims), perm=perm)

    split = (batch, heads, length, width // heads)
    query, value = project([0, 2, 1, 3], split), project([0, 2, 1, 3], split)
    key = project([0, 2, 3, 1], (batch, heads, width // heads, length))
    scores = draft.add("MatMul", [query, key], replace(loose, dims=(batch, heads, length, length), bound=1000.0))
    by = draft.rng.choice(["Div", "Mul", None])
    if by is not None:
        factor = math.sqrt(width // heads) if by == "Div" else 1 / math.sqrt(width // heads)
        scores = draft.add(by, [scores, draft.scalar(factor, x.dtype)], scores)
    small = (
        draft.add("Mul", [scores, draft.scalar(1 / 64, x.dtype)], replace(scores, bound=16.0))
        if draft.chance(0.3)
        else scores
    )
    weights = draft.add("Softmax", [small], replace(scores, bound=1.0), axis=-1 if draft.opset >= 13 else 3)
    mixed = draft.add("MatMul", [weights, value], replace(loose, dims=split))
    swapped = draft.add(
        "Transpose", [mixed], replace(loose, dims=(batch, length, heads, width // heads)), perm=[0, 2, 1, 3]
    )
    draft.add("Reshape", [swapped, draft.ints(0, -1, width)], loose)


def add_attention_op(draft: Draft) -> None:
    if draft.opset < 23:
        raise NoFit
    x = _rows(draft, bound=10, ranks=(3,))
    if int(x.dims[-1]) % 2 or x.dtype != "float32":
        raise NoFit
    attrs = {"is_causal": 1} if draft.chance(0.4) else {}
    draft.add("Attention", [x, x, x], replace(x, grid=None), q_num_heads=2, kv_num_heads=2, **attrs)


def add_function(draft: Draft) -> None:
    """A function of the model's own, called once or twice."""
    if draft.opset < 15:
        raise NoFit
    x = draft.pick_float(bound=20)
    name = draft.fresh("Fn")
    nodes = [
        helper.make_node("Abs", ["a"], ["t"]),
        helper.make_node("Add", ["t", "a"], ["u"]),
        helper.make_node(draft.rng.choice(["Tanh", "Neg", "Relu"]), ["u"], ["b"]),
    ]
    imports = [helper.make_opsetid("", draft.opset)]
    draft.shared.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, imports))
    for _ in range(draft.rng.randint(1, 2)):
        x = draft.add(
            name, [x], replace(x, bound=2 * x.bound, grid=x.grid if nodes[-1].op_type != "Tanh" else None), domain="own"
        )


def add_recurrence(draft: Draft) -> None:
    x = draft.pick(
        "float32", bound=50, fits=lambda v: v.rank == 3 and isinstance(v.dims[2], int) and not may_be_empty(v)
    )
    op, hidden = draft.rng.choice(["RNN", "GRU", "LSTM"]), 3
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    directions = 2 if draft.chance(0.3) else 1
    weight = draft.floats([directions, gates * hidden, int(x.dims[2])], "float32")
    again = draft.floats([directions, gates * hidden, hidden], "float32")
    bias = [draft.floats([directions, 2 * gates * hidden], "float32")] if draft.chance(0.5) else []
    names = draft.emit(
        op,
        [x, weight, again, *bias],
        2,
        hidden_size=hidden,
        direction="bidirectional" if directions == 2 else "forward",
    )
    draft.keep(Value(names[0], "float32", (x.dims[0], directions, x.dims[1], hidden), 1.0))
    draft.keep(Value(names[1], "float32", (directions, x.dims[1], hidden), 1.0))


def add_dropout(draft: Draft) -> None:
    x = draft.pick_float()
    draft.add("Dropout", [x], x)


def add_microsoft(draft: Draft) -> None:
    """Operators that ONNX Runtime's own optimiser writes into models."""
    op = draft.rng.choice(["Gelu", "FastGelu", "QuickGelu", "FusedMatMul", "SkipLayerNormalization"])
    if op == "FusedMatMul":
        x = draft.pick("float32", bound=30, fits=lambda v: v.rank == 3 and not may_be_empty(v))
        like = Value("", "float32", (*x.dims[:2], x.dims[1]), x.bound**2 * 8)
        draft.add(op, [x, x], like, domain="com.microsoft", transB=1, alpha=0.5)
        return
    x = draft.pick(
        "float32", bound=30, fits=lambda v: v.rank == 3 and isinstance(v.dims[2], int) and not may_be_empty(v)
    )
    if op == "SkipLayerNormalization":
        if x.dims[2] == 1:
            raise NoFit
        parts = [x, x, *(draft.floats([int(x.dims[2])], "float32") for _ in range(2))]
        draft.add(op, parts, replace(x, bound=4.0, grid=None), domain="com.microsoft", epsilon=0.01)
        return
    draft.add(op, [x], replace(x, grid=None), domain="com.microsoft")


BLOCK_MAKERS: dict[Maker, float] = {
    add_layer_norm_parts: 1.2,
    add_rms_norm_parts: 0.8,
    add_norm_op: 1.2,
    add_gelu_erf: 0.8,
    add_gelu_tanh: 0.6,
    add_attention_parts: 0.8,
    add_attention_op: 0.8,
    add_function: 0.6,
    add_recurrence: 0.7,
    add_dropout: 0.6,
    add_microsoft: 0.8,
}
