"""Our side of a row: a plan is built with an empty and with a full timing cache, loaded, run and compared."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.gpu.decoding import ALIAS_PREFIXES
from benchmarks.gpu.peers import time_synchronised

__all__ = ["PROVIDERS", "bind_arrays", "build_row", "get_cuda", "run_row"]

PROVIDERS = ["cuda", "cpu"]


def build_row(folder: Path, store: Path) -> dict[str, Any]:
    """Build the plan and tell what it is made of."""
    import numpy as np

    import dovetail as dt

    store.mkdir(parents=True, exist_ok=True)
    get_cuda(store)
    config = dt.BuilderConfig()
    config.providers = PROVIDERS
    config.provider_options = {"cuda": {"kernel_store": str(store / "kernels")}}
    config.timing_cache_path = store / "row.timing"
    config.aliases = _find_aliases(folder)
    shapes = {name: array.shape for name, array in _name_inputs(folder, np.load(folder / "inputs.npz")).items()}
    start = time.perf_counter()
    with dt.compile(str(folder / "model.onnx"), shapes=shapes, config=config) as engine:
        built_s = time.perf_counter() - start
        engine.save(str(folder / "model.plan"))
        (folder / "launches.json").write_text(json.dumps(_list_launches(engine.manifest), indent=1))
        return {"build_s": built_s, **_describe(engine.manifest)}


def _name_inputs(folder: Path, arrays: Any) -> dict[str, Any]:
    """The inputs by the names that the exporter gave them."""
    import onnx

    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    return {value.name: arrays[f"arr_{number}"] for number, value in enumerate(model.graph.input)}


def _find_aliases(folder: Path) -> dict[str, str]:
    """Outputs that are caches which a step adds to."""
    import onnx

    (present, past), model = ALIAS_PREFIXES, onnx.load(str(folder / "model.onnx"), load_external_data=False)
    names = [value.name for value in model.graph.output if value.name.startswith(present)]
    return {name: past + name.removeprefix(present) for name in names}


def _list_launches(manifest: Any) -> list[list[Any]]:
    """Each thing that partitions do: operators, tactic and time."""
    reports = [step.partition.report for step in manifest.programs[0].steps if step.partition and step.partition.report]
    return [[node.op, node.tactic, node.time_us] for report in reports for node in report.nodes]


def _describe(manifest: Any) -> dict[str, Any]:
    steps = manifest.programs[0].steps
    return {
        "steps": dict(Counter(f"{step.provider} {step.kind}" for step in steps)),
        "elsewhere": dict(Counter(step.op for step in steps if step.provider != "cuda")),
        "reasons": dict(Counter(note.text for note in manifest.notes if note.provider == "cuda").most_common(20)),
        "launches": len(_list_launches(manifest)),
    }


def run_row(folder: Path) -> dict[str, Any]:
    """Load the plan where the device is open already, run it with everything on the device, and compare."""
    import numpy as np

    import dovetail as dt

    provider, load = get_cuda(None), dt.load  # the time to load has no imports in it
    provider.create_stream().synchronize()  # opens the device
    start = time.perf_counter()
    engine = load(str(folder / "model.plan"))
    context = engine.create_execution_context()
    load_ms = (time.perf_counter() - start) * 1e3
    inputs, reference = np.load(folder / "inputs.npz"), np.load(folder / "reference.npz")["arr_0"]
    place = bind_arrays(engine, context, provider, inputs, reference.shape)
    stream = provider.create_stream()
    ms = time_synchronised(lambda: context.execute_async_v3(stream.handle), stream.synchronize)
    result = np.empty(reference.shape, np.float16)
    provider.copy(place, result, None)
    difference = result.astype(np.float64) - reference
    return {"ms": ms, "load_ms": load_ms, "error": float(np.linalg.norm(difference) / np.linalg.norm(reference))}


def bind_arrays(engine: Any, context: Any, provider: Any, inputs: Any, shape: tuple[int, ...]) -> Any:
    """Put inputs on the device, and room for the one output that lies in none of them, which is given back."""
    import numpy as np

    places = {
        tensor.name: _bind(context, provider, tensor.name, inputs[f"arr_{number}"])
        for number, tensor in enumerate(engine.manifest.inputs)
    }
    for tensor in engine.manifest.outputs[1:]:
        context.set_tensor_address(tensor.name, places[tensor.alias].address)
    return _bind(context, provider, engine.manifest.outputs[0].name, np.full(shape, np.nan, np.float16))


def _bind(context: Any, provider: Any, name: str, array: Any) -> Any:
    """Put an array on the device, for one tensor of the context."""
    place = provider.array_at(provider.allocator.allocate(array.nbytes, 256, 0), array.shape, array.dtype)
    provider.copy(array, place, None)
    context.set_tensor_address(name, place.address)
    return place


def get_cuda(store: Path | None) -> Any:
    """The provider, whether its package is installed or only on the path."""
    from dovetail.provider.loader import get_provider, has_provider, register_provider
    from dovetail_cuda.provider import CudaFactory

    if not has_provider("cuda"):
        register_provider(CudaFactory())
    return get_provider("cuda", {"kernel_store": str(store / "kernels")} if store else {})
