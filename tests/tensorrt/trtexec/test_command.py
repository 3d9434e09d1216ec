"""``dovetail trtexec`` from its words to its files, its lines and its exit code."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail_tensorrt.trtexec.command import run_trtexec

QUICK = ("--iterations=3", "--duration=0", "--warmUp=0")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model with a dynamic batch: x @ w."""
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [weight],
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return str(path)


def run(*words: str) -> tuple[int, str]:
    stream = io.StringIO()
    code = run_trtexec(words, stream)
    return code, stream.getvalue()


def test_a_model_is_built_saved_loaded_and_measured(model: str, tmp_path: Path) -> None:
    plan, times, cache = tmp_path / "m.plan", tmp_path / "times.json", tmp_path / "t.cache"
    code, text = run(
        f"--onnx={model}",
        "--minShapes=x:1x4",
        "--optShapes=x:8x4",
        "--maxShapes=x:16x4",
        "--fp16",
        "--memPoolSize=workspace:64",
        f"--saveEngine={plan}",
        f"--timingCacheFile={cache}",
        "--skipInference",
    )
    assert code == 0, text
    assert "Engine built in" in text
    assert "Input build shape (profile 0): x=1x4+8x4+16x4" in text
    assert cache.is_file()
    with dovetail.load(plan) as engine:
        assert [(row.layer, row.type) for row in engine.manifest.precision] == [("product", "fp16")]
    assert text.splitlines()[0].startswith("&&&& RUNNING TensorRT.trtexec")
    assert text.splitlines()[-1].startswith("&&&& PASSED TensorRT.trtexec")
    code, text = run(f"--loadEngine={plan}", "--shapes=x:16x4", f"--exportTimes={times}", "--percentile=50,99", *QUICK)
    assert code == 0, text
    for line in (
        r"Throughput: [\d.e+]+ qps",
        r"Latency: min = .* ms, max = .* ms, mean = .* ms, median = .* ms, percentile\(50%\) = .*percentile\(99%\) = ",
        r"Enqueue Time: min = ",
        r"H2D Latency: min = ",
        r"GPU Compute Time: min = ",
        r"D2H Latency: min = ",
        r"Total Host Walltime: .* s",
        r"Total GPU Compute Time: .* s",
    ):
        assert re.search(line, text), line
    rows = json.loads(times.read_text())
    assert len(rows) >= 3
    points = ("Enq", "H2d", "Compute", "D2h")
    names = {f"{side}{point}Ms" for point in points for side in ("start", "end")}
    assert set(rows[0]) == names | {"h2dMs", "computeMs", "d2hMs", "latencyMs"}
    assert all(row["latencyMs"] == row["computeMs"] > 0 for row in rows)
    assert all(row["h2dMs"] == row["d2hMs"] == 0 for row in rows), "nothing is copied unless it is asked for"


