"""Formats are chosen for the network, not for each layer alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.plugins import PlainCreator, ScalePlugin


class Timed(ScalePlugin):
    """A plugin whose speed depends on its format, by sleeping."""

    tactics = ()
    types = (dt.float32,)
    timing_cache_id = ""

    def __init__(self, factor: float = 1.0, calls: Any = None, linear_s: float = 0.0, packed_s: float = 0.0) -> None:
        super().__init__(factor, calls)
        self.linear_s, self.packed_s = linear_s, packed_s
        self.timing_cache_id = f"{linear_s}/{packed_s}"

    def enqueue(self, input_desc: Any, *args: Any) -> None:
        super().enqueue(input_desc, *args)
        is_linear = input_desc[0].format == dt.TensorFormat.LINEAR
        time.sleep(self.linear_s if is_linear else self.packed_s)


class Sleeper(Timed):
    """Writes zeros, so that its time is its sleep also on a busy machine."""

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *args: Any) -> None:
        as_array(outputs[0], output_desc[0])[...] = 0
        is_linear = input_desc[0].format == dt.TensorFormat.LINEAR
        time.sleep(self.linear_s if is_linear else self.packed_s)


def test_the_best_choice_of_each_layer_alone_loses() -> None:
    """The middle layer is faster packed, but two reformats of this tensor cost more than that."""
    shape = (16, 64, 64, 64)
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, shape)
    for linear_s, packed_s in ((0.001, 0.200), (0.012, 0.004), (0.001, 0.200)):
        x = network.add_plugin_v3([x], [], Sleeper(1.0, None, linear_s, packed_s)).get_output(0)
    x.name = "y"
    network.mark_output(x)
    plan = builder.build_plan(network, builder.create_builder_config())
    middle = plan.manifest.tuning[1].candidates
    packed = next(c for c in middle if "CHW32" in c.formats[0])
    linear = next(c for c in middle if "LINEAR" in c.formats[0])
    assert packed.time_us is not None
    assert linear.time_us is not None
    assert packed.time_us < linear.time_us
    assert linear.chosen
    assert [step.kind for step in plan.manifest.programs[0].steps] == ["plugin"] * 3


def test_a_chain_stays_packed_when_that_pays() -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (1, 32, 8, 8))
    for _ in range(3):
        x = network.add_plugin_v3([x], [], Timed(2.0, None, 0.02, 0.001)).get_output(0)
    x.name = "y"
    network.mark_output(x)
    plan = builder.build_plan(network, builder.create_builder_config())
    assert [step.kind for step in plan.manifest.programs[0].steps] == [
        "reformat",
        "plugin",
        "plugin",
        "plugin",
        "reformat",
    ]
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", Timed), "")
    from dovetail.build.builder import engine_from_plan

    engine = engine_from_plan(plan, runtime.get_plugin_registry())
    data = np.random.default_rng(0).random((1, 32, 8, 8), np.float32)
    np.testing.assert_allclose(engine(data), data * 8, rtol=1e-6)
