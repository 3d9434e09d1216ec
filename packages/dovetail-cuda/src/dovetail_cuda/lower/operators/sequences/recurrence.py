"""What RNN, GRU and LSTM share: activations by name, directions, and the walk over time.

The inputs of all steps are one product; then each step is a few kernels. The length of the sequences is that of the
input, known when a plan is built; lengths that are computed are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, literal
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import concat, move, reshape_to, transpose_to
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.stages import StagedTensor, Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, ProductTensor, RowTensor, Tensor, make_constant, refuse

__all__ = [
    "MOST_STEPS",
    "RecurrentLayer",
    "RecurrentSettings",
    "State",
    "Step",
    "activate",
    "cut_columns",
    "join_parts",
    "make_layer",
    "map_text",
    "multiply",
    "pick_slice",
    "run_layer",
]

Activation = Callable[[Expr], Expr]
State = tuple[Tensor, ...]
"""What is carried from step to step, each (batch, hidden); the hidden values come first."""
Step = Callable[[Store, str, Tensor, State], State]
"""From the projected input of a step (batch, gates * hidden) and a state to the next state, stored under a name."""
MOST_STEPS: Final = 256
"""Beyond so many a plan would be nothing but launches."""
_JOINED: Final = 8
"""How many results are put together by one kernel."""
_ACTIVATIONS: Final[dict[str, tuple[str, tuple[float, ...]]]] = {
    "affine": ("{1} * {0} + {2}", (1.0, 0.0)),
    "elu": ("tl.where({0} < 0, {1} * f.expm1({0}), {0})", (1.0,)),
    "hardsigmoid": ("tl.clamp({1} * {0} + {2}, 0.0, 1.0)", (0.2, 0.5)),
    "leakyrelu": ("tl.where({0} < 0, {1} * {0}, {0})", (0.01,)),
    "relu": ("tl.maximum({0}, 0.0)", ()),
    "scaledtanh": ("{1} * f.tanh({2} * {0})", (1.0, 1.0)),
    "sigmoid": ("1 / (1 + tl.exp(-{0}))", ()),
    "softplus": ("f.softplus({0})", ()),
    "softsign": ("{0} / (1 + tl.abs({0}))", ()),
    "tanh": ("f.tanh({0})", ()),
    "thresholdedrelu": ("tl.where({0} < {1}, 0.0, {0})", (1.0,)),
}
"""Triton's text of each activation, and the defaults of its numbers: none, alpha, or alpha and beta."""


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer:
    """A recurrent layer, with its inputs in the order (time, batch, feature)."""

    x: Tensor
    w: Tensor
    """(directions, gates * hidden, features)"""
    r: Tensor
    """(directions, gates * hidden, hidden)"""
    b: Tensor
    """(directions, 2 * gates * hidden)"""
    states: tuple[Tensor, ...]
    """(directions, batch, hidden) each, as they are at first."""
    reversals: tuple[bool, ...]
    layout: int
    activations: tuple[Activation, ...]

    @property
    def hidden(self) -> int:
        """How many hidden values there are."""
        return self.r.shape[2]

    def list_activations(self, direction: int) -> tuple[Activation, ...]:
        """Those of one direction."""
        count = len(self.activations) // len(self.reversals)
        return self.activations[direction * count :][:count]

    def cut_bias(self, direction: int, start: int, stop: int) -> Tensor:
        """Some of the numbers that are added, as (1, count)."""
        return cut_columns(pick_slice(self.b, direction, rank=1), start, stop)


def pick_slice(tensor: Tensor, number: int, rank: int) -> Tensor:
    """One slice of the first dimension, as a matrix."""
    shape = tensor.shape[1:] if rank == 2 else (1, *tensor.shape[1:])
    return move(tensor, shape, lambda at: (Index((), number), *at[-rank:]))


def cut_columns(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Some columns of a matrix."""
    return move(tensor, (tensor.shape[0], stop - start), lambda at: (at[0], at[1] + start))


def map_text(text: str, *tensors: Tensor) -> Tensor:
    """Triton's text over the elements of tensors."""
    dtype = tensors[0].dtype
    return map_elements(lambda *values: apply(text, *values, dtype=dtype), *tensors, dtype=dtype)


def activate(function: Activation, tensor: Tensor) -> Tensor:
    """An activation of every element."""
    return map_elements(function, tensor, dtype=tensor.dtype)


def multiply(a: Tensor, b: Tensor, finish: Callable[[Tensor], Tensor]) -> Lowered:
    """A product with what follows it."""
    made = matmul(a, b)
    if not isinstance(made, ProductTensor | RowTensor):
        raise refuse("a product of a recurrent layer is none")
    return replace(made, finish=finish)


# activations


def _list_activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None, dtype: str
) -> tuple[Activation, ...]:
    """Functions by name; each takes its numbers from the front of two lists, and may clip what it gets."""
    alpha, beta = iter(alphas), iter(betas)
    return tuple(_find_activation(name, alpha, beta, clip, dtype) for name in names)


def _find_activation(
    name: str, alphas: Iterator[float], betas: Iterator[float], clip: float | None, dtype: str
) -> Activation:
    if name.lower() not in _ACTIVATIONS:
        raise refuse(f"it has no activation {name}")
    text, defaults = _ACTIVATIONS[name.lower()]
    given = [next(values, default) for values, default in zip((alphas, betas), defaults, strict=False)]
    numbers = [literal(number, dtype) for number in given]

    def call(value: Expr) -> Expr:
        if clip is not None:
            value = apply("tl.clamp({0}, -{1}, {1})", value, literal(clip, dtype), dtype=dtype)
        return apply(text, value, *numbers, dtype=dtype)

    return call


# layers


