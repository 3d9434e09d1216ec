"""What the engine costs around a plugin: microseconds per run and per further step.

Each side runs in a process of its own, the sides alternate, and the figure is the median of their medians. The plugin
does next to nothing, so what is left is the engine; a kernel step is a ``Relu`` over 96 floats, its work included.
All runs in one thread and waits for nothing, so the smaller of wall and processor time counts: on a machine that
others use too, the wall clock shows their work.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import dovetail as dt

__all__ = ["LIMITS_US", "derive", "main", "measure_sides"]

SHAPE = (2, 3, 4, 4)
KERNEL = "each further kernel, kernel included"
MOVED = "other addresses over the same"
LENGTHS = (1, 100)
"""Steps of the programs whose buffers and shapes change."""
CHANGES = {"buffers": 6.0, "shapes": 10.0}
"""What changes from call to call of ``engine(x)``, and how much more than the same buffers that may cost in us."""
LIMITS_US = {
    "engine(x) over enqueue": 20.0,
    "context over enqueue": 20.0,
    MOVED: 10.0,
    "each further plugin": 3.0,
    KERNEL: 3.0,
    **{f"other {what}, {steps} steps": limit for what, limit in CHANGES.items() for steps in LENGTHS},
}
SIDES = (
    *("direct", "engine", "context", "moved", "plugins_1", "plugins_11", "kernels_0", "kernels_10"),
    *(f"{what}_{steps}" for what in CHANGES for steps in LENGTHS),
)


class Nothing(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """A plugin whose enqueue only counts, so that every microsecond is the engine's."""

    def __init__(self) -> None:
        self.plugin_name, self.plugin_version, self.plugin_namespace = "BenchNothing", "1", ""
        self.num_outputs = 1
        self.count = 0

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> Any:
        return Nothing()

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.format == dt.TensorFormat.LINEAR)

    def configure_plugin(self, inputs: Any, outputs: Any) -> None:
        """Nothing to configure."""

    def on_shape_change(self, inputs: Any, outputs: Any) -> None:
        """Nothing to prepare."""

    def set_tactic(self, tactic: int) -> None:
        """There is one way only."""

    def attach_to_context(self, context: Any) -> Any:
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        return dt.PluginFieldCollection([])

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.count += 1


class NothingCreator(dt.IPluginCreatorV3One):
    """Makes the plugin above."""

    def __init__(self) -> None:
        self.name, self.plugin_version, self.plugin_namespace = "BenchNothing", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return Nothing()


def _engine(plugins: int, kernels: int) -> Any:
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, SHAPE)
    for _ in range(plugins):
        tensor = network.add_plugin_v3([tensor], [], Nothing()).get_output(0)
    for _ in range(kernels):
        tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    tensor.name = "y"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ("cpu",)  # one step a layer, so that steps can be counted
    config.run_plugins = False  # the plugin writes nothing
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(NothingCreator(), "")
    return runtime.deserialize_cuda_engine(builder.build_serialized_network(network, config))


def _low_level(engine: Any, x: Any, y: Any) -> Callable[[], Any]:
    context = engine.create_execution_context()
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    return lambda: context.execute_async_v3(0)


def _moving(engine: Any) -> Callable[[], Any]:
    """A context whose input and output lie elsewhere in every run."""
    context = engine.create_execution_context()
    buffers = [(np.ones(SHAPE, np.float32), np.empty(SHAPE, np.float32)) for _ in range(2)]
    addresses = [(x.ctypes.data, y.ctypes.data) for x, y in buffers]

    def run(keep: Any = buffers) -> None:
        addresses.reverse()
        x, y = addresses[0]
        context.set_tensor_address("x", x)
        context.set_tensor_address("y", y)
        context.execute_async_v3(0)

    return run