def test_inputs_come_from_files_and_outputs_go_to_them(model: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    words = [f"--onnx={model}", "--shapes=x:2x4", *QUICK, "--includeDataTransfers", "--infStreams=2"]
    words += ["--loadInputs=x:x.bin", "--exportOutput=out.json", "--dumpOutput", "--dumpRawBindingsToFile"]
    code, text = run(*words, "--dumpProfile", "--exportProfile=p.json", "--dumpLayerInfo", "--exportLayerInfo=l.json")
    assert code == 0, text
    expected = x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    (output,) = json.loads((tmp_path / "out.json").read_text())
    assert output["name"] == "y"
    assert output["dimensions"] == "2x3"
    np.testing.assert_allclose(output["values"], expected.reshape(-1))
    raw = np.frombuffer((tmp_path / "y.output.2.3.float32.raw").read_bytes(), np.float32)
    np.testing.assert_allclose(raw, expected.reshape(-1))
    count, *layers = json.loads((tmp_path / "p.json").read_text())
    assert count == {"count": 3}
    assert set(layers[0]) == {"name", "timeMs", "averageMs", "medianMs", "percentage"}
    assert "=== Profile (3 iterations ) ===" in text
    assert "Total" in text
    assert json.loads((tmp_path / "l.json").read_text())


def test_a_file_that_is_open_to_be_read_is_filled(model: str, tmp_path: Path) -> None:
    """Programs that start trtexec name a temporary file of theirs, and read it when it ends."""
    with (tmp_path / "out.json").open("w+", encoding="utf-8") as file:
        code, text = run(f"--onnx={model}", "--shapes=x:2x4", f"--exportOutput={file.name}", *QUICK)
        assert code == 0, text
        assert json.load(file)[0]["name"] == "y"


def test_inputs_and_outputs_have_the_types_and_formats_of_the_flags(
    model: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.arange(8, dtype=np.float16).reshape(2, 4)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    words = (f"--onnx={model}", "--shapes=x:2x4", "--loadInputs=x:x.bin", "--saveEngine=m.plan", *QUICK)
    code, text = run(*words, "--inputIOFormats=fp16:chw", "--outputIOFormats=int32:chw", "--exportOutput=out.json")
    assert code == 0, text
    assert "has no effect" not in text
    (output,) = json.loads((tmp_path / "out.json").read_text())
    assert output["values"] == (x @ np.arange(12, dtype=np.float16).reshape(4, 3)).reshape(-1).tolist()
    with dovetail.Runtime().load_engine("m.plan") as engine:
        assert [engine.get_tensor_dtype(name) for name in ("x", "y")] == [dovetail.float16, dovetail.int32]


def test_an_input_has_the_format_of_the_flag(tmp_path: Path) -> None:
    shape = [1, 3, 4, 4]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    plan = tmp_path / "m.plan"
    code, text = run(f"--onnx={tmp_path / 'm.onnx'}", "--inputIOFormats=fp16:hwc8", f"--saveEngine={plan}", *QUICK)
    assert code == 0, text
    with dovetail.Runtime().load_engine(plan) as engine:
        assert engine.get_tensor_format("x") is dovetail.TensorFormat.HWC8
        assert engine.get_tensor_format("y") is dovetail.TensorFormat.LINEAR


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--inputIOFormats=fp17:chw", "expected fp32, fp16"),
        ("--inputIOFormats=fp16:wch", "expected chw, chw2"),
        ("--inputIOFormats=fp16", "such as fp16:chw"),
        ("--inputIOFormats=fp16:chw,fp16:chw", "one for each of x"),
        ("--outputIOFormats=fp32:hwc8", "none of the allowed formats exists"),
    ],
)
def test_types_and_formats_that_cannot_be_are_refused(model: str, word: str, expected: str) -> None:
    code, text = run(f"--onnx={model}", word)
    assert code == 1
    assert expected in text


def test_flags_that_layers_cannot_follow_say_why(model: str) -> None:
    code, text = run(f"--onnx={model}", "--streams=2", "--layerOutputTypes=*:fp16", *QUICK)
    assert code == 0, text
    assert text.count("has no effect: layers keep the types that the model has") == 1
    assert "infStreams: 2" in text


def _types(plan: Path) -> dict[str, str]:
    with dovetail.load(plan) as engine:
        return {row.layer: row.type for row in engine.manifest.precision}


@pytest.fixture
def ranges(model: str, tmp_path: Path) -> Path:
    """A cache with the ranges of the model."""
    cache = tmp_path / "ranges.json"
    batches = [{"x": np.random.default_rng(0).uniform(-1, 1, (2, 4)).astype(np.float32)}]
    dovetail.compile(model, precision=dovetail.PrecisionOptions(quantized="int8", calibration=batches, cache=cache))
    return cache


