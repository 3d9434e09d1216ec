"""Observed runs: every value is shown once it is written, bodies included, and nothing is left changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.manifest import ValueRecord
from dovetail.runtime.observe import run_observed
from dovetail.runtime.runner import ProgramRunner


def _runner(network: Any, x: np.ndarray) -> ProgramRunner:
    builder = dt.Builder()
    config = builder.create_builder_config()
    config.providers = ["cpu"]  # a compiled partition shows only its border
    engine = builder.build_engine_with_config(network, config)
    context = engine.create_execution_context()
    context.run([x])  # binds the input
    runner = context._runner
    for index in runner.program.outputs:
        shape = runner.physical_shape(index)
        if shape is not None:
            runner.bind(index, np.empty(shape, np.float32))
    return runner


def _loop_network() -> Any:
    """The state is doubled three times, between two activations."""
    network = dt.Builder().create_network()
    x = network.add_input("x", dt.float32, (2,))
    absolute = network.add_unary(x, dt.UnaryOperation.ABS).get_output(0)
    absolute.name = "absolute"
    loop = network.add_loop()
    loop.add_trip_limit(network.add_constant((), np.array(3, np.int32)).get_output(0), dt.TripLimit.COUNT)
    state = loop.add_recurrence(absolute)
    doubled = network.add_elementwise(state.get_output(0), state.get_output(0), dt.ElementWiseOperation.SUM)
    doubled.get_output(0).name = "doubled"
    state.set_input(1, doubled.get_output(0))
    last = loop.add_loop_output(state.get_output(0), dt.LoopOutput.LAST_VALUE).get_output(0)
    negated = network.add_unary(last, dt.UnaryOperation.NEG).get_output(0)
    negated.name = "negated"
    network.mark_output(negated)
    return network


def test_values_are_shown_in_the_order_they_are_written() -> None:
    runner = _runner(_loop_network(), np.array([1.0, -2.0], np.float32))
    seen: list[tuple[str, list[float]]] = []

    def observe(value: ValueRecord, array: Any) -> None:
        if value.name in ("x", "absolute", "doubled", "negated"):
            seen.append((value.name, array.tolist()))

    run_observed(runner, observe)
    assert seen == [
        ("x", [1.0, -2.0]),
        ("absolute", [1.0, 2.0]),
        *(("doubled", [n, 2 * n]) for n in (2.0, 4.0, 8.0)),
        ("negated", [-8.0, -16.0]),
    ]


def test_bodies_are_as_before_even_when_the_observer_raises() -> None:
    runner = _runner(_loop_network(), np.ones(2, np.float32))
    bodies = [body for step in runner.steps for body in getattr(step, "bodies", ())]
    before = [body.steps for body in bodies]
    assert bodies

    def refuse(value: ValueRecord, array: Any) -> None:
        if value.name == "doubled":
            raise RuntimeError("seen enough")

    with pytest.raises(RuntimeError, match="seen enough"):
        run_observed(runner, refuse)
    assert all(body.steps is steps for body, steps in zip(bodies, before, strict=True))
