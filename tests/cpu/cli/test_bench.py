"""``dovetail bench``: its numbers, its exports with the field names of trtexec, and a timeline that viewers read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dovetail.cli import main
from tests.support.cli_models import write_library, write_model
from tests.support.precision_models import make_image_network

Ask = Callable[..., dict[str, Any]]
QUICK = ["--iterations", "25", "--warmup-ms", "1", "--plugins", "layers.py"]
EXPORTED_RUN = {
    "startEnqMs",
    "endEnqMs",
    "startH2dMs",
    "endH2dMs",
    "startComputeMs",
    "endComputeMs",
    "startD2hMs",
    "endD2hMs",
    "h2dMs",
    "computeMs",
    "d2hMs",
    "latencyMs",
}
SCALED = """
    <ir_version: 10, opset_import: ["" : 21]>
    scaled (float[2, 3] x, int64 k) => (float[2, 3] y) { f = Cast<to=1>(k)  y = Mul(x, f) }
"""
EXPORTED_LAYER = {"name", "timeMs", "averageMs", "medianMs", "percentage"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bench")
    write_library(place)
    model = write_model(place / "small.onnx")
    words = ["build", str(model), "--plugins", str(place / "layers.py"), "--shapes", "x:1x4:2x4:8x4", "--quiet"]
    assert main([*words, "--detailed"]) == 0
    return place


@pytest.fixture
def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.chdir(folder)

    def call(*words: str) -> str:
        code = main(["bench", *words])
        output = capsys.readouterr()
        assert code == 0, output.err
        return output.out

    return call


@pytest.fixture
def ask(shown: Callable[..., str]) -> Ask:
    return lambda *words: json.loads(shown(*words, "--json"))


def test_latencies_are_in_order(ask: Ask) -> None:
    document = ask("small.plan", *QUICK)
    for side in (document, document["context"]):
        latency = side["latency_ms"]
        names = ("min", "p50", "p90", "p95", "p99", "p99.9", "max")
        assert [latency[name] for name in names] == sorted(latency[name] for name in names)
        assert latency["min"] <= latency["mean"] <= latency["max"]
        assert side["iterations"] == 25
        assert side["throughput_qps"] > 0
    assert document["context"]["call"] == "execute_async_v3"
    assert document["providers"].keys() == {"cpu", "onnxruntime"}
    assert document["inputs"] == {"x": [2, 4]}
    assert sum(document["histogram"]["counts"]) <= 25


def test_exports_have_the_names_of_trtexec(ask: Ask, tmp_path: Path) -> None:
    files = {kind: str(tmp_path / f"{kind}.json") for kind in ("times", "profile", "layer-info")}
    ask("small.plan", *QUICK, *(word for kind, file in files.items() for word in (f"--export-{kind}", file)))
    runs = json.loads(Path(files["times"]).read_text())
    assert len(runs) == 25
    assert all(set(run) == EXPORTED_RUN for run in runs)
    assert all(run["latencyMs"] == pytest.approx(run["endEnqMs"] - run["startEnqMs"]) for run in runs)
    head, *layers = json.loads(Path(files["profile"]).read_text())
    assert head == {"count": 25}
    assert all(set(layer) == EXPORTED_LAYER for layer in layers)
    assert sum(layer["percentage"] for layer in layers) == pytest.approx(100)
    assert [layer["name"] for layer in layers] == ["project", "project (rest)", "custom", "sum", "sum (rest)"]
    info = json.loads(Path(files["layer-info"]).read_text())
    assert [layer["Name"] for layer in info["Layers"]] == ["project", "custom", "sum"]
    assert {"Name", "LayerType", "Inputs", "Outputs"} <= info["Layers"][0].keys()
    assert info["Bindings"] == ["x", "y", "z"]


def test_a_profile_looks_into_partitions(ask: Ask) -> None:
    head, *steps = ask("small.plan", *QUICK, "--profile")["profile"]
    assert head == {"count": 25}
    assert [step["name"] for step in steps] == ["project", "custom", "sum"]
    assert [[node["op"] for node in step.get("nodes", ())] for step in steps] == [["MatMul"], [], ["ReduceSum"]]
    assert sum(step["percentage"] for step in steps) == pytest.approx(100)
    for step in steps:
        assert step["timeMs"] == pytest.approx(25 * step["averageMs"])
        assert sum(node["timeMs"] for node in step.get("nodes", ())) <= step["timeMs"]


def test_a_profile_of_single_kernels(ask: Ask) -> None:
    _, *steps = ask("small.onnx", *QUICK, "--profile", "--providers", "cpu")["profile"]
    assert [step["name"] for step in steps] == ["project", "custom", "sum"]
    assert not any("nodes" in step for step in steps)


def test_a_trace_is_well_formed(ask: Ask, tmp_path: Path) -> None:
    ask("small.onnx", *QUICK, "--trace", str(tmp_path / "trace.json"))
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    expected = {"phases", "build", "engine(x)", "context", "profiled runs", "steps", "nodes of partitions, thread 0"}
    assert set(tracks.values()) == expected
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} <= {"M", "X", "C"}
    assert all({"name", "ts", "dur", "pid", "tid"} <= event.keys() for event in spans)
    assert min(event["ts"] for event in spans) == 0
    by_track: dict[str, list[Any]] = {}
    for event in spans:
        by_track.setdefault(tracks[event["tid"]], []).append(event)
    assert len(by_track["engine(x)"]) == 25
    assert len(by_track["steps"]) == 3 * len(by_track["profiled runs"])
    assert {"load", "warm up engine(x)", "measure engine(x)", "profile"} <= {e["name"] for e in by_track["phases"]}
    _require_within(by_track["steps"], by_track["profiled runs"])
    nodes = by_track["nodes of partitions, thread 0"]
    _require_within(nodes, by_track["steps"])
    assert all(event["args"]["provider"] and event["args"]["bytes"] for event in (*nodes, *by_track["steps"]))
    assert any(event["args"].get("tactic") for event in by_track["steps"])
    _require_nested(by_track)


def test_a_trace_counts_the_arena(ask: Ask, tmp_path: Path) -> None:
    ask("small.plan", *QUICK, "--trace", str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    counted = [event["args"]["host"] for event in events if event["ph"] == "C"]
    assert max(counted) > 0
    assert counted[-1] == 0, "nothing is in use after the last run"


def _require_nested(by_track: dict[str, list[Any]]) -> None:
    """On one track spans follow each other or lie inside each other."""
    for events in by_track.values():
        ends: list[float] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= event["ts"] + 1e-6:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 2e-3, event
            ends.append(end)


def _require_within(inner: list[Any], outer: list[Any]) -> None:
    """Every span lies in one of the others; clocks of two libraries agree to some microseconds."""
    slack_us = 200
    for event in inner:
        end = event["ts"] + event["dur"]
        assert any(o["ts"] - slack_us <= event["ts"] and end <= o["ts"] + o["dur"] + slack_us for o in outer), event


def test_both_bounds(ask: Ask) -> None:
    assert ask("small.plan", *QUICK[2:], "--iterations", "7", "--duration", "60")["iterations"] == 7
    assert ask("small.plan", *QUICK[2:], "--iterations", "100000000", "--duration", "0.02")["wall_s"] < 5
    assert ask("small.plan", *QUICK[2:], "--duration", "0.001")["iterations"] >= 10


def test_for_people(shown: Callable[..., str]) -> None:
    text = shown("small.plan", *QUICK, "--profile")
    assert text.startswith("small: 3 step(s) on cpu ")
    assert all(f"\n{name} " in text for name in ("min", "p50", "p90", "p95", "p99", "p99.9", "mean", "throughput"))
    assert "engine(x)" in text
    assert "\nProfile (25 iterations, " in text
    assert "MatMul      project" in text
    assert "\nBy operator\n" in text
    assert "Profile" not in shown("small.plan", *QUICK)


def test_settings_are_for_models(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    assert main(["bench", "small.plan", *QUICK, "--providers", "cpu"]) == 1
    assert "a plan is built already" in capsys.readouterr().err
    assert main(["bench", "small.onnx", *QUICK, "--providers", "gpu"]) == 1
    assert "there is no provider 'gpu'" in capsys.readouterr().err
    assert main(["bench", "small.onnx", *QUICK, "--off", "nothing"]) == 1
    assert "there is no pass 'nothing'" in capsys.readouterr().err
    for option in ("cpu", "cpu=1", ".x=1", "cpu.=1"):
        assert main(["bench", "small.onnx", *QUICK, "--provider-option", option]) == 1
        assert "expected provider.key=value" in capsys.readouterr().err
    assert main(["bench", "small.onnx", *QUICK, "--provider-option", "gpu.x=1"]) == 1
    assert "there is no provider 'gpu'" in capsys.readouterr().err
    assert main(["run", "small.onnx", "--plugins", "layers.py", "--layer-provider", "project"]) == 1
    assert "expected pattern=provider" in capsys.readouterr().err


@pytest.fixture
def _fresh_options() -> Any:
    """Options of providers are of the process."""
    from dovetail.provider.loader import get_default_options, set_default_options

    before = get_default_options("onnxruntime")
    yield
    set_default_options("onnxruntime", before)


@pytest.mark.usefixtures("_fresh_options")
def test_threads_and_options_reach_the_provider(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    from dovetail.provider.loader import get_default_options

    ask("small.plan", *QUICK, "--threads", "1")
    assert get_default_options("onnxruntime") == {"threads": "1"}
    assert main(["bench", "small.plan", *QUICK, "--provider-option", "onnxruntime.color=red"]) == 2
    assert "unknown option(s) color" in capsys.readouterr().err
    assert main(["bench", "small.plan", *QUICK, "--threads", "2", "--provider-option", "onnxruntime.threads=1"]) == 1
    assert "option 'threads' is given twice" in capsys.readouterr().err


def test_layers_go_where_they_are_sent(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = str(tmp_path / "a.plan")
    assert main(["build", "small.onnx", "--plugins", "layers.py", "--layer-provider", "proj*=cpu", "-o", plan]) == 0
    from dovetail.plan.inspect import inspect_plan

    layers = inspect_plan(plan)["programs"][0]["layers"]
    assert [layer["Provider"] for layer in layers] == ["cpu", "cpu", "onnxruntime"]


def test_an_operator_can_be_overridden(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "layers.py").read_text().replace("acme::ScaledRelu", "Relu").replace("alpha", "ratio")
    library = tmp_path / "relu.py"
    library.write_text(text)
    model = write_model(tmp_path / "relu.onnx", op="Relu")
    words = ["build", str(model), "--plugins", str(library), "-o", str(tmp_path / "a.plan"), "--json"]
    for more, count in (([], 0), (["--override", "Relu"], 1)):
        assert main([*words, *more]) == 0
        assert json.loads(capsys.readouterr().out)["steps"][0].get("plugin", 0) == count


def test_a_model_with_a_scalar_is_measured(tmp_path: Path, shown: Callable[..., str]) -> None:
    onnx.save(onnx.parser.parse_model(SCALED), tmp_path / "scaled.onnx")
    out = shown(str(tmp_path / "scaled.onnx"), "--iterations", "3", "--warmup-ms", "0", "--inputs", "k=2")
    assert "input 'k': scalar" in out
    assert "context.execute_async_v3" in out


def test_each_quantized_convolution_has_its_time(tmp_path: Path, ask: Ask, shown: Callable[..., str]) -> None:
    """ONNX Runtime runs them with channels last, under names of its own."""
    onnx.save(make_image_network(), tmp_path / "images.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(0, 1, (4, 3, 24, 24)).astype(np.float32))
    plan = str(tmp_path / "images.plan")
    words = ["--int8", "--calib-data", str(tmp_path / "x.npy"), "--shapes", "x:4x3x24x24", "--quiet", "--no-compare"]
    assert main(["build", str(tmp_path / "images.onnx"), *words]) == 0
    document = ask(plan, "--iterations", "2", "--warmup-ms", "0", "--profile")
    nodes = [node for step in document["profile"][1:] for node in step["nodes"]]
    convolutions = [node["reported"] for node in nodes if node["op"] == "QLinearConv"]
    assert len(convolutions) > 1
    assert all(len(names) == 1 for names in convolutions), convolutions
    assert len({names[0] for names in convolutions}) == len(convolutions)
    out = shown(plan, "--iterations", "2", "--warmup-ms", "0", "--profile")
    assert all(names[0] in out for names in convolutions), out


def test_what_is_read_is_not_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = folder / "small.plan"
    before = plan.read_bytes()
    for command, option in (
        ("bench", "--trace"),
        ("bench", "--export-times"),
        ("report", "-o"),
        ("run", "--save-inputs"),
    ):
        assert main([command, str(plan), option, str(folder / "." / "small.plan")]) == 1
        assert "would be written over" in capsys.readouterr().err
    assert plan.read_bytes() == before
