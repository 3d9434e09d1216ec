"""A context may be given a check, which is called between the steps of a run and can end it."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import dovetail as dt

HEADER = '<ir_version: 10, opset_import: ["": 18]>\n'
STEPS = "agraph (float[2] x) => (float[2] y) { a = Exp(x)  b = Softmax(a)  y = CumSum(b, axis) }"
LOOP = """agraph (float[2] x) => (float[2] y, int64[5] numbers) <int64 n = {5}> {
    y, numbers = Loop(n, , x) <body = inner (int64[1] i, bool c, float[2] s) => (bool d, float[2] t, int64[1] j) {
        d = Identity(c)  t = Exp(s)  j = Identity(i) }> }"""


def _engine(text: str) -> dt.Engine:
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "axis"))
    return dt.compile(model, providers=["cpu"])


def test_it_is_called_between_steps_and_can_end_the_run() -> None:
    engine, calls = _engine(STEPS), []

    def check() -> None:
        calls.append(1)
        if len(calls) == 4:
            raise dt.RunCancelledError("enough")

    x = np.ones(2, np.float32)
    with engine.create_execution_context(check=check) as context:
        expected = engine(x)
        np.testing.assert_array_equal(context.run([x])[0], expected)
        assert len(calls) == 2, "not before the first of three steps"
        with pytest.raises(dt.RunCancelledError, match="enough"):
            context.run([x])
        np.testing.assert_array_equal(context.run([x])[0], expected)


def test_it_is_called_in_every_iteration_of_a_loop() -> None:
    engine, calls = _engine(LOOP), []
    with engine.create_execution_context(check=lambda: calls.append(1)) as context:
        _, numbers = context.run([np.zeros(2, np.float32)])
    assert len(calls) >= 5
    assert numbers.shape == (5, 1), "the body declares its counter as a vector"
    assert numbers.ravel().tolist() == [0, 1, 2, 3, 4]