def test_int8_takes_ranges_from_a_cache_or_says_that_they_are_made_up(model: str, ranges: Path, tmp_path: Path) -> None:
    plan = tmp_path / "m.plan"
    code, text = run(f"--onnx={model}", "--int8", f"--calib={ranges}", f"--saveEngine={plan}", *QUICK)
    assert code == 0, text
    assert "made-up" not in text
    assert _types(plan) == {"product": "int8"}
    code, text = run(f"--onnx={model}", "--int8", f"--saveEngine={plan}", *QUICK)
    assert code == 0, text
    assert "ranges are those of made-up inputs" in text
    assert _types(plan) == {"product": "int8"}


@pytest.mark.parametrize("has_calib", [True, False], ids=["calib", "made-up"])
def test_fp16_beside_int8_is_told_where_nothing_is_left_for_it(
    model: str, ranges: Path, tmp_path: Path, has_calib: bool
) -> None:
    plan = tmp_path / "m.plan"
    words = [f"--onnx={model}", "--fp16", "--int8", *([f"--calib={ranges}"] if has_calib else []), *QUICK]
    code, text = run(*words, f"--saveEngine={plan}")
    assert code == 0, text
    assert "fp16 has no effect: every layer that computes is quantized to int8" in text
    assert ("made-up" in text) is not has_calib
    assert _types(plan) == {"product": "int8"}


def test_fp16_takes_what_int8_leaves(two_products: str, tmp_path: Path) -> None:
    plan = tmp_path / "m.plan"
    code, text = run(f"--onnx={two_products}", "--fp16", "--int8", f"--saveEngine={plan}", *QUICK)
    assert code == 0, text
    assert "has no effect" not in text
    assert _types(plan) | {"turn": ""} == {"product": "int8", "square": "fp16", "turn": ""}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fp16", "--bf16"], "--bf16 has no effect beside --fp16"),
        (["--fp16", "--calib=nowhere.json"], "--calib has no effect"),
        (["--int8", "--stronglyTyped"], "--int8 has no effect: with --stronglyTyped"),
    ],
)
def test_a_flag_for_types_that_another_overrides_is_told(model: str, words: list[str], expected: str) -> None:
    code, text = run(f"--onnx={model}", *words, *QUICK)
    assert code == 0, text
    assert text.count("has no effect") == 1
    assert expected in text


@pytest.fixture
def two_products(tmp_path: Path) -> str:
    """A product that can be quantized, and one of two computed factors, which cannot."""
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Transpose", ["p"], ["t"], name="turn", perm=[1, 0]),
            helper.make_node("MatMul", ["p", "t"], ["y"], name="square"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [weight],
    )
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    return str(path)


@pytest.mark.parametrize("constraint", ["obey", "prefer"])
def test_types_of_layers_are_obeyed_or_preferred(two_products: str, tmp_path: Path, constraint: str) -> None:
    plan = tmp_path / "m.plan"
    words = [f"--onnx={two_products}", f"--precisionConstraints={constraint}", "--int8", f"--saveEngine={plan}", *QUICK]
    code, text = run("--layerPrecisions=*:fp16,product:int8,square:fp32,turn:fp32", "--fp16", *words[:-3], *QUICK)
    assert code == 1  # with these kept, nothing is left for FP16
    code, text = run("--layerPrecisions=product:int8,square:fp16", "--fp16", *words)
    assert code == 0, text
    assert _types(plan)["product"] == "int8"
    assert _types(plan)["square"] == "fp16"
    code, text = run("--layerPrecisions=square:int8", *words)
    assert code == (1 if constraint == "obey" else 0), text
    assert "layer 'square' is to have int8 and has fp32: both of its factors are computed" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--layerPrecisions=product:fp16", "--fp16"], "can have no effect without --precisionConstraints"),
        (["--layerPrecisions=product:fp16", "--fp16", "--precisionConstraints=always"], "expected none, prefer, obey"),
        (["--layerPrecisions=other:fp16", "--fp16", "--precisionConstraints=obey"], "no layer is called 'other'"),
        (["--layerPrecisions=product:int8", "--fp16", "--precisionConstraints=obey"], "add --int8"),
        (["--layerPrecisions=product:fp7", "--fp16", "--precisionConstraints=obey"], "there is no such type"),
        (["--int8", "--calib=nowhere.json"], "there is no such calibration cache"),
        (["--int8", "--fp8"], "exclude each other"),
    ],
)
def test_mistakes_with_types_are_told(model: str, words: list[str], expected: str) -> None:
    code, text = run(f"--onnx={model}", *words, *QUICK)
    assert code == 1
    assert expected in text


