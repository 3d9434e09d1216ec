"""The command line from end to end: a model and a plugin library become a plan, which is run, timed and shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.testing import host_device
from tests.support.cli_models import LIBRARY, reference, write_library, write_model

Run = Callable[..., str]
Ask = Callable[..., dict[str, Any]]
PROFILE = "x:1x4:2x4:8x4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model, library and plan."""
    place = tmp_path_factory.mktemp("cli")
    library, model = write_library(place), write_model(place / "small.onnx")
    words = ["build", str(model), "--plugins", str(library), "--shapes", PROFILE, "--refit", "--detailed", "--quiet"]
    assert main(words) == 0
    return place


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that succeeds; its output comes back."""
    monkeypatch.chdir(folder)

    def call(*words: str) -> str:
        code = main(list(words))
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out

    return call


@pytest.fixture
def ask(run: Run) -> Ask:
    """Run a command with ``--json``; the document comes back."""
    return lambda *words: json.loads(run(*words, "--json"))


# build


def test_outputs_in_the_memory_of_inputs_are_built_shown_and_run(run: Run, ask: Ask, tmp_path: Path) -> None:
    body = "(float[4] x, float[4] z) => (float[4] y, float[4] w) { y = Add(x, z) w = Tanh(y) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {body}'), tmp_path / "a.onnx")
    plan = str(tmp_path / "a.plan")
    run("build", str(tmp_path / "a.onnx"), "-o", plan, "--alias", "y=x")
    assert "in the memory of 'x'" in run("inspect", plan)
    found = ask("run", plan)
    assert found["inputs"][0]["mean"] != found["outputs"][0]["mean"]


def test_build_says_what_it_did(run: Run, folder: Path, tmp_path: Path) -> None:
    shown = run("build", "small.onnx", "--plugins", "layers.py", "-o", str(tmp_path / "a.plan"), "--shapes", PROFILE)
    assert f"{tmp_path / 'a.plan'}: " in shown
    assert "profile 0: 3 steps (2 partition, 1 plugin)" in shown
    row = next(line for line in shown.splitlines() if line.startswith("custom"))
    assert "FLOAT:LINEAR, FLOAT:LINEAR" in row
    assert "timed" in row


def test_build_json(ask: Ask, tmp_path: Path) -> None:
    plan = tmp_path / "a.plan"
    document = ask("build", "small.onnx", "--plugins", "layers.py", "-o", str(plan), "--shapes", PROFILE)
    assert document["size_bytes"] == plan.stat().st_size
    assert document["steps"] == [{"partition": 2, "plugin": 1}]
    assert document["open"] is False
    (layer,) = document["layers"]
    assert layer["layer"] == "custom"
    assert sum(candidate["chosen"] for candidate in layer["candidates"]) == 1
    assert document["phases"][0]["name"] == "Import model"
    assert all(phase["seconds"] >= 0 for phase in document["phases"])


def test_build_verbose_has_phases_and_the_whole_table(run: Run, tmp_path: Path) -> None:
    shown = run("build", "small.onnx", "--plugins", "layers.py", "-o", str(tmp_path / "a.plan"), "--verbose")
    assert "\nPhases\n" in shown
    for phase in ("Import model", "Save plan"):
        assert f"\n{phase} " in shown
    table = shown.partition("Tuning of 'custom', profile 0\n")[2].splitlines()
    assert [line.split()[-2] for line in table[1:3]] == ["us", "us"]
    assert sum(line.startswith("*") for line in table[1:3]) == 1


def test_build_without_shapes_is_open(ask: Ask, tmp_path: Path) -> None:
    plan = str(tmp_path / "a.plan")
    assert ask("build", "small.onnx", "--plugins", "layers.py", "-o", plan)["open"] is True
    document = ask("run", plan, "--plugins", "layers.py", "--shapes", "x:7x4")
    assert document["outputs"][0]["shape"] == [7, 3]


def test_build_with_several_profiles(ask: Ask, tmp_path: Path) -> None:
    plan = str(tmp_path / "a.plan")
    words = ["--profile", "x:1x4:1x4:2x4", "--profile", "x:3x4:4x4:9x4"]
    document = ask("build", "small.onnx", "--plugins", "layers.py", "-o", plan, *words)
    assert document["num_profiles"] == 2
    assert [profile["shapes"]["x"]["max"] for profile in ask("inspect", plan)["profiles"]] == [[2, 4], [9, 4]]
    for size in (2, 7):
        document = ask("run", plan, "--plugins", "layers.py", "--shapes", f"x:{size}x4")
        assert document["outputs"][0]["shape"] == [size, 3]


def test_a_carried_library_needs_leave(run: Run, ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "a.plan")
    assert ask("build", "small.onnx", "--carry-plugins", "layers.py", "-o", plan)["libraries"] == ["layers"]
    assert main(["run", plan]) == 5
    assert "fix: if you trust whoever made the plan, add --host-code" in capsys.readouterr().err
    assert ask("run", plan, "--host-code")["outputs"][0]["name"] == "y"
    assert "'layers' is carried in the plan (host code)" in run("inspect", plan)


def test_a_timing_cache_is_enough_for_the_second_build(ask: Ask, tmp_path: Path) -> None:
    words = ["--plugins", "layers.py", "--timing-cache", str(tmp_path / "times"), "-o", str(tmp_path / "a.plan")]
    statuses, plans = [], []
    for more in ([], ["--error-on-timing-cache-miss"], ["--error-on-timing-cache-miss"]):
        (layer,) = ask("build", "small.onnx", *words, *more)["layers"]
        statuses.append({candidate["status"] for candidate in layer["candidates"]})
        plans.append((tmp_path / "a.plan").read_bytes())
    assert statuses == [{"timed"}, {"cached"}, {"cached"}]
    assert plans[1] == plans[2]


def test_stripped_weights(ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "a.plan")
    document = ask("build", "small.onnx", "--plugins", "layers.py", "-o", plan, "--strip-weights")
    assert document["refittable"] == ["w"]
    assert [blob["stripped"] for blob in ask("inspect", plan)["blobs"] if blob["name"] == "w"] == [True]
    assert main(["run", plan, "--plugins", "layers.py"]) != 0
    assert "not in the plan: w" in capsys.readouterr().err


def test_options_reach_the_configuration() -> None:
    from dovetail.build.config import BuilderFlag, MemoryPoolType, PreviewFeature, ProfilingVerbosity
    from dovetail.cli.commands.build import _make_config
    from dovetail.cli.parser import make_parser
    from dovetail.cli.settings import read_settings

    words = ["build", "m.onnx", "--workspace", "2", "--tactic-timeout", "5", "--alias-io", "--strict", "--detailed"]
    words += ["--strip-weights", "--error-on-timing-cache-miss", "--timing-cache", "t", "--carry-plugins", "a", "b"]
    words += ["--providers", "onnxruntime, cpu", "--off", "gelu,attention", "--layer-provider", "a=b*=cpu"]
    words += ["--no-run-plugins"]
    args = make_parser().parse_args(words)
    config = _make_config(args, [], read_settings(args))
    flags = (BuilderFlag.REFIT, BuilderFlag.STRIP_PLAN, BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    assert all(config.get_flag(flag) for flag in flags)
    assert config.get_memory_pool_limit(MemoryPoolType.WORKSPACE) == 2 * 2**20
    assert config.get_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03)
    assert (config.tactic_timeout_s, config.strict, config.timing_cache_path) == (5.0, True, "t")
    assert config.profiling_verbosity is ProfilingVerbosity.DETAILED
    assert config.plugins_to_serialize == ["a", "b"]
    assert (config.providers, config.passes_off) == (("onnxruntime", "cpu"), ("gelu", "attention"))
    assert config.layer_providers == {"a=b*": "cpu"}
    assert not config.run_plugins


# run


def test_run_computes_and_saves(ask: Ask, tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    words = ["--plugins", "layers.py", "--inputs", f"x:{tmp_path / 'x.npy'}", "--save-outputs", str(tmp_path / "out")]
    document = ask("run", "small.plan", *words)
    y = reference(x)
    shown = {output["name"]: output for output in document["outputs"]}
    assert shown["y"]["shape"] == [3, 3]
    assert shown["y"]["max"] == pytest.approx(y.max())
    assert shown["z"]["shape"] == []
    np.testing.assert_allclose(np.load(shown["y"]["file"]), y, rtol=1e-5)


def test_run_is_the_same_for_plan_and_model_and_seed(ask: Ask) -> None:
    words = ["--plugins", "layers.py", "--shapes", "x:5x4", "--seed", "3"]
    plan, model, again = (ask("run", name, *words)["outputs"] for name in ("small.plan", "small.onnx", "small.plan"))
    assert plan == again
    assert plan[0]["mean"] == pytest.approx(model[0]["mean"])
    assert ask("run", "small.plan", *words[:-1], "4")["outputs"] != plan


@pytest.mark.parametrize("limit", [("--time-limit", "1e-9"), ("--memory-limit", "1e-6")], ids=lambda limit: limit[0])
def test_run_ends_at_its_limits(run: Run, capsys: pytest.CaptureFixture[str], limit: tuple[str, str]) -> None:
    assert main(["run", "small.plan", "--plugins", "layers.py", *limit]) == 6
    assert "limit" in capsys.readouterr().err
    run("run", "small.plan", "--plugins", "layers.py", limit[0], "1000")


def test_run_takes_the_tuned_shape(ask: Ask) -> None:
    assert ask("run", "small.plan", "--plugins", "layers.py")["inputs"][0]["shape"] == [2, 4]


def test_a_single_input_needs_no_name(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    shown = run("run", "small.plan", "--plugins", "layers.py", "--inputs", str(tmp_path / "x.npy"))
    assert [line.split() for line in shown.splitlines() if line.startswith("y ")] == [
        ["y", "float32", "1x3", "0", "0", "0"]
    ]


# inspect, check, plan check


def test_inspect_needs_no_plugin(run: Run) -> None:
    shown = run("inspect", "small.plan", "--layers", "--tuning")
    assert "plugin    'ScaledRelu' version '1', namespace 'acme'" in shown
    assert "digests   ok, 3 blob(s)" in shown
    assert "refit     1 weight(s) can be replaced, 0 cannot" in shown
    assert "1x4:2x4:8x4" in shown
    assert "ScaledRelu (plugin)" in shown
    assert "Tuning of 'custom', profile 0" in shown
    assert "Steps of profile 0" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_inspect_shows_shapes_weights_tactics_and_reasons(run: Run, tmp_path: Path) -> None:
    plan = str(tmp_path / "a.plan")
    words = ["--plugins", "layers.py", "--layer-provider", "sum=cpu"]
    run("build", "small.onnx", "-o", plan, *words)
    shown = run("inspect", plan, "--layers", "--tuning")
    assert "in      x: LINEAR FP32 (n, 4)\n" in shown
    assert "out   z: LINEAR FP32 ()\n" in shown
    assert "weight  w: float32 4x3, in the payload\n" in shown
    assert "weights   0 tensor(s), 0 B, 1 more inside partitions" in shown
    assert "why     onnxruntime, the first provider that takes it\n" in shown
    assert "why   cpu, as annotated for cpu\n" in shown
    assert "placed    1 layer(s) on cpu, as annotated for cpu\n" in shown
    assert "tactic  1 where\n" in shown or "tactic  2 maximum\n" in shown
    assert "FLOAT:LINEAR, FLOAT:LINEAR  2 maximum" in shown
    note = next(note for note in json.loads(run("inspect", plan, "--json"))["notes"] if note["layer"])
    assert note == {"text": "annotated for cpu", "provider": "cpu", "layer": "sum"}


def test_inspect_of_a_refittable_plan_names_the_weights_by_size(run: Run) -> None:
    assert "weight  w: float32 4x3, 48 B\n" in run("inspect", "small.plan", "--layers")


def test_inspect_says_when_nothing_was_tuned(run: Run, tmp_path: Path) -> None:
    model, plan = write_model(tmp_path / "plain.onnx", op="Relu"), str(tmp_path / "plain.plan")
    run("build", str(model), "-o", plan)
    assert "nothing was tuned: no layer of this plan could be run in more than one way" in run(
        "inspect", plan, "--tuning"
    )


def test_a_rank_that_is_not_known_is_no_scalar() -> None:
    from dovetail.cli.commands.inspect import _binding_text

    binding = {"Name": "t", "Format/Datatype": "LINEAR FP32", "Dimensions": [], "Shape": None}
    assert _binding_text(binding) == "t: LINEAR FP32 ?"
    assert _binding_text(binding | {"Shape": [None, "n", 3]}) == "t: LINEAR FP32 (?, n, 3)"


def test_inspect_runs_no_code_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "ran"
    library = write_library(tmp_path, f"{LIBRARY}\nfrom pathlib import Path\nPath({str(marker)!r}).touch()\n")
    model, plan = write_model(tmp_path / "m.onnx"), tmp_path / "m.plan"
    assert main(["build", str(model), "--carry-plugins", str(library), "--quiet"]) == 0
    marker.unlink()
    for words in (["inspect", str(plan)], ["inspect", str(plan), "--json"], ["plan", "check", str(plan)]):
        assert main(words) == 0
    assert main(["run", str(plan)]) == 5
    assert not marker.exists()
    capsys.readouterr()


def test_inspect_json_names_steps_and_blobs(ask: Ask) -> None:
    document = ask("inspect", "small.plan")
    layers = document["programs"][0]["layers"]
    assert [layer["LayerType"] for layer in layers] == ["Partition", "PluginV3", "Partition"]
    assert [layer["Provider"] for layer in layers] == ["onnxruntime", "cpu", "onnxruntime"]
    assert [layer["Partition"]["layers"] for layer in layers if "Partition" in layer] == [["project"], ["sum"]]
    assert layers[0]["Partition"]["weights"] == {"w": "w"}
    kinds = {blob["name"]: (blob["kind"], blob["algorithm"]) for blob in document["blobs"]}
    assert kinds["w"] == ("weights", "xxh3")
    assert kinds["partition:sum"] == ("payload", "sha256")
    assert document["refit"]["weights"] == {"w": "w"}


def test_the_engine_inspector_agrees(folder: Path) -> None:
    from dovetail import LayerInformationFormat, Runtime

    runtime = Runtime()
    runtime.get_plugin_registry().load_library(folder / "layers.py")
    with runtime.load_engine(folder / "small.plan") as engine:
        inspector = engine.create_engine_inspector()
        context = engine.create_execution_context()
        context.set_input_shape("x", (5, 4))
        inspector.execution_context = context
        layers = json.loads(inspector.get_engine_information(LayerInformationFormat.JSON))["Layers"]
        lines = inspector.get_engine_information(LayerInformationFormat.ONELINE).splitlines()
    assert [layer["Name"] for layer in layers] == ["project", "custom", "sum"]
    assert layers[1]["Outputs"][0]["Dimensions"] == [5, 3]
    assert len(layers[1]["Tuning"]) == 2
    assert lines[1].startswith("Layer(Partition): project, ")
    assert lines[1].endswith(", Provider: onnxruntime, Layers: [project]")
    assert ", Provider: onnxruntime 1." in lines[3]


def test_check(run: Run) -> None:
    assert "0 failed" in run("check", "layers.py", "--shapes", "1x3:2x3:4x3", "--fields", "alpha=2")


def test_check_as_a_document_and_on_another_device(ask: Ask) -> None:
    with host_device():
        document = ask("check", "layers.py:ScaledRelu", "--shapes", "2x3", "--provider", "host_device")
    assert document["ok"]
    assert document["counts"]["failed"] == 0
    assert any(note.startswith("checked on the host") for note in document["notes"])


def test_check_tells_the_rule_and_the_fix(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.py"
    text = Path("layers.py").read_text().replace("np.maximum(x, 0) * scale", "np.maximum(x, 0) * scale + 1")
    broken.write_text(text)
    assert main(["check", str(broken), "--shapes", "2x3"]) == 2
    shown = capsys.readouterr().out
    assert "FAIL  R50" in shown
    assert "  fix: " in shown
    assert "  see: dovetail check --explain R50" in shown


def test_plan_check(run: Run, ask: Ask) -> None:
    assert run("plan", "check", "small.plan").splitlines()[0] == "optimal"
    assert ask("plan", "check", "small.plan")["verdict"] == "optimal"


def test_lists(run: Run, ask: Ask) -> None:
    assert "cpu" in run("provider", "list")
    assert ask("provider", "list")["providers"][0]["available"]
    assert "ScaledRelu" in run("plugin", "list", "--plugins", "layers.py")
    (plugin,) = [p for p in ask("plugin", "list", "--plugins", "layers.py")["plugins"] if p["namespace"] == "acme"]
    assert plugin["fields"] == [{"name": "alpha", "type": "FLOAT64"}]


def test_env(run: Run, ask: Ask) -> None:
    assert run("env").startswith("dovetail ")
    document = ask("env")
    assert document["packages"]["numpy"] == np.__version__
    assert document["providers"][0]["name"] == "cpu"


def test_another_process_runs_the_plan(folder: Path) -> None:
    words = [sys.executable, "-m", "dovetail", "run", "small.plan", "--plugins", "layers.py", "--json"]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["engine"] == "small"
    assert done.stderr == ""


def test_running_a_plan_imports_nothing_that_builds(folder: Path) -> None:
    code = (
        "import sys; from dovetail.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'onnx', 'onnx_ir', 'onnxscript', 'sympy', 'torch', 'dovetail.build', 'dovetail.network'}; "
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr); sys.exit(code)"
    )
    for words in (
        ["run", "--plugins", "layers.py"],
        ["bench", "--iterations", "2", "--plugins", "layers.py"],
        ["inspect"],
    ):
        command = [sys.executable, "-c", code, words[0], "small.plan", *words[1:]]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        assert done.stderr == "[]\n"


def test_inspect_shows_what_providers_built(
    tmp_path: Path, run: Run, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    from dovetail.testing import host_device
    from tests.support.device_models import chain

    plans = {name: str(tmp_path / f"{name}.plan") for name in ("kernels", "partition")}
    for name, path in plans.items():
        with host_device(packs=True, has_code=True, compiles=name == "partition"):
            config = dt.BuilderConfig()
            config.set_flag(dt.BuilderFlag.REFIT)
            dt.compile(chain(), providers=["host_device", "cpu"], config=config).save(path)
    layers = {layer["Name"]: layer for layer in ask("inspect", plans["kernels"])["programs"][0]["layers"]}
    assert layers["matmul"]["Kernel"]["tactic"] == "transpose"
    assert layers["matmul"]["Kernel"]["code"].keys() == {"main"}
    document = ask("inspect", plans["partition"])
    (partition,) = [layer["Partition"] for layer in document["programs"][0]["layers"] if "Partition" in layer]
    assert [node["op"] for node in partition["report"]["nodes"]] == ["MatMul", "Relu", "Softmax", "Add"]
    assert document["packed"]["packed:packed W"]["recipe"] == "transpose"
    shown = run("inspect", plans["kernels"], "--layers")
    assert "4 piece(s) of device code" in shown
    assert "1 tensor(s) by host_device" in shown
    assert "transpose" in shown
    assert "Softmax" in run("inspect", plans["partition"], "--layers")
    with host_device(packs=True, has_code=True):
        run("run", plans["kernels"])
        assert main(["run", plans["kernels"], "--no-device-code"]) == 5
    assert "leave out --no-device-code" in capsys.readouterr().err


def test_a_run_tells_what_is_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Log", ["x"], ["y"]), helper.make_node("Div", ["y", "y"], ["z"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph(nodes, "odd", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    np.save(tmp_path / "x.npy", np.array([-1.0, 0.0, 2.0, 4.0], np.float32))
    words = ["run", str(tmp_path / "odd.onnx"), "--inputs", str(tmp_path / "x.npy")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "output 'y' has 1 NaN and 1 infinite of 4 elements; min, max and mean are of the other 2" in shown
    assert "output 'z' has 2 NaN of 4 elements" in shown
    assert "input 'x'" not in shown
    assert main([*words, "--json"]) == 0
    y, _ = json.loads(capsys.readouterr().out)["outputs"]
    assert (y["num_nan"], y["num_inf"]) == (1, 1)
    assert y["min"] == pytest.approx(np.log(2.0))
