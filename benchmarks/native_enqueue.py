"""What a call of ``enqueue`` of a C++ plugin costs beyond its work: microseconds from Python into the library and back.

The plugin copies six numbers. The call is the one that an engine makes in each run: descriptors are prepared when
shapes are bound, and a run fills in addresses.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dovetail as dt
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import make_compiler

__all__ = ["LIMIT_US", "main", "measure_us"]

LIMIT_US = 6.0
ROUNDS = 20
CALLS = 2000
SHAPE = (2, 3)


def measure_us() -> float:
    """The best round: a machine that others use too makes single calls slower, never faster."""
    with tempfile.TemporaryDirectory() as folder:
        library = PluginRegistry().load_library(make_compiler(Path(folder))("safe", "-O2"))
        plugin = library.creators[0].create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.RUNTIME)
        runtime = plugin.get_capability_interface(dt.PluginCapabilityType.RUNTIME)
        desc = dt.PluginTensorDesc(SHAPE, dt.float32, dt.TensorFormat.LINEAR)
        enqueue = runtime.prepare_enqueue([desc], [desc])
        x, y = np.ones(SHAPE, np.float32), np.zeros(SHAPE, np.float32)
        inputs, outputs = [x.ctypes.data], [y.ctypes.data]
        return min(_time_us(lambda: enqueue(inputs, outputs, 0, 0)) for _ in range(ROUNDS))


def _time_us(action: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        action()
    return (time.process_time() - start) / CALLS * 1e6


def main() -> None:
    """Print the figure."""
    print(f"enqueue of a C++ plugin: {measure_us():.2f} us a call, limit {LIMIT_US} us")


if __name__ == "__main__":
    main()