def test_open_dimensions_become_one_and_that_is_said(model: str) -> None:
    code, text = run(f"--onnx={model}", *QUICK, "--verbose")
    assert code == 0, text
    assert "[V] Throughput: runs in a second" in text
    assert "Automatically overriding shape to: 1x4" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--onxx=a"], "did you mean --onnx?"),
        (["--fp17"], "unknown option: --fp17"),
        (["--onnx=missing.onnx"], "there is no such file"),
        (["--loadEngine=a", "--onnx=b"], "only one"),
        (["--fp16=yes", "--onnx=a"], "takes no value"),
        (["--onnx"], "needs a value"),
        (["--onnx=a", "--shapes=x:1xq"], "cannot be read"),
        (["--onnx=a", "--percentile=101"], "from 0 to 100"),
        (["--profile=2", "--minShapes=x:1", "--onnx=a"], "without gaps"),
    ],
)
def test_what_cannot_be_done_is_said_and_fails(words: list[str], expected: str) -> None:
    code, text = run(*words)
    assert code == 1
    assert expected in text
    assert text.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec")


def test_flags_without_an_effect_are_named(model: str) -> None:
    code, text = run(f"--onnx={model}", "--useCudaGraph", "--useDLACore=0", "--separateProfileRun", "--skipInference")
    assert code == 0, text
    for name in ("useCudaGraph", "useDLACore", "separateProfileRun"):
        assert f"--{name} has no effect" in text


def test_a_file_that_is_no_model_fails(model: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model at all")
    code, text = run(f"--onnx={tmp_path / 'notes.txt'}")
    assert code == 1
    assert "--onnx: the file is no ONNX model; got" in text
    assert run(f"--onnx={model}", "--skipInference", f"--saveEngine={tmp_path / 'a.plan'}")[0] == 0
    code, text = run(f"--onnx={tmp_path / 'a.plan'}")
    assert code == 1
    assert "fix: --loadEngine runs a plan that was saved" in text


def test_a_wrong_plan_fails(tmp_path: Path) -> None:
    (tmp_path / "no.plan").write_bytes(b"nothing")
    code, text = run(f"--loadEngine={tmp_path / 'no.plan'}")
    assert code == 1
    assert "[E]" in text


def test_plans_tell_who_wrote_them(model: str, tmp_path: Path) -> None:
    plan = tmp_path / "m.plan"
    dovetail.compile(model).save(plan)
    code, text = run(f"--loadEngine={plan}", "--getPlanVersionOnly")
    assert code == 0, text
    assert "dovetail" in text


def test_the_command_is_one_of_dovetail(model: str, monkeypatch: Any, capsys: Any) -> None:
    from dovetail.cli import main, parser
    from dovetail_tensorrt.trtexec import declare

    monkeypatch.setattr(parser, "load_declare", lambda name: declare)
    monkeypatch.setattr(parser, "_summaries", lambda command: {"trtexec": "as trtexec"})
    assert main(["trtexec", f"--onnx={model}", "--skipInference"]) == 0
    assert "&&&& PASSED" in capsys.readouterr().out
    assert main(["trtexec", "--nothing"]) == 1
    assert main(["trtexec", "--help"]) == 0
    assert "--minShapes=..." in capsys.readouterr().out
