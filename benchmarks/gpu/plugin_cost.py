"""What a Python plugin in the middle of a model costs besides its own kernel.

The model is built as it is, with one plugin in the middle, and with two of them one after the other. What the second
adds is a plugin's own kernel inside of a captured graph; what the first adds more than that is the price of the cut: a
partition that ends there, and memory for what crosses it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.ours import PROVIDERS, bind_arrays, get_cuda
from benchmarks.gpu.peers import time_synchronised

__all__ = ["measure_plugin"]

PLUGIN = "BenchScale"
ROUNDS = 5


def measure_plugin(folder: Path, store: Path) -> dict[str, Any]:
    """The times of the model with no plugin, one and two, in milliseconds."""
    _register()
    get_cuda(store)
    runs = [_prepare(folder, store, count) for count in range(3)]
    # Rounds alternate, and the best of each is taken: what is compared is a few microseconds.
    rounds = [[time_synchronised(*run, seconds=0.5) for run in runs] for _ in range(ROUNDS)]
    times = {f"with_{count}": min(each) for count, each in enumerate(zip(*rounds, strict=True))}
    kernel_us = (times["with_2"] - times["with_1"]) * 1e3
    return {**times, "kernel_us": kernel_us, "extra_us": (times["with_1"] - times["with_0"]) * 1e3 - kernel_us}


def _prepare(folder: Path, store: Path, count: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What runs the model with so many plugins, and what waits for it."""
    import numpy as np

    import dovetail as dt

    config = dt.BuilderConfig()
    config.providers, config.layer_providers = PROVIDERS, {f"{PLUGIN}*": "cuda"} if count else {}
    config.provider_options = {"cuda": {"kernel_store": str(store / "kernels")}}
    config.timing_cache_path = store / "row.timing"
    engine = dt.compile(_insert(folder, count), config=config)
    provider, context = engine.providers["cuda"], engine.create_execution_context()
    arrays = np.load(folder / "inputs.npz")
    result = np.load(folder / "reference.npz")["arr_0"]
    bound = bind_arrays(engine, context, provider, arrays, result.shape)
    stream = provider.create_stream()
    return lambda: (context.execute_async_v3(stream.handle), bound), stream.synchronize


def _insert(folder: Path, count: int) -> Any:
    """The model with plugins after the Relu in its middle."""
    import onnx
    from onnx import helper

    model = onnx.load(str(folder / "model.onnx"))
    nodes = list(model.graph.node)
    places = [number for number, node in enumerate(nodes) if node.op_type == "Relu"]
    place = places[len(places) // 2]
    name = nodes[place].output[0]
    for number in range(count):
        made = f"{PLUGIN}_{number}"
        for node in model.graph.node:
            node.input[:] = [made if each == name else each for each in node.input]
        model.graph.node.insert(place + 1 + number, helper.make_node(PLUGIN, [name], [made], name=made, domain="bench"))
        name = made
    if count:
        model.opset_import.append(helper.make_opsetid("bench", 1))
    return model


def _register() -> None:
    """A plugin that multiplies by CuPy, on the stream that it is given."""
    import cupy

    import dovetail as dt
    from tests.support.plugins import ScalePlugin

    def open_array(address: int, desc: Any) -> Any:
        size = 2 * dt.volume(desc.dims)
        memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, size, None), 0)
        return cupy.ndarray(tuple(desc.dims), cupy.float16, memory)

    class Scale(ScalePlugin):
        formats = (dt.TensorFormat.LINEAR,)
        types = (dt.float16,)
        tactics = (1,)
        preferred_memory = "cuda"

        def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
            super().__init__(factor, calls)
            self.plugin_name, self.plugin_namespace = PLUGIN, ""

        def enqueue(
            self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
        ) -> None:
            source, target = open_array(inputs[0], input_desc[0]), open_array(outputs[0], output_desc[0])
            with cupy.cuda.ExternalStream(stream):
                cupy.multiply(source, cupy.float16(1), out=target)

    class Creator(dt.IPluginCreatorV3One):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version, self.plugin_namespace = PLUGIN, "1", ""
            self.field_names = dt.PluginFieldCollection([])

        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            return Scale()

    dt.get_plugin_registry().register_creator(Creator())