@dataclass(frozen=True, kw_only=True)
class RecurrentSettings:
    """The attributes that all three have."""

    direction: str
    layout: int
    activations: Sequence[str]
    activation_alpha: Sequence[float]
    activation_beta: Sequence[float]
    clip: float | None


def make_layer(
    given: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    initial: Sequence[Tensor | None],
    settings: RecurrentSettings,
    default: tuple[str, ...],
    gates: int,
) -> RecurrentLayer:
    """A layer of its inputs, with time first."""
    x, w, r, b, lengths = given
    reversals = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(settings.direction)
    if reversals is None or lengths is not None:
        raise refuse("it has no sequences with lengths of their own" if reversals else "there is no such direction")
    sequence = transpose_to(x, (1, 0, 2)) if settings.layout else x
    hidden, count = r.shape[2], len(reversals)
    if sequence.shape[0] > MOST_STEPS or w.shape != (count, gates * hidden, x.shape[2]):
        raise refuse(f"it unrolls at most {MOST_STEPS} steps, and weights of {w.shape} must fit the input {x.shape}")
    # The default of RNN names two activations even for one direction.
    names = (tuple(settings.activations) or default * count)[: len(default) * count]
    if len(names) < len(default) * count:
        raise refuse(f"{len(names)} activations are too few for {count} direction(s)")
    batch = sequence.shape[1]
    return RecurrentLayer(
        x=sequence,
        w=w,
        r=r,
        b=b or make_constant(0, (count, 2 * gates * hidden), x.dtype),
        states=tuple(_start(state, (count, batch, hidden), x.dtype, settings.layout) for state in initial),
        reversals=reversals,
        layout=settings.layout,
        activations=_list_activations(
            names, settings.activation_alpha, settings.activation_beta, settings.clip, x.dtype
        ),
    )


def _start(state: Tensor | None, shape: tuple[int, int, int], dtype: str, layout: int) -> Tensor:
    if state is None:
        return make_constant(0, shape, dtype)
    return transpose_to(state, (1, 0, 2)) if layout else state


def run_layer(
    layer: RecurrentLayer, make_step: Callable[[int], Step], bias_end: int, num_outputs: int
) -> tuple[StagedTensor, ...]:
    """The hidden values of all steps, and the last states.

    Args:
        layer: The layer.
        make_step: What a step of a direction does.
        bias_end: How many of the hidden biases are added to the input at once.
        num_outputs: How many results are wanted.
    """
    length, batch, hidden, count = *layer.x.shape[:2], layer.hidden, len(layer.reversals)
    order = (2, 0, 1, 3) if layer.layout else (0, 1, 2, 3)
    whole = [(length, count, batch, hidden)[axis] for axis in order]
    last = (batch, count, hidden) if layer.layout else (count, batch, hidden)

    def steps(store: Store) -> Sequence[Tensor]:
        walks = [_walk(layer, store, direction, make_step(direction), bias_end) for direction in range(count)]
        values = [reshape_to(walk[0], (length, 1, batch, hidden)) for walk in walks]
        joined = transpose_to(concat(*values, axis=1), (2, 0, 1, 3)) if layer.layout else concat(*values, axis=1)
        return [joined, *(_join_states(layer, [walk[1][n] for walk in walks]) for n in range(len(layer.states)))]

    specs = [(whole, layer.x.dtype), *((last, layer.x.dtype) for _ in layer.states)]
    return make_staged(specs, steps)[:num_outputs]


def _join_states(layer: RecurrentLayer, states: Sequence[Tensor]) -> Tensor:
    joined = concat(*(reshape_to(state, (1, *state.shape)) for state in states), axis=0)
    return transpose_to(joined, (1, 0, 2)) if layer.layout else joined


def _walk(layer: RecurrentLayer, store: Store, direction: int, step: Step, bias_end: int) -> tuple[Tensor, State]:
    """All steps of one direction: the hidden values in the order of time, and the last state."""
    length, batch, features = layer.x.shape
    columns = layer.w.shape[1]
    bias = layer.cut_bias(direction, 0, columns)
    early = _pad_columns(layer.cut_bias(direction, columns, columns + bias_end), columns)
    weights = transpose_to(pick_slice(layer.w, direction, rank=2), (1, 0))
    flat = reshape_to(layer.x, (length * batch, features))
    product = multiply(flat, weights, lambda made: map_text("{0} + {1} + {2}", made, bias, early))
    projected = reshape_to(store(f"inputs{direction}", product), (length, batch, columns))
    state = tuple(pick_slice(each, direction, rank=2) for each in layer.states)
    found: dict[int, Tensor] = {}
    for time in reversed(range(length)) if layer.reversals[direction] else range(length):
        state = step(store, f"{direction}.{time}", pick_slice(projected, time, rank=2), state)
        found[time] = state[0]
    parts = [reshape_to(found[time], (1, batch, layer.hidden)) for time in range(length)]
    return join_parts(store, f"joined{direction}", parts), state


def _pad_columns(tensor: Tensor, columns: int) -> Tensor:
    """A row with zeros behind it."""
    missing = columns - tensor.shape[1]
    return concat(tensor, make_constant(0, (1, missing), tensor.dtype), axis=1) if missing else tensor


def join_parts(store: Store, name: str, parts: list[Tensor], axis: int = 0) -> Tensor:
    """Parts one after the other along an axis, a few of them by each kernel."""
    level = 0
    while len(parts) > _JOINED:
        groups = [parts[start : start + _JOINED] for start in range(0, len(parts), _JOINED)]
        parts = [store(f"{name}.{level}.{n}", concat(*group, axis=axis)) for n, group in enumerate(groups)]
        level += 1
    return concat(*parts, axis=axis)
