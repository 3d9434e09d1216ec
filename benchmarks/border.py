"""What the border between Dovetail and ONNX Runtime costs: microseconds per run, input, output and partition.

Every side runs in a process of its own, which tells its best time of thirty; the sides alternate, and a figure is the
median over the rounds. These are differences of a few microseconds, which an average would lose among the pauses that
other programs cause. The nodes are ``Relu`` over 64 floats, so that what is left is the border, and the plugin only
copies; what it takes when it is called directly is taken off.

A chain of matrix products that ten plugins cut into eleven partitions is measured with the default options, where every
session has threads that sleep between its runs, and with ``pool=process``, which is what the documentation advises for
such a model and what the limit is judged on. The same for convolutions is for information: ONNX Runtime keeps images in
a layout of its own inside a session and reorders them at every border, so their rows tell more than the border. The
last rows are a custom operator over 1,024 floats in the middle of a model, beside the same operator in Python under
onnxruntime-extensions, whose time grows with every element that goes through it.

    python benchmarks/border.py [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.wheels import FetchError, fetch_package

__all__ = ["LIMITS", "derive", "main", "measure_sides"]

STAGES = 11
CUTS = STAGES - 1
SHAPE = (4, 16)
CUSTOM_SHAPE = (8, 128)
IMAGE = (1, 32, 56, 56)
ROWS = (128, 768)
ONE_POOL = {"onnxruntime": {"pool": "process"}}
SIDES = {
    "run_1": "ONNX Runtime, 1 in and out",
    "run_8": "ONNX Runtime, 8 in and out",
    "whole_1": "Dovetail, 1 in and out",
    "whole_8": "Dovetail, 8 in and out",
    "cut_1": "Dovetail in 11 partitions, 1 value each",
    "cut_8": "Dovetail in 11 partitions, 8 values each",
    "copy_1": "the plugin alone, 1 value",
    "copy_8": "the plugin alone, 8 values",
    "products": "matrix products, whole",
    "products_cut": "matrix products in 11 partitions",
    "products_pool": "the same with pool=process",
    "products_copy": "the plugin alone, 1 matrix",
    "images": "convolutions, whole",
    "images_cut": "convolutions in 11 partitions",
    "images_pool": "the same with pool=process",
    "images_copy": "the plugin alone, 1 image",
    "custom": "a custom operator between two nodes",
    "custom_plain": "the same without it",
    "custom_alone": "the custom operator alone",
    "extensions": "the same in onnxruntime-extensions",
}
BORDER, CUT, EXTENSIONS = (
    "border of a custom operator, us",
    "cut in 11, pool=process, times whole and plugins",
    "custom op, times ORT's",
)
CUT_BY_DEFAULT = "cut in 11, default options, times whole"
CUT_IMAGES = "convolutions cut, pool=process (reorders too)"
CUT_IMAGES_BY_DEFAULT = "convolutions cut, default options"
LIMITS = {BORDER: 20.0, CUT: 1.1, EXTENSIONS: 1.05}


# models


def _model(nodes: list[Any], values: int, shape: tuple[int, ...], weights: list[Any], domain: str = "bench") -> Any:
    from onnx import TensorProto, helper

    def port(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes, "border", [port(f"x{i}") for i in range(values)], [port(f"y{i}") for i in range(values)], weights
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _lanes(values: int, *, cut: bool) -> Any:
    """Stages of one node a value, with a plugin between them or without."""
    from onnx import helper

    nodes, names = [], [f"x{i}" for i in range(values)]
    for stage in range(STAGES):
        made = [f"s{stage}_{i}" if stage < CUTS else f"y{i}" for i in range(values)]
        nodes += [helper.make_node("Relu", [name], [new]) for name, new in zip(names, made, strict=True)]
        names = made
        if cut and stage < CUTS:
            names = [f"c{stage}_{i}" for i in range(values)]
            nodes.append(helper.make_node(f"BorderCopy{values}", made, names, domain="bench"))
    return _model(nodes, values, SHAPE, [])


def _single(values: int) -> Any:
    from onnx import helper

    return _model([helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(values)], values, SHAPE, [])


def _products(*, cut: bool) -> Any:
    return _stages("MatMul", ROWS, (ROWS[1], ROWS[1]), cut=cut)


def _images(*, cut: bool) -> Any:
    return _stages("Conv", IMAGE, (IMAGE[1], IMAGE[1], 3, 3), cut=cut, pads=[1, 1, 1, 1])


def _stages(op: str, shape: tuple[int, ...], weight_shape: tuple[int, ...], *, cut: bool, **attributes: Any) -> Any:
    """Stages of one operator with a weight and a ``Relu``, with a plugin between them or without."""
    from onnx import helper, numpy_helper

    rng, nodes, weights, name = np.random.default_rng(0), [], [], "x0"
    scale = np.float32(np.prod(weight_shape[1:]) ** -0.5)
    for stage in range(STAGES):
        weights.append(numpy_helper.from_array(rng.standard_normal(weight_shape, np.float32) * scale, f"w{stage}"))
        nodes.append(helper.make_node(op, [name, f"w{stage}"], [f"v{stage}"], **attributes))
        nodes.append(helper.make_node("Relu", [f"v{stage}"], [f"r{stage}" if stage < CUTS else "y0"]))
        name = f"r{stage}"
        if cut and stage < CUTS:
            nodes.append(helper.make_node("BorderCopy1", [name], [f"c{stage}"], domain="bench"))
            name = f"c{stage}"
    return _model(nodes, 1, shape, weights)


def _custom(op: str, domain: str) -> Any:
    """Two nodes with another between them: the custom operator, or an ``Identity`` that costs nothing."""
    from onnx import helper

    nodes = [
        helper.make_node("Relu", ["x0"], ["a"]),
        helper.make_node(op, ["a"], ["b"], domain=domain),
        helper.make_node("Relu", ["b"], ["y0"]),
    ]
    return _model(nodes, 1, CUSTOM_SHAPE, [], domain or "bench")


# sides


def _copy(*arrays: Any) -> Any:
    copies = tuple(array.copy() for array in arrays)
    return copies if len(copies) > 1 else copies[0]


def _copy_8(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    return _copy(a, b, c, d, e, f, g, h)


def _copy_1(x: Any) -> Any:
    return _copy(x)


def _twice(x: Any) -> Any:
    return x + x


def _engine(model: Any, options: dict[str, dict[str, str]]) -> Any:
    import dovetail as dt

    dt.layer("BorderCopy1")(_copy_1)
    dt.layer("BorderCopy8", outputs=8, shape=lambda a, b, c, d, e, f, g, h: (a, b, c, d, e, f, g, h))(_copy_8)
    dt.layer("BorderTwice")(_twice)
    config = dt.BuilderConfig()
    config.provider_options = options
    return dt.compile(model, config=config)


def _session(model: Any, library: str | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if library is not None:
        options.register_custom_ops_library(library)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _extensions() -> Callable[[], Any]:
    sys.path.insert(0, str(fetch_package("onnxruntime-extensions")))
    from onnxruntime_extensions import PyCustomOpDef, get_library_path, onnx_op

    onnx_op(op_type="BorderTwice", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])(_twice)
    session = _session(_custom("BorderTwice", "ai.onnx.contrib"), get_library_path())
    feeds = {"x0": np.ones(CUSTOM_SHAPE, np.float32)}
    return lambda: session.run(None, feeds)


_SHAPES = {"products": ROWS, "images": IMAGE, "custom": CUSTOM_SHAPE}


def _side(name: str) -> Callable[[], Any]:
    kind, _, count = name.partition("_")
    values = int(count) if count.isdigit() else 1
    arrays = [np.ones(_SHAPES.get(kind, SHAPE), np.float32) for _ in range(values)]
    if kind == "run":
        session = _session(_single(values))
        feeds = {f"x{i}": array for i, array in enumerate(arrays)}
        return lambda: session.run(None, feeds)
    if name == "extensions":
        return _extensions()
    if kind == "copy" or count == "copy":
        return lambda: _copy(*arrays)
    if name == "custom_alone":
        return lambda: _twice(arrays[0])
    models: dict[str, Callable[[], Any]] = {
        "whole": lambda: _single(values),
        "cut": lambda: _lanes(values, cut=True),
        "products": lambda: _products(cut=bool(count)),
        "images": lambda: _images(cut=bool(count)),
        "custom": lambda: _custom("Identity", "") if count else _custom("BorderTwice", "bench"),
    }
    engine = _engine(models[kind](), ONE_POOL if count == "pool" else {})
    return lambda: engine(*arrays)


def _best_us(run: Callable[[], Any], budget_s: float) -> float:
    run()
    start = time.perf_counter()
    for _ in range(20):
        run()
    number = max(1, int(budget_s / 30 / ((time.perf_counter() - start) / 20)))
    times = []
    for _ in range(30):
        start = time.perf_counter_ns()
        for _ in range(number):
            run()
        times.append((time.perf_counter_ns() - start) / number / 1000)
    return min(times)


def measure_sides(rounds: int, budget_s: float = 0.5) -> dict[str, float]:
    """Microseconds of each side; one that cannot be had is left out."""
    samples: dict[str, list[float]] = {name: [] for name in SIDES}
    try:
        fetch_package("onnxruntime-extensions")
    except FetchError as error:
        print(f"onnxruntime-extensions is left out: {error}", file=sys.stderr)
        del samples["extensions"]
    for _ in range(rounds):
        for name, values in samples.items():
            command = [sys.executable, __file__, "--worker", name, str(budget_s)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
            values.append(json.loads(done.stdout.splitlines()[-1]))
    return {name: statistics.median(values) for name, values in samples.items()}


def derive(sides: dict[str, float]) -> dict[str, float]:
    """The figures that matter, from the medians."""
    extra_1, extra_8 = sides["whole_1"] - sides["run_1"], sides["whole_8"] - sides["run_8"]
    parts = {n: (sides[f"cut_{n}"] - sides[f"whole_{n}"]) / CUTS - sides[f"copy_{n}"] for n in (1, 8)}
    figures = {
        "a run of a whole model, us over ONNX Runtime's": extra_1,
        "each further input and output, us": (extra_8 - extra_1) / 7,
        "each further partition and plugin, us": parts[1],
        "each further value between two, us": (parts[8] - parts[1]) / 7,
        BORDER: sides["custom"] - sides["custom_plain"] - sides["custom_alone"],
        CUT: _times_whole(sides, "products", "pool"),
        CUT_BY_DEFAULT: _times_whole(sides, "products", "cut"),
        CUT_IMAGES: _times_whole(sides, "images", "pool"),
        CUT_IMAGES_BY_DEFAULT: _times_whole(sides, "images", "cut"),
    }
    if "extensions" in sides:
        figures[EXTENSIONS] = sides["custom"] / sides["extensions"]
    return figures


def _times_whole(sides: dict[str, float], kind: str, cut: str) -> float:
    return sides[f"{kind}_{cut}"] / (sides[kind] + CUTS * sides[f"{kind}_copy"])


def main() -> None:
    """Print the table, or as a worker one side of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each side")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each process runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--worker", nargs=2, metavar=("SIDE", "SECONDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(_best_us(_side(args.worker[0]), float(args.worker[1]))))
        return
    sides = measure_sides(args.rounds, args.seconds)
    figures = derive(sides)
    if args.json:
        print(json.dumps({"sides_us": sides, "figures": figures, "limits": LIMITS}))
        return
    for name, value in sides.items():
        print(f"{SIDES[name]:<48} {value:10.2f} us")
    for name, value in figures.items():
        limit = LIMITS.get(name)
        verdict = "" if limit is None else f"  limit {limit:g}: {'met' if value <= limit else 'MISSED'}"
        print(f"{name:<48} {value:10.2f}{verdict}")


if __name__ == "__main__":
    main()
