"""Folders in and out, plans beside plans, models inspected, weights replaced: commands as people type them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

from dovetail.cli import main
from tests.support.cli_models import write_library, write_model

Call = Callable[..., tuple[int, str, str]]
CPU = ("--providers", "cpu")

LOG = """
    <ir_version: 10, opset_import: ["" : 21]>
    log (float[n, 3] x) => (float[n, 3] y) { y = Log(x) }
"""
VISION = """
    <ir_version: 10, opset_import: ["" : 21]>
    vision (float[n, 3, 4, 4] image, int64 rate) => (float[n, 3, 1, 1] y, float r)
    { y = GlobalAveragePool(image)  f = Cast<to=1>(rate)  r = Sqrt(f) }
"""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(LOG), "log.onnx")
    onnx.save(onnx.parser.parse_model(VISION), "vision.onnx")
    Path("data").mkdir()
    for name, value in (("a", 1.0), ("b", 2.0), ("c", 0.0)):
        np.save(f"data/{name}.npy", np.full((1, 3), value, np.float32))

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_a_folder_in_and_a_folder_out(call: Call) -> None:
    words = ("run", "log.onnx", *CPU, "--inputs", "data", "--save-outputs", "out")
    code, shown, err = call(*words, "--json")
    assert (code, err) == (0, "")
    document = json.loads(shown)
    assert [sample["name"] for sample in document["samples"]] == ["a", "b", "c"]
    assert (document["num_run"], document["num_reused"]) == (3, 0)
    np.testing.assert_allclose(np.load("out/b.npz")["y"], np.log(2.0), rtol=1e-6)

    np.save("data/b.npy", np.full((1, 3), 4.0, np.float32))
    Path("out/c.npz").write_bytes(b"damaged")
    code, shown, _ = call(*words, "--json")
    document = json.loads(shown)
    assert [sample["is_reused"] for sample in document["samples"]] == [True, False, False]
    np.testing.assert_allclose(np.load("out/b.npz")["y"], np.log(4.0), rtol=1e-6)

    code, shown, _ = call(*words)
    assert "wrote 0 results to out; 3 were there already" in shown
    assert json.loads(call(*words, "--rerun", "--json")[1])["num_run"] == 3
    assert json.loads(call(*words, "--off", "dead_code", "--json")[1])["num_run"] == 3


def test_validate_names_the_place(call: Call) -> None:
    code, shown, _ = call("run", "log.onnx", *CPU, "--inputs", "data", "--validate")
    assert code == 4
    assert "c: output 'y': 3 infinite of 3 elements, at [0, 0], [0, 1], [0, 2]" in shown
    assert "NOT VALID: outputs of 1 samples have NaN or infinity" in shown
    code, shown, _ = call("run", "log.onnx", *CPU, "--inputs", "data/a.npy", "--validate")
    assert code == 0
    assert "valid: every element of the outputs is finite" in shown
    code, shown, _ = call("run", "log.onnx", *CPU, "--inputs", "x=[[1,-1,1]]", "--validate", "--json")
    assert code == 4
    assert json.loads(shown)["odd"][0]["first"] == [{"index": [0, 1], "value": "nan"}]
    words = ("compare", "log.onnx", *CPU, "--against", "cpu", "--inputs", "x=[[1,-1,1]]")
    assert call(*words)[0] == 0
    code, shown, _ = call(*words, "--validate")
    assert code == 4
    assert "output 'y': 1 NaN of 3 elements, at [0, 1]" in shown


def test_images_and_numbers(call: Call) -> None:
    Image.new("RGB", (8, 8), (255, 0, 51)).save("photo.png")
    words = ("run", "vision.onnx", *CPU, "--inputs", "image:photo.png", "rate=16")
    code, _, err = call(*words)
    assert code == 2
    assert "fix: resize it: --image image:resize=4x4" in err
    code, shown, _ = call(*words, "--image", "image:resize=4", "--json", "--save-outputs", "out.npz")
    assert code == 0
    np.testing.assert_allclose(np.load("out.npz")["y"].ravel(), [1, 0, 0.2], atol=1e-6)
    assert np.load("out.npz")["r"] == 4
    assert call(*words, "--image", "imag:resize=4")[0] == 1
    assert call(*words, "--image", "resize=4")[0] == 1  # there are two inputs
    assert call(*words, "--image", "image:resize=4", "--image", "image:short=4")[0] == 1
    assert json.loads(shown)["files"] == ["out.npz"]


def test_files_that_are_no_inputs_are_told(call: Call) -> None:
    Path("data/notes.txt").write_text("")
    code, _, err = call("run", "log.onnx", *CPU, "--inputs", "data")
    assert code == 0
    assert "warning: 1 file(s) are no kind of input: data/notes.txt; they are left out" in err
    assert call("run", "log.onnx", *CPU, "--inputs", "data", "--strict")[0] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rerun",), "there are no results to run again"),
        (("--inputs", "data", "--rerun"), "there are no results to run again"),
        (("--inputs", "data", "--save-outputs", "out.npz"), "several samples go to a folder"),
        (("--inputs", "data", "--save-inputs", "in.npz"), "inputs are stored of one sample"),
    ],
)
def test_options_without_an_effect_are_refused(call: Call, words: tuple[str, ...], message: str) -> None:
    code, _, err = call("run", "log.onnx", *CPU, *words)
    assert (code, message in err) == (1, True)


def test_the_benchmark_takes_the_first_sample(call: Call) -> None:
    code, _, err = call("bench", "log.onnx", *CPU, "--inputs", "data", "--iterations", "1", "--warmup-ms", "0")
    assert code == 0
    assert "note: there are 3 samples, and the benchmark takes the first, 'a'" in err


# compare


def test_a_plan_is_compared_with_all_that_has_outputs(call: Call) -> None:
    assert call("build", "log.onnx", *CPU, "-o", "log.plan", "--quiet")[0] == 0
    inputs = ("--inputs", "x=[[1,2,3]]")
    for other in ("log.onnx", "log.plan"):
        code, shown, _ = call("compare", "log.plan", other, *inputs)
        assert code == 0, other
        assert "close: 1 of 1 outputs" in shown
        assert f"against {other}" in shown
    assert call("compare", "log.plan", "log.onnx", "--against", "cpu", *inputs)[0] == 0
    assert call("run", "log.plan", *inputs, "--save-outputs", "out.npz", "--save-inputs", "in.npz")[0] == 0
    assert call("compare", "log.onnx", "out.npz", *CPU, "--inputs", "in.npz")[0] == 0
    code, shown, _ = call("compare", "log.onnx", "out.npz", *CPU, "--inputs", "x=[[1,2,4]]")
    assert code == 4
    assert "'y': worst at [0, 2]" in shown
    assert call("compare", "log.onnx", "out.npz", *CPU, "--inputs", "x=[[1,2,4]]", "--atol", "1")[0] == 0


def test_samples_are_compared_one_by_one(call: Call) -> None:
    assert call("run", "log.onnx", *CPU, "--inputs", "data", "--save-outputs", "out")[0] == 0
    np.savez("out/b.npz", y=np.zeros((1, 3), np.float32))
    code, shown, _ = call("compare", "log.onnx", "out", *CPU, "--inputs", "data", "--allow-nan")
    assert code == 4
    assert "Outputs, each in the worst of 3 samples" in shown
    assert [line for line in shown.splitlines() if "sample '" in line] == ["sample 'b' differs"]
    code, shown, _ = call("compare", "log.onnx", *CPU, "--inputs", "data", "--allow-nan", "--json")
    assert code == 0
    assert [sample["name"] for sample in json.loads(shown)["samples"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("log.plan",), "name what to compare it with: its model, another plan, or saved outputs"),
        (("log.plan", "log.plan", "--layers"), "layers are compared of one model"),
        (("log.plan", "log.plan", "--against", "cpu"), "this has no effect: nothing runs a model"),
        (("log.plan", "vision.plan"), "'vision.plan': this has other inputs; expected x, got image, rate"),
        (("log.plan", "vision.onnx"), "'vision.onnx': this has other inputs; expected x, got image, rate"),
        (("log.plan", "data"), "expected a .npz file for one sample"),
        (("log.plan", "x.npz", "--inputs", "data"), "expected a folder with a .npz file for each sample"),
        (("log.plan", "x.npz"), "output 'y' is not in the file"),
        (("log.plan", "none.plan"), "there is no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_compared(call: Call, words: tuple[str, ...], message: str) -> None:
    for name in ("log", "vision"):
        assert call("build", f"{name}.onnx", *CPU, "-o", f"{name}.plan", "--quiet")[0] == 0
    np.savez("x.npz", z=np.zeros(1))
    code, _, err = call("compare", *words)
    assert code in (1, 2)
    assert message in err


# inspect


def test_a_model_is_inspected(call: Call, tmp_path: Path) -> None:
    write_library(tmp_path)
    write_model(tmp_path / "small.onnx")
    code, shown, _ = call("inspect", "small.onnx", "--providers", "cpu", "--plugins", "layers.py", "--json")
    assert code == 0
    document = json.loads(shown)
    assert document["opsets"] == {"acme": 1, "ai.onnx": 17}
    assert [value["dims"] for value in document["inputs"]] == [["n", 4]]
    assert {each["op"]: each["count"] for each in document["operators"]} == {
        "MatMul": 1,
        "ReduceSum": 1,
        "ScaledRelu": 1,
    }
    assert document["weights"] == {"count": 1, "parameters": 12, "size_bytes": 48}
    assert [(node["name"], node["provider"]) for node in document["placement"]] == [
        ("project", "cpu"),
        ("custom", "plugin"),
        ("sum", "cpu"),
    ]
    assert document["problem"] is None
    code, shown, _ = call("inspect", "small.onnx", "--providers", "cpu", "--layers")
    assert code == 0
    assert "no kernel for acme::ScaledRelu at opset 1" in " ".join(shown.split())
    assert "It cannot be built as it is" in shown
    assert "name its library with --plugins" in " ".join(shown.split())
    assert "nobody" in shown
    for words in (("small.onnx", "--tuning"), ("small.onnx", "--providers", "cpuu")):
        assert call("inspect", *words)[0] == 1
    assert call("build", "log.onnx", *CPU, "-o", "log.plan", "--quiet")[0] == 0
    assert call("inspect", "log.plan", "--providers", "cpu")[0] == 1


# refit


def _write_affine(path: Path, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = {"w": rng.random((4, 3), np.float32), "b": rng.random(3, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["y"])]
    ends = [helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 4), ("y", 3))]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "affine", ends[:1], ends[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return weights


def test_new_weights_from_every_kind_of_file(call: Call) -> None:
    import safetensors.numpy

    _write_affine(Path("a.onnx"), 1)
    weights = _write_affine(Path("b.onnx"), 2)
    np.savez("b.npz", **weights)
    safetensors.numpy.save_file(weights, "b.safetensors")
    assert call("build", "a.onnx", "-o", "a.plan", "--refit", "--quiet")[0] == 0
    assert call("compare", "a.plan", "b.onnx", "--shapes", "x:2x4")[0] == 4
    for name in ("b.onnx", "b.npz", "b.safetensors"):
        code, shown, _ = call("refit", "a.plan", "--weights", name, "-o", "b.plan")
        assert code == 0
        assert "2 weight(s) replaced" in shown
        assert call("compare", "b.plan", "b.onnx", "--shapes", "x:2x4")[0] == 0
    np.savez("part.npz", w=weights["w"], other=weights["b"])
    code, shown, err = call("refit", "a.plan", "--weights", "part.npz", "--json")
    assert code == 0
    assert "stay as they are: b" in err
    assert json.loads(shown)["unknown"] == ["other"]
    assert call("refit", "a.plan", "--weights", "part.npz", "--strict")[0] == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"w": np.zeros((4, 3))},
            "the new weights do not fit; expected float32 (4, 3), got float64 (4, 3)",
        ),
        ({"w": np.zeros((2, 3), np.float32)}, "the new weights do not fit"),
        ({"ww": np.zeros(1)}, "no weight of the plan has a name of the file; expected b, w, got ww"),
        ({"w": np.full((4, 3), np.nan, np.float32)}, "the new weights hold NaN or infinity"),
    ],
)
def test_weights_that_do_not_fit(call: Call, arrays: dict[str, np.ndarray], message: str) -> None:
    _write_affine(Path("a.onnx"), 1)
    assert call("build", "a.onnx", *CPU, "-o", "a.plan", "--refit", "--quiet")[0] == 0
    before = Path("a.plan").read_bytes()
    np.savez("new.npz", **arrays)
    code, _, err = call("refit", "a.plan", "--weights", "new.npz")
    assert (code, message in err) == (1, True)
    assert Path("a.plan").read_bytes() == before
    assert call("refit", "a.onnx", "--weights", "new.npz")[0] == 1


@pytest.mark.parametrize("command", ["run", "bench", "compare"])
def test_image_options_without_an_image_are_refused(call: Call, command: str) -> None:
    code, _, err = call(command, "vision.onnx", "--image", "image:resize=4", "--inputs", "rate=4")
    assert code == 1
    assert "--image: this has no effect: input 'image' gets no image" in err


def test_reports_take_images_and_refuse_what_no_run_reads(call: Call) -> None:
    Image.new("RGB", (9, 9), (255, 0, 0)).save("red.png")
    assert call("build", "vision.onnx", "--quiet")[0] == 0
    given = ("--inputs", "image:red.png", "rate=4", "--image", "image:resize=4")
    code, _, err = call("report", "vision.plan", *given)
    assert code == 1
    assert "this has no effect: nothing is run" in err
    code, shown, _ = call("report", "vision.plan", *given, "--profile", "--duration", "0.01", "--json")
    assert code == 0
    assert json.loads(shown)["engines"][0]["bench"]["inputs"] == {"image": [1, 3, 4, 4], "rate": []}
