"""The recurrent layers RNN, GRU and LSTM, in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._recurrence import (
    Activation,
    RecurrentLayer,
    State,
    Step,
    make_layer,
    resolve_activations,
    run_layer,
)
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.registry import kernel

__all__ = ["gru", "lstm", "rnn"]


def _activations(
    op: str,
    names: Sequence[str] | None,
    default: tuple[str, ...],
    directions: int,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
) -> list[list[Activation]]:
    """The activations of each direction."""
    size = len(default)
    chosen = tuple(names) if names else default * directions
    # RNN's own default names two activations even for one direction.
    usable = chosen[: size * directions]
    require(len(usable) == size * directions, op, "'activations' has the wrong length", got=chosen)
    functions = resolve_activations(op, usable, alphas, betas, clip)
    return [functions[i * size : (i + 1) * size] for i in range(directions)]


@kernel("RNN", since=7, types={"T": FLOATS})
@float_reference
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Array, ...]:
    """A layer whose next hidden values are one activation of a sum."""
    op = "RNN"
    layer = make_layer(
        op,
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h,),
        direction=direction,
        gates=1,
        hidden_size=hidden_size,
        layout=layout,
    )
    functions = _activations(op, activations, ("Tanh",), len(layer.reversals), activation_alpha, activation_beta, clip)

    def make_step(index: int) -> Step:
        weights, bias, f = layer.r[index].T, layer.hidden_bias[index], functions[index][0]
        return lambda inputs, state: (f(inputs + state[0] @ weights + bias),)

    return run_layer(layer, make_step)


@kernel("GRU", since=7, types={"T": FLOATS})
@float_reference
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Array, ...]:
    """A layer with an update and a reset gate."""
    op = "GRU"
    layer = make_layer(
        op,
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h,),
        direction=direction,
        gates=3,
        hidden_size=hidden_size,
        layout=layout,
    )
    functions = _activations(
        op, activations, ("Sigmoid", "Tanh"), len(layer.reversals), activation_alpha, activation_beta, clip
    )
    return run_layer(layer, lambda index: _gru_step(layer, index, functions[index], bool(linear_before_reset)))


def _gru_step(layer: RecurrentLayer, index: int, functions: list[Activation], linear_before_reset: bool) -> Step:
    f, g = functions
    hidden = layer.hidden
    gate_weights, new_weights = layer.r[index, : 2 * hidden].T, layer.r[index, 2 * hidden :].T
    gate_bias, new_bias = layer.hidden_bias[index, : 2 * hidden], layer.hidden_bias[index, 2 * hidden :]

    def step(inputs: Array, state: State) -> State:
        h = state[0]
        gates = f(inputs[:, : 2 * hidden] + h @ gate_weights + gate_bias)
        update, reset = gates[:, :hidden], gates[:, hidden:]
        recalled = reset * (h @ new_weights + new_bias) if linear_before_reset else (reset * h) @ new_weights + new_bias
        new = g(inputs[:, 2 * hidden :] + recalled)
        return ((1 - update) * new + update * h,)

    return step


@kernel("LSTM", since=7, types={"T": FLOATS})
@float_reference
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Array, ...]:
    """A layer with a cell beside the hidden values, and input, output and forget gates."""
    op = "LSTM"
    layer = make_layer(
        op,
        x,
        w,
        r,
        b,
        sequence_lens,
        (initial_h, initial_c),
        direction=direction,
        gates=4,
        hidden_size=hidden_size,
        layout=layout,
    )
    shape = (len(layer.reversals), 3 * layer.hidden)
    peepholes = np.zeros(shape, dtype=x.dtype) if p is None else p
    require(peepholes.shape == shape, op, "P has the wrong shape", expected=shape, got=peepholes.shape)
    functions = _activations(
        op, activations, ("Sigmoid", "Tanh", "Tanh"), shape[0], activation_alpha, activation_beta, clip
    )
    return run_layer(
        layer, lambda index: _lstm_step(layer, index, functions[index], peepholes[index], bool(input_forget))
    )


def _lstm_step(layer: RecurrentLayer, index: int, functions: list[Activation], peepholes: Array, coupled: bool) -> Step:
    f, g, h = functions
    weights, bias = layer.r[index].T, layer.hidden_bias[index]
    peep_input, peep_output, peep_forget = np.split(peepholes, 3)

    def step(inputs: Array, state: State) -> State:
        hidden, cell = state
        sums = inputs + hidden @ weights + bias
        # ONNX orders the gates input, output, forget, cell.
        to_input, to_output, to_forget, to_cell = np.split(sums, 4, axis=1)
        taken = f(to_input + peep_input * cell)
        kept = 1 - taken if coupled else f(to_forget + peep_forget * cell)
        new = kept * cell + taken * g(to_cell)
        return f(to_output + peep_output * new) * h(new), new

    return step
