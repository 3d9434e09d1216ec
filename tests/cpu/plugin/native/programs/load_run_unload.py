"""Load a plugin library, run a plan with it and unload it, many times; prints by how many bytes memory grew.

Arguments: the library, the name of a plugin that takes a float input of two dimensions, and how many times. Under
AddressSanitizer every wrong access ends the process, and memory is counted by its allocator; else by the C library's.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np

import dovetail as dt
from dovetail.plugin.check.host.memory import count_heap_bytes
from dovetail.plugin.native.call_memory import new_call_memory

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WARM_UP = 20
NUM_RETAINED_BLOCKS = 10_000
"""More blocks of overwritten memory than are retained, so that further ones replace older ones."""


def build_plan(path: Path, name: str) -> bytes:
    registry = dt.get_plugin_registry()
    library = registry.load_library(path)
    plugin = registry.get_creator(name, library.creators[0].plugin_version).create_plugin(
        "p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD
    )
    builder = dt.Builder()
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, X.shape)], [], plugin)
    network.mark_output(layer.get_output(0))
    plan = bytes(builder.build_serialized_network(network, builder.create_builder_config()))
    registry.deregister_library(library)
    return plan


def run_once(path: Path, plan: bytes) -> np.ndarray:
    registry = dt.get_plugin_registry()
    library = registry.load_library(path)
    result = np.array(dt.Runtime().deserialize_cuda_engine(plan)(X))
    registry.deregister_library(library)
    return result


def count_bytes() -> int:
    """What is allocated now."""
    gc.collect()
    count = getattr(ctypes.CDLL(None), "__sanitizer_get_current_allocated_bytes", None)
    if count is None:
        return count_heap_bytes()
    count.restype = ctypes.c_size_t
    return int(count())


def fill_retained_memory() -> None:
    """Reach the limit of overwritten memory, whose growth up to there is not a leak."""
    for _ in range(NUM_RETAINED_BLOCKS):
        with new_call_memory() as memory:
            memory.allocate(16, "a field")


def main() -> None:
    path, name, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    plan = build_plan(path, name)
    expected = run_once(path, plan)
    fill_retained_memory()
    before = 0
    for number in range(WARM_UP + times):
        if number == WARM_UP:
            before = count_bytes()
        assert np.array_equal(run_once(path, plan), expected)
        gc.collect()
        assert str(path) not in Path("/proc/self/maps").read_text(encoding="utf-8"), "the library is still loaded"
    print(count_bytes() - before)


if __name__ == "__main__":
    main()
