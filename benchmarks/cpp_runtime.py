"""What a run costs from C++ over the same run from Python, and what a start costs.

python benchmarks/cpp_runtime.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import dovetail as dt

__all__ = ["LIMITS_US", "build_program", "derive", "measure", "save_plan"]

LIMITS_US = {"bound": 5.0, "thread": 5.0, "taken": 20.0, "changed": 30.0}
"""What a run from C++ may cost over ``execute_async_v3`` (the first two) and over ``engine(x)``."""


def save_plan(path: Path) -> None:
    """A plan of one small kernel, so that a run is mostly the engine."""
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 96])] for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    dt.compile(model, providers=["cpu"]).save(path)


def build_program(folder: Path) -> Path:
    """Compile the C++ side."""
    answer = subprocess.run(
        [sys.executable, "-m", "dovetail", "runtime-flags", "--json"], check=True, capture_output=True, text=True
    )
    flags = json.loads(answer.stdout)
    source, program = Path(__file__).with_suffix(".cpp"), folder / "cpp_runtime"
    compiler = shutil.which("g++") or "g++"
    subprocess.run([compiler, "-O2", source, *flags["compile"], *flags["link"], "-o", program], check=True)
    return program


def measure(program: Path, plan: Path) -> dict[str, float]:
    """The figures of both sides."""
    done = subprocess.run([program, plan], check=True, capture_output=True, text=True)
    return {**json.loads(done.stdout), **_measure_python(plan)}


def _measure_python(plan: Path) -> dict[str, float]:
    x = np.zeros((1, 96), np.float32)
    y = np.empty_like(x)
    with dt.load(plan) as engine:
        context = engine.create_execution_context()
        context.set_input_shape("x", x.shape)
        context.set_tensor_address("x", x.ctypes.data)
        context.set_tensor_address("y", y.ctypes.data)
        return {"execute_us": _best(lambda: context.execute_async_v3(0)), "engine_us": _best(lambda: engine(x))}


def _best(act: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(30):
        begin = time.perf_counter()
        for _ in range(1000):
            act()
        best = min(best, (time.perf_counter() - begin) * 1e3)
    return best


def derive(figures: dict[str, float]) -> dict[str, float]:
    """What C++ costs over Python, by the names of the limits."""
    over = {"bound": "execute_us", "thread": "execute_us", "taken": "engine_us", "changed": "engine_us"}
    return {name: figures[f"{name}_us"] - figures[base] for name, base in over.items()}


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "relu.plan")
        save_plan(plan)
        figures = measure(build_program(Path(folder)), plan)
    for name, value in (figures | {f"{name} over it": cost for name, cost in derive(figures).items()}).items():
        print(f"{name:20} {value:8.2f}")


if __name__ == "__main__":
    main()
