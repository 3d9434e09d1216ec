"""What Dovetail costs inside ONNX Runtime: us a run that the execution provider adds, and under a busy interpreter.

The overhead of a partition is a run of a session on this execution provider, less a run of ``Identity`` with the same
inputs and outputs on ONNX Runtime's own, less the engine's ``execute_async_v3`` on the same buffers. Each side runs in
processes of its own, which alternate, and the smallest median of all batches counts: other work only ever adds.

A custom operator in a real model is too small a part of the whole for that. There the sessions have no threads of their
own, take turns in one process, and the operator by itself is timed right after a run of the model: what follows a model
finds the caches full of other things, in ONNX Runtime as in Dovetail. The batch that is in the middle counts.

    python benchmarks/ort_ep.py                 the table
    python benchmarks/ort_ep.py --rounds 9      steadier
    python benchmarks/ort_ep.py --json          for a program
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

__all__ = ["LIMITS", "derive", "main", "measure_sides"]

SHAPE = (4, 16)
SIDES = {
    "ep_1": "Session.run on Dovetail, 1 in and out",
    "ep_8": "Session.run on Dovetail, 8 in and out",
    "cpu_1": "Session.run on the CPU, Identity, 1 in and out",
    "cpu_8": "Session.run on the CPU, Identity, 8 in and out",
    "execute_1": "execute_async_v3 alone, 1 in and out",
    "execute_8": "execute_async_v3 alone, 8 in and out",
}
LENGTHS = (1, 100)
"""Steps of the programs whose buffers and shapes change."""
CHANGES = {"buffers": 6.0, "shapes": 10.0}
"""What changes from run to run of a session, and how much more than the same buffers that may cost in us."""
SIDES |= {
    f"{what}_{steps}": f"{steps} steps, {text}"
    for steps in LENGTHS
    for what, text in {"same": "the same input", "buffers": "other buffers", "shapes": "eight shapes in turn"}.items()
}
MODEL_SIDES = {
    "model": "a real model with Softsign in the middle, on the CPU",
    "op": "the custom op by itself, after the model",
    "model_op": "the model with the custom op in its place",
}
LIMITS = {
    "overhead, 1 in and out": 3.0,
    "overhead, 8 in and out": 6.0,
    "a custom op in a real model, over the model and the op": 16.0,
    **{f"other {what}, {steps} steps": limit for what, limit in CHANGES.items() for steps in LENGTHS},
}
_BATCHES = 6


def _model(op: str, values: int) -> bytes:
    from onnx import helper

    ports = [[helper.make_tensor_value_info(f"{n}{i}", 1, SHAPE) for i in range(values)] for n in "xy"]
    nodes = [helper.make_node(op, [f"x{i}"], [f"y{i}"]) for i in range(values)]
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(
        helper.make_graph(nodes, "g", *ports), opset_imports=opsets, ir_version=10
    ).SerializeToString()


def _settings(threads: int) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = threads
    return settings


def _session(model: bytes, threads: int = 0, **options: str) -> Any:
    import onnxruntime

    import onnxruntime_ep_dovetail

    onnxruntime.register_execution_provider_library("dovetail", onnxruntime_ep_dovetail.get_library_path())
    name = onnxruntime_ep_dovetail.get_ep_name()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    settings = _settings(threads)
    settings.add_provider_for_devices(devices[:1], options)
    return onnxruntime.InferenceSession(model, settings)


def _feeds(values: int) -> dict[str, Any]:
    return {f"x{i}": np.ones(SHAPE, np.float32) for i in range(values)}


def _execute(values: int) -> Callable[[], Any]:
    import dovetail

    engine = dovetail.compile(_model("Relu", values), providers=["cpu"])
    context = engine.create_execution_context()
    arrays = {name: np.ones(SHAPE, np.float32) for name in engine.tensor_names}
    for name, array in arrays.items():
        context.set_tensor_address(name, array.ctypes.data)
    return lambda: (context.execute_async_v3(0), arrays)


def _twice(x: Any) -> Any:
    return x + x


def _real_model(*, with_op: bool) -> tuple[bytes, dict[str, Any]]:
    """A small real model with one more operator in the middle, of a plugin or of ONNX Runtime."""
    import onnx

    from benchmarks.cpu import ROWS

    row = next(row for row in ROWS if row.name == "vad_openvino_16k")
    model = onnx.load(row.file())
    _insert_op(model, is_custom=with_op)
    return model.SerializeToString(), {name: one.make() for name, one in row.inputs.items()}


def _middle_node(model: Any) -> Any:
    floats = [node for node in model.graph.node if node.op_type in ("Add", "Mul", "Gelu", "Conv", "MatMul")]
    return floats[len(floats) // 2]


def _middle_value() -> Any:
    """What the custom op gets."""
    import onnx
    import onnxruntime

    data, feeds = _real_model(with_op=False)
    model = onnx.load_from_string(data)
    name = next(node.input[0] for node in model.graph.node if node.op_type == "Softsign")
    model.graph.output.append(onnx.ValueInfoProto(name=name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run([name], feeds)[0]


def _insert_op(model: Any, *, is_custom: bool) -> None:
    """Put an operator there; any one costs the fusions across it, and a plain one also the layout of convolutions."""
    from onnx import helper

    middle = _middle_node(model)
    index = list(model.graph.node).index(middle)
    name = middle.output[0]
    middle.output[0] = f"{name}_before"
    value = middle.output[0]
    custom = helper.make_node("BenchTwice", [value], [name], domain="trt.plugins")
    model.graph.node.insert(index + 1, custom if is_custom else helper.make_node("Softsign", [value], [name]))
    model.opset_import.append(helper.make_opsetid("trt.plugins", 1))


def _model_session(*, with_op: bool) -> Callable[[], Any]:
    data, feeds = _real_model(with_op=with_op)
    session = _session(data, threads=1) if with_op else _cpu_session(data, threads=1)
    return lambda: session.run(None, feeds)


def _cpu_session(model: bytes, threads: int = 0) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(model, _settings(threads), providers=["CPUExecutionProvider"])


def _compare_models(budget_s: float) -> dict[str, float]:
    """The medians of the three sides, in us, of the batch in the middle."""
    import dovetail

    dovetail.layer("BenchTwice")(_twice)
    array = _middle_value()
    runs = {
        "model": _model_session(with_op=False),
        "op": lambda: _twice(array),
        "model_op": _model_session(with_op=True),
    }
    return _middle([_time_turns(runs, budget_s / _BATCHES) for _ in range(_BATCHES)])


def _middle(batches: list[dict[str, float]]) -> dict[str, float]:
    return sorted(batches, key=_excess)[len(batches) // 2]


def _time_turns(runs: dict[str, Callable[[], Any]], budget_s: float) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter_ns()
            run()
            times[name].append((time.perf_counter_ns() - start) / 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def _excess(sides: dict[str, float]) -> float:
    return sides["model_op"] - sides["model"] - sides["op"]


def _chain(steps: int) -> bytes:
    from onnx import helper

    names = ["x", *(f"v{i}" for i in range(1, steps)), "y"]
    nodes = [helper.make_node("Relu", [one], [other]) for one, other in itertools.pairwise(names)]
    ports = [helper.make_tensor_value_info(name, 1, ["n", 16]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _changing(what: str, steps: int) -> Callable[[], Any]:
    """Runs over the same input, over others of its shape whose results are kept, or over eight shapes in turn."""
    session = _session(_chain(steps), claim="all", providers="cpu")
    rows = range(1, 9) if what == "shapes" else [4] * (1 if what == "same" else 64)
    feeds = itertools.cycle([{"x": np.ones((count, 16), np.float32)} for count in rows])
    kept: deque[Any] = deque(maxlen=64 if what == "buffers" else 1)
    return lambda: kept.append(session.run(None, next(feeds)))


def _side(name: str) -> Callable[[], Any]:
    kind, _, count = name.partition("_")
    if kind in ("same", *CHANGES):
        return _changing(kind, int(count))
    if kind == "execute":
        return _execute(int(count))
    if kind == "cpu":
        session = _cpu_session(_model("Identity", int(count)))
    else:
        session = _session(_model("Relu", int(count)), claim="all")
    feeds = _feeds(int(count))
    return lambda: session.run(None, feeds)


def _median_us(run: Callable[[], Any], budget_s: float) -> float:
    """The best median of a few batches."""
    for _ in range(50):
        run()
    return min(_time_batch(run, budget_s / _BATCHES) for _ in range(_BATCHES))


def _time_batch(run: Callable[[], Any], budget_s: float) -> float:
    times, end = [], time.perf_counter() + budget_s
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


def _contention(interval_s: float, budget_s: float) -> dict[str, float]:
    """The tail of a run while another Python thread is busy, at a switch interval."""
    run = _side("ep_1")
    sys.setswitchinterval(interval_s)
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            sum(range(100))

    thread = threading.Thread(target=spin)
    thread.start()
    times, end = [], time.perf_counter() + budget_s
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1000)
    is_over.set()
    thread.join()
    times.sort()
    return {"median": statistics.median(times), "p99": times[int(len(times) * 0.99)]}


def _start(*arguments: str) -> Any:
    command = [sys.executable, __file__, "--worker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_sides(rounds: int, budget_s: float = 0.5) -> dict[str, float]:
    """The best median of each side, in us."""
    samples: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds):
        for name, values in samples.items():
            values.append(_start(name, str(budget_s)))
    models = _middle([_start("models", str(4 * budget_s)) for _ in range(rounds)])
    return {**{name: min(values) for name, values in samples.items()}, **models}


def derive(sides: dict[str, float]) -> dict[str, float]:
    """The figures that have limits."""
    rows = {}
    for count in ("1", "8"):
        rest = sides[f"cpu_{count}"] + sides[f"execute_{count}"]
        rows[f"overhead, {count} in and out"] = sides[f"ep_{count}"] - rest
    rows["a custom op in a real model, over the model and the op"] = _excess(sides)
    for what, steps in itertools.product(CHANGES, LENGTHS):
        rows[f"other {what}, {steps} steps"] = sides[f"{what}_{steps}"] - sides[f"same_{steps}"]
    return rows


def _judge(name: str, us: float) -> str:
    if name not in LIMITS:
        return ""
    return f"  limit {LIMITS[name]:.0f}: {'met' if us <= LIMITS[name] else 'MISSED'}"


def _work(name: str, numbers: list[float]) -> Any:
    """What a worker process finds out."""
    if name == "contention":
        return _contention(*numbers)
    return _compare_models(*numbers) if name == "models" else _median_us(_side(name), *numbers)


def main() -> None:
    """Print the table, or as a worker one figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        name, *rest = args.worker
        print(json.dumps(_work(name, [float(number) for number in rest])))
        return
    sides = measure_sides(args.rounds)
    figures = derive(sides)
    busy = {interval: _start("contention", str(interval), "2") for interval in (0.005, 0.0005)}
    if args.json:
        print(json.dumps({"sides": sides, "figures": figures, "busy": busy}))
        return
    for name, us in sides.items():
        print(f"{(SIDES | MODEL_SIDES)[name]:<60}{us:>10.2f} us")
    for name, us in figures.items():
        print(f"{name:<60}{us:>10.2f} us{_judge(name, us)}")
    for interval, tail in busy.items():
        what = f"one busy thread, switch interval {interval * 1e3} ms"
        print(f"{what:<60}median {tail['median']:.1f} us, p99 {tail['p99']:.1f} us")


if __name__ == "__main__":
    main()
