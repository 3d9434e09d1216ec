"""What a report is made of: plans that were really built, with and without times."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from dovetail.cli import main
from dovetail.errors import InputError
from dovetail.plan.inspect import inspect_plan
from dovetail.report.document import describe_engine
from tests.support.report_models import HOSTILE, build_plan

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    build_plan(place, "cpu.plan", "--providers", "cpu")
    build_plan(place, "ort.plan")
    return place


@pytest.fixture(scope="module")
def bench(folder: Path) -> dict[str, Any]:
    words = ["bench", str(folder / "ort.plan"), "--plugins", str(folder / "layers.py"), "--profile", "--json"]
    answer = io.StringIO()
    with redirect_stdout(answer):
        assert main([*words, "--iterations", "5", "--warmup-ms", "1"]) == 0
    found: dict[str, Any] = json.loads(answer.getvalue())
    return found


def _nodes(document: dict[str, Any], program: int = 0) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in document["programs"][program]["nodes"]}


def test_a_step_of_its_own_tells_its_story(folder: Path) -> None:
    document = describe_engine(folder / "cpu.plan")
    conv = _nodes(document)["/stem/conv/Conv"]
    assert conv["layers"] == ["/stem/conv/Conv", "/stem/norm/Norm"]
    assert conv["made_by"] == "conv_batchnorm"
    assert conv["makes"][0]["sizes"] == [2, 4, 8, 8], "the opt of the first profile"
    assert conv["flops"] == 2 * 2 * 4 * 64 * 4 * 9
    assert _nodes(document, 1)["/stem/conv/Conv"]["makes"][0]["sizes"] == [8, 4, 8, 8]
    assert _nodes(document)["/out/Cast"]["reason"] == "float32 becomes float16, asked for by the network"
    assert {record["name"] for record in document["passes"]} >= {"conv_batchnorm"}
    assert "Build programs" in {phase["name"] for phase in document["phases"]}


@pytest.mark.parametrize("plan", ["cpu.plan", "ort.plan"])
def test_bodies_are_nodes_inside_their_control_flow(folder: Path, plan: str) -> None:
    nodes = describe_engine(folder / plan)["programs"][0]["nodes"]
    gate = next(number for number, node in enumerate(nodes) if node["op"] == "If")
    inside = {(node["name"], node["body"]) for node in nodes if node.get("parent") == gate}
    assert inside == {("/gate/Tanh", 0), ("/gate/Neg", 1)}


def test_a_partition_is_drawn_by_its_report(folder: Path) -> None:
    document = describe_engine(folder / "ort.plan")
    nodes = document["programs"][0]["nodes"]
    fused = next(node for node in nodes if node["op"] == "FusedConv")
    assert fused["layers"] == ["/stem/conv/Conv", "/stem/norm/Norm", "/stem/act/Relu"]
    assert fused["made_by"] == "conv_batchnorm, onnxruntime"
    plugin = next(node for node in nodes if node["name"] == HOSTILE)
    assert [nodes[number]["op"] for number in plugin["inputs"]] == ["FusedConv"]
    readers = {node["op"] for node in nodes if nodes.index(plugin) in node.get("inputs", [])}
    assert readers >= {"ReduceSum", "Add"}


def test_tactics_have_intervals_and_say_by_how_much_they_lost(folder: Path) -> None:
    (first, *_) = describe_engine(folder / "ort.plan")["tuning"]
    chosen = next(each for each in first["candidates"] if each["chosen"])
    lost = next(each for each in first["candidates"] if not each["chosen"])
    assert chosen["low_us"] <= chosen["time_us"] <= chosen["high_us"]
    assert chosen["rounds"] > 0
    assert chosen["slower_percent"] == 0
    assert lost["slower_percent"] == pytest.approx(100 * (lost["time_us"] / chosen["time_us"] - 1))


def test_memory_is_told_with_lifetimes(folder: Path) -> None:
    program = describe_engine(folder / "cpu.plan")["programs"][0]
    assert program["blocks"]
    for block in program["blocks"]:
        assert 0 <= block["offset"] <= block["offset"] + block["bytes"] <= program["arenas"][block["memory"]]
        assert 0 <= block["first"] <= block["last"] <= program["num_steps"]


def test_inspect_tells_the_same(folder: Path) -> None:
    program = inspect_plan(folder / "cpu.plan")["programs"][0]
    step = next(step for step in program["steps"] if step["name"] == "/stem/conv/Conv")
    assert step["layers"] == ["/stem/conv/Conv", "/stem/norm/Norm"]
    value = program["values"][step["outputs"][0]]
    assert value["sizes"] == [2, 4, 8, 8]
    assert value["offset"] is not None
    assert value["first_step"] <= value["last_step"]


def test_refusals_are_kept(tmp_path: Path) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [4]) for name in "xy"]
    nodes = [helper.make_node("Softplus", ["x"], ["t"], name="plus"), helper.make_node("Elu", ["t"], ["y"], name="elu")]
    graph = helper.make_graph(nodes, "narrow", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, tmp_path / "narrow.onnx")
    assert main(["build", str(tmp_path / "narrow.onnx"), "-o", str(tmp_path / "narrow.plan"), "--quiet"]) == 0
    refusals = describe_engine(tmp_path / "narrow.plan")["refusals"]
    assert {layer for refusal in refusals for layer in refusal["layers"]} == {"plus", "elu"}
    assert {refusal["provider"] for refusal in refusals} == {"onnxruntime"}
    assert all("bfloat16" in refusal["reason"] for refusal in refusals)


def test_why_a_layer_is_elsewhere_is_kept(tmp_path: Path) -> None:
    build_plan(tmp_path, "kept.plan", "--layer-provider", "/stem/act/*=cpu")
    document = describe_engine(tmp_path / "kept.plan")
    assert _nodes(document)["/stem/act/Relu"]["provider"] == "cpu"
    assert any(note["layer"] == "/stem/act/Relu" for note in document["notes"])


# times


def test_times_are_those_of_the_layers(folder: Path, bench: dict[str, Any]) -> None:
    document = describe_engine(folder / "ort.plan", bench)
    nodes = document["programs"][0]["nodes"]
    timed = [node for node in nodes if node.get("time_source") == "bench"]
    assert {node["op"] for node in timed} >= {"ScaledRelu", "ReduceSum"}
    inner = [node for row in bench["profile"][1:] for node in row.get("nodes", ())]
    named = sum(node["timeMs"] for node in inner if node["layers"])
    assert named > 0.9 * sum(node["timeMs"] for node in inner)
    assert document["bench"]["latency_ms"]["median"] > 0
    assert all("time_us" not in node or node["time_source"] == "tuner" for node in document["programs"][1]["nodes"])


def test_times_of_another_engine_are_refused(folder: Path, bench: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the times are those of another engine"):
        describe_engine(folder / "cpu.plan", bench)


@pytest.mark.parametrize("change", [{"profile": None}, {"inputs": []}, {"num_steps": "3"}, {"latency_ms": 4}])
def test_what_is_no_benchmark_is_refused(folder: Path, bench: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no answer of a benchmark"):
        describe_engine(folder / "ort.plan", {**bench, **change})


@pytest.mark.parametrize("path", sorted((ROOT / "tests/data/plans").rglob("*.plan")), ids=lambda path: path.stem)
def test_plans_of_every_version_can_be_drawn(path: Path) -> None:
    document = describe_engine(path)
    assert all(program["nodes"] for program in document["programs"])
