"""What a Python plugin in the middle of a model costs besides its own kernel.

The model is built as it is, with one plugin in the middle, and with two of them one after the other. What the second
adds is a plugin's own kernel inside of a captured graph; what the first adds more than that is the price of the cut: a
partition that ends there, and memory for what crosses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.ours import PROVIDERS, bind_arrays, get_cuda
from benchmarks.gpu.peers import time_synchronised

__all__ = ["describe_cost", "time_with_plugins"]

PLUGIN = "BenchScale"


def describe_cost(times_ms: Sequence[float]) -> dict[str, float]:
    """What a plugin costs, from the times with none, one and two of them in milliseconds."""
    none, one, two = times_ms
    kernel_us = (two - one) * 1e3
    times = {f"with_{count}": time for count, time in enumerate(times_ms)}
    return {**times, "kernel_us": kernel_us, "extra_us": (one - none) * 1e3 - kernel_us}


def time_with_plugins(folder: Path, store: Path, count: int) -> dict[str, float]:
    """The time of the model with so many plugins, in milliseconds, alone in its process."""
    _register()
    get_cuda(store)
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
    time_ms = time_synchronised(lambda: context.execute_async_v3(stream.handle), stream.synchronize)
    del bound  # the output's memory, which the runs wrote to
    return {"ms": time_ms}


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
