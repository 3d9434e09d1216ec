"""What RNN, GRU and LSTM share: activations by name, directions, sequence lengths and the walk over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels._checks import fail, require

__all__ = ["Activation", "RecurrentLayer", "State", "Step", "make_layer", "resolve_activations", "run_layer"]

Activation = Callable[[Array], Array]
State = tuple[Array, ...]
"""What is carried from step to step; the hidden values come first, each (batch, hidden)."""
Step = Callable[[Array, State], State]
"""From the projected input of one time step (batch, gates * hidden) and a state to the next state."""

_ACTIVATIONS: Final[dict[str, tuple[Callable[..., Array], tuple[float, ...]]]] = {
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "elu": (lambda x, a: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, a: np.where(x >= 0, x, a * x), (0.01,)),
    "relu": (lambda x: np.maximum(x, 0), ()),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "sigmoid": (lambda x: 0.5 * (1 + np.tanh(0.5 * x)), ()),
    "softplus": (lambda x: np.logaddexp(x, np.zeros_like(x)), ()),
    "softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "tanh": (np.tanh, ()),
    "thresholdedrelu": (lambda x, a: np.where(x >= a, x, np.zeros_like(x)), (1.0,)),
}
"""Each activation with the defaults of the parameters it takes: none, alpha, or alpha and beta."""


def resolve_activations(
    op: str,
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[Activation]:
    """Functions for these names; each takes its parameters from the front of the lists, and clips its input."""
    alpha, beta = iter(alphas or ()), iter(betas or ())
    return [_resolve(op, name, alpha, beta, clip) for name in names]


def _resolve(op: str, name: str, alphas: Iterator[float], betas: Iterator[float], clip: float | None) -> Activation:
    entry = _ACTIVATIONS.get(name.lower())
    if entry is None:
        fail(op, "an activation is unknown", expected=", ".join(_ACTIVATIONS), got=name)
    function, defaults = entry
    # Alphas and betas are two lists, from each of which an activation takes at most one value.
    parameters = [next(values, default) for values, default in zip((alphas, betas), defaults, strict=False)]
    if clip is None:
        return lambda x: function(x, *parameters)
    return lambda x: function(np.clip(x, -clip, clip), *parameters)


@dataclass(frozen=True, kw_only=True)
class RecurrentLayer:
    """One recurrent layer with its inputs in the order (time, batch, feature)."""

    x: Array
    w: Array
    """(directions, gates * hidden, features)"""
    r: Array
    """(directions, gates * hidden, hidden)"""
    input_bias: Array
    """(directions, gates * hidden)"""
    hidden_bias: Array
    lengths: Array | None
    states: tuple[Array, ...]
    """Initial states, each (directions, batch, hidden)."""
    reversals: tuple[bool, ...]
    """Whether each direction walks backwards."""
    layout: int

    @property
    def hidden(self) -> int:
        """The count of hidden values."""
        return int(self.r.shape[2])


def make_layer(
    op: str,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    sequence_lens: Array | None,
    initial: Sequence[Array | None],
    *,
    direction: str,
    gates: int,
    hidden_size: int | None,
    layout: int,
) -> RecurrentLayer:
    """Check the inputs of a recurrent op and put time first."""
    reversals = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if reversals is None:
        fail(op, "'direction' is unknown", expected="forward, reverse or bidirectional", got=direction)
    require(x.ndim == w.ndim == r.ndim == 3, op, "X, W and R must have three axes", got=(x.shape, w.shape, r.shape))
    hidden, count = r.shape[2], len(reversals)
    require(hidden_size in (None, hidden), op, "'hidden_size' differs from R", expected=hidden, got=hidden_size)
    wanted = (count, gates * hidden)
    require(w.shape == (*wanted, x.shape[2]), op, "W has the wrong shape", expected=(*wanted, x.shape[2]), got=w.shape)
    require(r.shape == (*wanted, hidden), op, "R has the wrong shape", expected=(*wanted, hidden), got=r.shape)
    biases = np.zeros((count, 2 * gates * hidden), dtype=x.dtype) if b is None else b
    fits = biases.shape == (count, 2 * gates * hidden)
    require(fits, op, "B has the wrong shape", expected=(count, 2 * gates * hidden), got=biases.shape)
    sequence = x.swapaxes(0, 1) if layout else x
    return RecurrentLayer(
        x=sequence,
        w=w,
        r=r,
        input_bias=biases[:, : gates * hidden],
        hidden_bias=biases[:, gates * hidden :],
        lengths=_check_lengths(op, sequence_lens, sequence),
        states=tuple(_initial_state(op, h, (count, sequence.shape[1], hidden), x, layout) for h in initial),
        reversals=reversals,
        layout=layout,
    )


def _check_lengths(op: str, lengths: Array | None, x: Array) -> Array | None:
    if lengths is None:
        return None
    require(lengths.shape == (x.shape[1],), op, "'sequence_lens' has the wrong shape", got=lengths.shape)
    valid = bool(((lengths >= 0) & (lengths <= x.shape[0])).all())
    require(valid, op, "a sequence length is out of range", expected=f"0..{x.shape[0]}", got=lengths.tolist())
    return lengths


def _initial_state(op: str, state: Array | None, shape: tuple[int, int, int], x: Array, layout: int) -> Array:
    if state is None:
        return np.zeros(shape, dtype=x.dtype)
    ordered = state.swapaxes(0, 1) if layout and state.ndim == 3 else state
    require(ordered.shape == shape, op, "an initial state has the wrong shape", expected=shape, got=ordered.shape)
    return ordered


def run_layer(layer: RecurrentLayer, make_step: Callable[[int], Step]) -> tuple[Array, ...]:
    """Walk every direction; return all hidden values and the last states, in the layer's layout."""
    sequences, finals = [], []
    for index, backwards in enumerate(layer.reversals):
        x = _reverse(layer.x, layer.lengths) if backwards else layer.x
        projected = x @ layer.w[index].T + layer.input_bias[index]
        y, state = _walk(make_step(index), projected, tuple(s[index] for s in layer.states), layer.lengths)
        sequences.append(_reverse(y, layer.lengths) if backwards else y)
        finals.append(state)
    last = [np.stack(parts) for parts in zip(*finals, strict=True)]
    if not layer.layout:
        return np.stack(sequences, axis=1), *last
    return np.stack(sequences, axis=2).swapaxes(0, 1).copy(), *(state.swapaxes(0, 1).copy() for state in last)


def _reverse(x: Array, lengths: Array | None) -> Array:
    """Reverse time, each sample within its own length."""
    if lengths is None:
        return x[::-1]
    time = np.arange(x.shape[0])[:, None]
    mirrored = np.where(time < lengths, lengths - 1 - time, time)
    return x[mirrored, np.arange(x.shape[1])]


def _walk(step: Step, projected: Array, state: State, lengths: Array | None) -> tuple[Array, State]:
    y = np.zeros((projected.shape[0], *state[0].shape), dtype=projected.dtype)
    for t, inputs in enumerate(projected):
        new = step(inputs, state)
        if lengths is None:
            state = new
            y[t] = new[0]
        else:
            live = (t < lengths)[:, None]
            state = tuple(np.where(live, after, before) for after, before in zip(new, state, strict=True))
            y[t] = np.where(live, new[0], 0)
    return y, state
