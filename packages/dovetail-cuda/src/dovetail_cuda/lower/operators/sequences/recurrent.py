"""The recurrent layers RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail_cuda.lower.indexing import move, transpose_to
from dovetail_cuda.lower.operators.sequences.recurrence import (
    RecurrentLayer,
    RecurrentSettings,
    State,
    Step,
    activate,
    cut_columns,
    make_layer,
    map_text,
    multiply,
    pick_slice,
    run_layer,
)
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store
from dovetail_cuda.lower.tensors import Lowered, Tensor, make_constant
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []

_TYPES: Final = ("float16", "float32", "float64")


@registry.register("RNN", since=7, until=21, types={"T": _TYPES})
@registry.register("RNN", since=22, types={"T": FLOATS})
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    num_outputs: int = 2,
) -> tuple[Lowered, ...]:
    """A layer whose next hidden values are one activation of a sum."""
    settings = RecurrentSettings(
        direction=direction,
        layout=layout,
        activations=activations or (),
        activation_alpha=activation_alpha or (),
        activation_beta=activation_beta or (),
        clip=clip,
    )
    layer = make_layer((x, w, r, b, sequence_lens), (initial_h,), settings, ("Tanh",), 1)

    def make_step(index: int) -> Step:
        weights, (f,) = transpose_to(pick_slice(layer.r, index, rank=2), (1, 0)), layer.list_activations(index)

        def step(store: Store, name: str, inputs: Tensor, state: State) -> State:
            product = multiply(state[0], weights, lambda made: activate(f, map_text("{0} + {1}", made, inputs)))
            return (store(name, product),)

        return step

    return run_layer(layer, make_step, layer.hidden, num_outputs)


@registry.register("GRU", since=7, until=21, types={"T": _TYPES})
@registry.register("GRU", since=22, types={"T": FLOATS})
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
    num_outputs: int = 2,
) -> tuple[Lowered, ...]:
    """A layer with an update and a reset gate."""
    settings = RecurrentSettings(
        direction=direction,
        layout=layout,
        activations=activations or (),
        activation_alpha=activation_alpha or (),
        activation_beta=activation_beta or (),
        clip=clip,
    )
    layer = make_layer((x, w, r, b, sequence_lens), (initial_h,), settings, ("Sigmoid", "Tanh"), 3)
    hidden = layer.hidden

    def make_step(index: int) -> Step:
        (f, g), recurrent = layer.list_activations(index), pick_slice(layer.r, index, rank=2)
        gate_weights = transpose_to(move(recurrent, (2 * hidden, hidden), lambda at: at), (1, 0))
        new_weights = transpose_to(move(recurrent, (hidden, hidden), lambda at: (at[0] + 2 * hidden, at[1])), (1, 0))
        new_bias = layer.cut_bias(index, 5 * hidden, 6 * hidden)

        def step(store: Store, name: str, inputs: Tensor, state: State) -> State:
            (h,), own = state, cut_columns(inputs, 0, 2 * hidden)
            gates = multiply(h, gate_weights, lambda made: activate(f, map_text("{0} + {1}", made, own)))
            stored = store(f"{name}.gates", gates)
            update, reset = cut_columns(stored, 0, hidden), cut_columns(stored, hidden, 2 * hidden)
            recalled = h if linear_before_reset else store(f"{name}.reset", map_text("{0} * {1}", reset, h))
            text = "{0} + {1} * ({2} + {3})" if linear_before_reset else "{0} + {2} + {3}"

            def finish(made: Tensor) -> Tensor:
                new = activate(g, map_text(text, cut_columns(inputs, 2 * hidden, 3 * hidden), reset, made, new_bias))
                return map_text("(1 - {0}) * {1} + {0} * {2}", update, new, h)

            return (store(name, multiply(recalled, new_weights, finish)),)

        return step

    return run_layer(layer, make_step, 2 * hidden, num_outputs)


@registry.register("LSTM", since=7, until=21, types={"T": _TYPES})
@registry.register("LSTM", since=22, types={"T": FLOATS})
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
    num_outputs: int = 3,
) -> tuple[Lowered, ...]:
    """A layer with a cell beside the hidden values, and input, output and forget gates."""
    settings = RecurrentSettings(
        direction=direction,
        layout=layout,
        activations=activations or (),
        activation_alpha=activation_alpha or (),
        activation_beta=activation_beta or (),
        clip=clip,
    )
    layer = make_layer((x, w, r, b, sequence_lens), (initial_h, initial_c), settings, ("Sigmoid", "Tanh", "Tanh"), 4)
    peepholes = p or make_constant(0, (len(layer.reversals), 3 * layer.hidden), x.dtype)

    def make_step(index: int) -> Step:
        return _make_lstm_step(layer, index, pick_slice(peepholes, index, rank=1), is_coupled=bool(input_forget))

    return run_layer(layer, make_step, 4 * layer.hidden, num_outputs)


def _make_lstm_step(layer: RecurrentLayer, index: int, peepholes: Tensor, *, is_coupled: bool) -> Step:
    (f, g, h), hidden = layer.list_activations(index), layer.hidden
    weights = transpose_to(pick_slice(layer.r, index, rank=2), (1, 0))
    to_input, to_output, to_forget = (cut_columns(peepholes, n * hidden, (n + 1) * hidden) for n in range(3))

    def step(store: Store, name: str, inputs: Tensor, state: State) -> State:
        before, cell = state
        product = multiply(before, weights, lambda made: map_text("{0} + {1}", made, inputs))
        sums = store(f"{name}.gates", product)
        # ONNX has the gates in the order input, output, forget, cell.
        parts = [cut_columns(sums, n * hidden, (n + 1) * hidden) for n in range(4)]
        taken = activate(f, map_text("{0} + {1} * {2}", parts[0], to_input, cell))
        kept = activate(f, map_text("{0} + {1} * {2}", parts[2], to_forget, cell))
        text = "(1 - {0}) * {2} + {0} * {3}" if is_coupled else "{1} * {2} + {0} * {3}"
        new = store(f"{name}.cell", map_text(text, taken, kept, cell, activate(g, parts[3])))
        opened = activate(f, map_text("{0} + {1} * {2}", parts[1], to_output, new))
        return store(name, map_text("{0} * {1}", opened, activate(h, new))), new

    return step
