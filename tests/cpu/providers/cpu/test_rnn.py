"""Recurrent layers: lengths, directions, layouts, activations with parameters, and refused shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.rnn import gru, lstm, rnn

GATES: dict[Callable[..., Any], int] = {rnn: 1, gru: 3, lstm: 4}
FEATURES, HIDDEN = 3, 2


def _weights(gates: int, directions: int = 1) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(gates)
    shapes = [(directions, gates * HIDDEN, n) for n in (FEATURES, HIDDEN)]
    w, r = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return w, r, rng.standard_normal((directions, 2 * gates * HIDDEN)).astype(np.float32)


def _input(steps: int = 4, batch: int = 2) -> Array:
    return np.random.default_rng(9).standard_normal((steps, batch, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("op", GATES)
def test_a_short_sequence_is_as_if_alone(op: Callable[..., Any]) -> None:
    x, (w, r, b) = _input(), _weights(GATES[op], 2)
    y, *states = op(x, w, r, b, np.array([2, 4], np.int32), direction="bidirectional")
    alone, *alone_states = op(x[:2, :1], w, r, b, direction="bidirectional")
    np.testing.assert_allclose(y[:2, :, :1], alone, rtol=1e-5)
    assert not y[2:, :, 0].any()
    for state, other in zip(states, alone_states, strict=True):
        np.testing.assert_allclose(state[:, :1], other, rtol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_both_directions_are_each_alone(op: Callable[..., Any]) -> None:
    x, (w, r, b) = _input(), _weights(GATES[op], 2)
    y, *_ = op(x, w, r, b, direction="bidirectional")
    for index, name in enumerate(("forward", "reverse")):
        part, *_ = op(x, w[index : index + 1], r[index : index + 1], b[index : index + 1], direction=name)
        np.testing.assert_allclose(y[:, index : index + 1], part, rtol=1e-6)


@pytest.mark.parametrize("op", GATES)
def test_layout_only_moves_axes(op: Callable[..., Any]) -> None:
    x, (w, r, b) = _input(), _weights(GATES[op])
    start = np.ones((1, 2, HIDDEN), np.float32)
    plain = op(x, w, r, b, None, start)
    swapped = op(x.swapaxes(0, 1), w, r, b, None, start.swapaxes(0, 1), layout=1)
    assert np.array_equal(swapped[0], np.moveaxis(plain[0], 2, 0))
    for state, other in zip(swapped[1:], plain[1:], strict=True):
        assert np.array_equal(state, other.swapaxes(0, 1))


@pytest.mark.parametrize("op", GATES)
def test_no_steps_and_no_batch(op: Callable[..., Any]) -> None:
    w, r, b = _weights(GATES[op])
    start = np.ones((1, 2, HIDDEN), np.float32)
    y, hidden, *_ = op(_input(steps=0), w, r, b, None, start)
    assert y.shape == (0, 1, 2, HIDDEN)
    assert np.array_equal(hidden, start)
    assert op(_input(batch=0), w, r, b)[0].shape == (4, 1, 0, HIDDEN)


def test_parameters_go_to_the_activations_that_take_them() -> None:
    x, (w, r, _) = _input(steps=1), _weights(1, 2)
    y, _ = rnn(
        x,
        w,
        r,
        activations=["Affine", "LeakyRelu"],
        activation_alpha=[2.0],
        activation_beta=[1.0],
        direction="bidirectional",
    )
    sums = x[0] @ w.swapaxes(1, 2)
    np.testing.assert_allclose(y[0, 0], 2 * sums[0] + 1, rtol=1e-5)
    np.testing.assert_allclose(y[0, 1], np.where(sums[1] >= 0, sums[1], 0.01 * sums[1]), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Relu", lambda x: np.maximum(x, 0)),
        ("Tanh", np.tanh),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("ThresholdedRelu", lambda x: np.where(x >= 1, x, 0)),
        ("ScaledTanh", np.tanh),
        ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        ("Elu", lambda x: np.where(x >= 0, x, np.exp(x) - 1)),
        ("Softsign", lambda x: x / (1 + abs(x))),
        ("Softplus", lambda x: np.log1p(np.exp(x))),
    ],
)
def test_activations(name: str, expected: Callable[[Array], Array]) -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32).reshape(1, 7, 1)
    one = np.ones((1, 1, 1), np.float32)
    y, _ = rnn(x, one, one, activations=[name])
    np.testing.assert_allclose(y[0, 0], expected(x[0]), rtol=1e-5, atol=1e-7)


def test_clip_bounds_what_goes_into_an_activation() -> None:
    one = np.ones((1, 1, 1), np.float32)
    y, _ = rnn(np.full((1, 1, 1), 9, np.float32), one, one, activations=["Affine"], clip=2.0)
    assert y.item() == 2.0


def test_coupled_gates_share_one() -> None:
    x, (w, r, b) = _input(steps=1), _weights(4)
    cell = np.ones((1, 2, HIDDEN), np.float32)
    _, _, coupled = lstm(x, w, r, b, None, None, cell, input_forget=1)
    sums = (x[0] @ w[0].T + b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :]).astype(np.float64)
    taken, new = 1 / (1 + np.exp(-sums[:, :HIDDEN])), np.tanh(sums[:, 3 * HIDDEN :])
    np.testing.assert_allclose(coupled[0], (1 - taken) + taken * new, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "attributes", "message"),
    [
        ({}, {"direction": "backward"}, "'direction' is unknown"),
        ({}, {"direction": "bidirectional"}, "W has the wrong shape"),
        ({}, {"hidden_size": 5}, "'hidden_size' differs from R; expected 2, got 5"),
        ({}, {"activations": ["Sine"]}, "an activation is unknown"),
        ({"b": np.zeros((1, 3), np.float32)}, {}, "B has the wrong shape"),
        ({"sequence_lens": np.array([5, 1], np.int32)}, {}, r"a sequence length is out of range; expected 0\.\.4"),
        ({"sequence_lens": np.array([-1, 1], np.int32)}, {}, "a sequence length is out of range"),
        ({"initial_h": np.zeros((1, 2, 3), np.float32)}, {}, "an initial state has the wrong shape"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    w, r, _ = _weights(1)
    with pytest.raises(InputError, match=f"op RNN: {message}"):
        rnn(_input(), w, r, **arguments, **attributes)
