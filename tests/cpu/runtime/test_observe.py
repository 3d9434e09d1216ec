"""Observed runs: every value is shown once it is written, bodies included, and nothing is left changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.manifest import ValueRecord
from dovetail.runtime.observe import observe_with


def _context(network: Any) -> Any:
    builder = dt.Builder()
    config = builder.create_builder_config()
    config.providers = ["cpu"]  # a compiled partition shows only its border
    return builder.build_engine_with_config(network, config).create_execution_context()


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
    context = _context(_loop_network())
    seen: list[tuple[str, list[float]]] = []

    def observe(value: ValueRecord, array: Any) -> None:
        if value.name in ("x", "absolute", "doubled", "negated"):
            seen.append((value.name, array.tolist()))

    context.observe([np.array([1.0, -2.0], np.float32)], observe_with(observe))
    assert seen == [
        ("x", [1.0, -2.0]),
        ("absolute", [1.0, 2.0]),
        *(("doubled", [n, 2 * n]) for n in (2.0, 4.0, 8.0)),
        ("negated", [-8.0, -16.0]),
    ]


def test_runs_are_as_before_even_when_the_observer_raises() -> None:
    context, x, seen = _context(_loop_network()), np.ones(2, np.float32), []

    def refuse(value: ValueRecord, array: Any) -> None:
        seen.append(value.name)
        if value.name == "doubled":
            raise RuntimeError("seen enough")

    with pytest.raises(dt.DovetailError, match="seen enough"):
        context.observe([x], observe_with(refuse))
    count = len(seen)
    np.testing.assert_array_equal(context.run([x])[0], [-8, -8])
    assert len(seen) == count