def _relus(steps: int) -> Any:
    """An engine of so many kernels over any number of rows."""
    builder = dt.Builder()
    network = builder.create_network()
    tensor = network.add_input("x", dt.float32, (-1, 16))
    for _ in range(steps):
        tensor = network.add_activation(tensor, dt.ActivationType.RELU).get_output(0)
    network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ("cpu",)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 16), (4, 16), (8, 16))
    config.add_optimization_profile(profile)
    return dt.Runtime().deserialize_cuda_engine(builder.build_serialized_network(network, config))


def _changing(what: str, steps: int) -> Callable[[], Any]:
    """Calls over the same input, over others of its shape whose results are kept, or over eight shapes in turn."""
    engine = _relus(steps)
    rows = range(1, 9) if what == "shapes" else [4] * (1 if what == "same" else 64)
    inputs = itertools.cycle([np.ones((count, 16), np.float32) for count in rows])
    kept: deque[Any] = deque(maxlen=64 if what == "buffers" else 1)
    return lambda: kept.append(engine(next(inputs)))


def _side(name: str) -> Callable[[], Any]:
    x, y = np.ones(SHAPE, np.float32), np.empty(SHAPE, np.float32)
    if name == "direct":
        plugin = Nothing()
        desc = dt.PluginTensorDesc(SHAPE)
        arguments = ([desc], [desc], [x.ctypes.data], [y.ctypes.data], 0, 0)
        return lambda: plugin.enqueue(*arguments)
    if name == "engine":
        engine = _engine(1, 0)
        return lambda: engine(x)
    if name == "moved":
        return _moving(_engine(1, 0))
    kind, _, count = name.partition("_")
    plugins = int(count) if kind == "plugins" else 1
    run = _low_level(_engine(plugins, int(count) if kind == "kernels" else 0), x, y)
    return lambda keep=(x, y): run()  # the addresses are only good while the arrays live


def _median_us(run: Callable[[], Any], rounds: int = 30, number: int = 300) -> float:
    for _ in range(100):
        run()
    times = []
    for _ in range(rounds):
        wall, processor = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(number):
            run()
        taken_ns = min(time.perf_counter_ns() - wall, time.process_time_ns() - processor)
        times.append(taken_ns / number / 1000)
    return statistics.median(times)


def _excess_us(what: str, steps: int) -> float:
    """How much more calls with changes take; both kinds take turns, for processes differ by more than that."""
    kinds = {kind: _changing(kind, steps) for kind in ("same", what)}
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(12):
        for kind, run in kinds.items():
            times[kind].append(_median_us(run, rounds=3, number=60))
    return min(times[what]) - min(times["same"])


def measure_sides(repeats: int = 3) -> dict[str, float]:
    """Median microseconds of each side, each time in a fresh process, sides alternating."""
    samples: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(repeats):
        for name in SIDES:
            done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
            samples[name].append(json.loads(done.stdout))
    return {name: statistics.median(values) for name, values in samples.items()}


def derive(sides: dict[str, float]) -> dict[str, float]:
    """The figures that matter, from the medians."""
    return {
        "engine(x) over enqueue": sides["engine"] - sides["direct"],
        "context over enqueue": sides["context"] - sides["direct"],
        MOVED: sides["moved"] - sides["context"],
        "each further plugin": (sides["plugins_11"] - sides["plugins_1"]) / 10,
        KERNEL: (sides["kernels_10"] - sides["kernels_0"]) / 10,
        **{f"other {what}, {steps} steps": sides[f"{what}_{steps}"] for what in CHANGES for steps in LENGTHS},
    }


def main() -> None:
    """Print the table, or as a process of its own one side of it."""
    if len(sys.argv) > 1:
        kind, _, count = sys.argv[1].partition("_")
        print(json.dumps(_excess_us(kind, int(count)) if kind in CHANGES else _median_us(_side(sys.argv[1]))))
        return
    sides = measure_sides()
    for name, value in sides.items():
        print(f"{name:<40} {value:8.2f} us")
    for name, value in derive(sides).items():
        limit = LIMITS_US[name]
        print(f"{name:<40} {value:8.2f} us  limit {limit:4.0f} us: {'met' if value <= limit else 'MISSED'}")


if __name__ == "__main__":
    main()
