# /// script
# requires-python = ">=3.11"
# dependencies = ["dovetail-engine[all]"]
# ///
"""The demo: from an ONNX model with an operator that no engine knows to a tuned plan that runs in another process.

It makes a small convolutional network with two ``SpectralGate`` nodes, builds it with the plugin of
plugins/spectral_gate.py, shows what the tuner timed and chose, checks the results against the ONNX reference
evaluator, saves the plan, and has a new process load it, check it again and time it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dovetail as dt

if TYPE_CHECKING:
    import onnx

LIBRARY = Path(__file__).parent / "plugins" / "spectral_gate.py"
SERVED = Path(__file__).parent / "served" / "demo" / "1" / "model.plan"
BATCHES = (1, 4, 8)
TACTICS = {1: "fft", 2: "matmul"}


# the model


def make_model() -> onnx.ModelProto:
    """An ONNX model: convolutions, and gates in the frequency domain between them."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "b1": (16,), "w2": (32, 16, 3, 3), "b2": (32,), "w3": (32, 10), "b3": (10,)}
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    weights["axes"] = np.array([2, 3])
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("SpectralGate", ["r1"], ["g1"], "gate 32x32", domain="demo", strength=1.5),
        helper.make_node("Conv", ["g1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("SpectralGate", ["r2"], ["g2"], "gate 16x16", domain="demo", strength=0.5),
        helper.make_node("ReduceMean", ["g2", "axes"], ["mean"], keepdims=0),
        helper.make_node("Gemm", ["mean", "w3", "b3"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "demo",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("demo", 1)])


def run_reference(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    """The model in ONNX's own evaluator, with the operator as its definition says it, in double precision."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class SpectralGate(OpRun):
        op_domain = "demo"

        def _run(self, x, strength=None):
            rows, columns = (np.exp(-((strength * 2 * np.fft.fftfreq(n)) ** 2)) for n in x.shape[2:])
            damped = np.fft.fft2(x.astype(np.float64)) * rows[:, None] * columns
            return (np.fft.ifft2(damped).real.astype(np.float32),)

    return ReferenceEvaluator(model, new_ops=[SpectralGate]).run(None, {"image": images})[0]


# the screen


class Screen:
    """What the demo prints: colours and lines in a terminal, plain text elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(highlight=False)

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold cyan]{text}[/]")

    def say(self, text: str) -> None:
        self.console.print(f"  {text}")

    def table(self, columns: tuple[str, ...], blocks: list[list[tuple[str, ...]]]) -> None:
        """A table in blocks; a column that starts with > holds numbers."""
        from rich.box import SIMPLE_HEAD
        from rich.padding import Padding
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(column.lstrip(">"), justify="right" if column[:1] == ">" else "left", no_wrap=True)
        for block in blocks:
            for row in block:
                table.add_row(*row, style="green" if "chosen" in row else None)
            table.add_section()
        self.console.print(Padding(table, (1, 0, 0, 2), expand=False))


def show_tuning(screen: Screen, engine: dt.Engine) -> None:
    """The tuner's tables; the slowest way to run a layer has the longest bar."""
    blocks, notes = [], []
    for layer in engine.manifest.tuning:
        timed = [way for way in layer.candidates if way.time_us]
        slowest, fastest = max(way.time_us for way in timed), min(way.time_us for way in timed)
        block = []
        for way in timed:
            bar, layout = "#" * max(1, round(20 * way.time_us / slowest)), way.formats[0].rpartition(":")[2]
            name, note = layer.name if not block else "", "chosen" if way.chosen else ""
            block.append((name, layout, TACTICS[way.tactic], bar, f"{way.time_us:.0f} us", note))
        blocks.append(block)
        chosen = next(way for way in timed if way.chosen)
        if chosen.time_us > 1.05 * fastest:
            notes.append(f"{layer.name}: faster alone is slower here, with the reformats around it")
    screen.table(("layer", "layout", "tactic", "", ">median", ""), blocks)
    for note in notes:
        screen.say(note)


# the other process


def reload(folder: Path) -> None:
    """What the new process does: load, check, time; the answer is one line of JSON."""
    start = time.perf_counter()
    dt.get_plugin_registry().load_library(LIBRARY)
    engine = dt.load(folder / "demo.plan")
    load_ms = 1e3 * (time.perf_counter() - start)
    samples = np.load(folder / "samples.npz")
    rows = []
    for batch in BATCHES:
        images = samples["images"][:batch]
        difference = float(np.abs(engine(images) - samples["scores"][:batch]).max())
        times = measure(engine, images)
        rows.append((batch, float(np.median(times)), float(np.quantile(times, 0.99)), difference))
    print(json.dumps({"load_ms": load_ms, "rows": rows, "onnx": "onnx" in sys.modules}))


def measure(engine: dt.Engine, images: np.ndarray) -> list[float]:
    """Times of single runs in milliseconds: two hundred, or as many as a second has."""
    times: list[float] = []
    while len(times) < 200 and sum(times) < 1e3:
        start = time.perf_counter_ns()
        engine(images)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def run_elsewhere(folder: Path) -> dict[str, Any]:
    """Start the new process on the same files and read its answer."""
    command = [sys.executable, __file__, "--reload", str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


# the whole


def save_for_serving(engine: dt.Engine) -> None:
    """Put the plan where ``dovetail serve examples/served`` finds it."""
    SERVED.parent.mkdir(parents=True, exist_ok=True)
    engine.save(SERVED)


def build(model: onnx.ModelProto) -> dt.Engine:
    """Compile the model for batches of 1 to 8, tuned at 4, showing progress."""
    from dovetail.build.progress import make_progress

    dt.get_plugin_registry().load_library(LIBRARY)
    config = dt.BuilderConfig()
    config.progress_monitor = make_progress(sys.stdout)
    bounds = tuple((batch, 3, 32, 32) for batch in BATCHES)
    return dt.compile(model, shapes={"image": bounds}, config=config)


def main() -> None:
    screen = Screen()
    model = make_model()
    screen.title(f"Dovetail {dt.__version__}: a model with an operator that no engine knows")
    screen.say(" > ".join(f"[bold]{n.op_type}[/]" if n.domain else n.op_type for n in model.graph.node))
    screen.say(f"SpectralGate is a plugin, {LIBRARY.parent.name}/{LIBRARY.name}: two layouts, two tactics")

    screen.title("1. Build")
    engine = build(model)
    screen.title("2. What the tuner timed and chose")
    show_tuning(screen, engine)

    screen.title("3. Check against the ONNX reference evaluator")
    images = np.random.default_rng(1).random((max(BATCHES), 3, 32, 32), np.float32)
    scores = run_reference(model, images)
    difference = float(np.abs(engine(images) - scores).max())
    screen.say(f"largest difference of {scores.size} scores: {difference:.1e}")
    assert difference < 1e-4

    screen.title("4. Save the plan, and load it in a new process")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine.save(folder / "demo.plan")
        np.savez(folder / "samples.npz", images=images, scores=scores)
        size_kib = (folder / "demo.plan").stat().st_size / 1024
        answer = run_elsewhere(folder)
    save_for_serving(engine)
    assert not answer["onnx"]
    screen.say(f"demo.plan: {size_kib:.0f} KiB, ready in {answer['load_ms']:.0f} ms, without ONNX in the process")
    rows = [
        (str(batch), f"{median:.2f} ms", f"{p99:.2f} ms", f"{1e3 * batch / median:.0f}", f"{difference:.1e}")
        for batch, median, p99, difference in answer["rows"]
    ]
    screen.table((">batch", ">median", ">P99", ">images/s", ">difference"), [rows])
    assert all(row[3] < 1e-4 for row in answer["rows"])
    screen.title("Next")
    screen.say("serve it (docs/serving.md):")
    screen.say("dovetail serve examples/served --plugins examples/plugins/spectral_gate.py")
    screen.say("examples/01_pad.py is the contract on one screen, 07_quick_layer.py in short")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reload"]:
        reload(Path(sys.argv[2]))
    else:
        main()
