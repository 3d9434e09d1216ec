"""The session beside ONNX Runtime's own: the same questions, the same answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import dovetail as dt

FEED = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.full((1, 3), 2.0, np.float32)}


class Messages(dt.ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.texts.append(msg)


def _model() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Mul", ["a", "b"], ["product"])]
    inputs = [
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 3]),
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 3]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("sum", "product")]
    graph = helper.make_graph(nodes, "pair", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="test")
    model.model_version = 3
    model.metadata_props.add(key="labels", value="cat,dog")
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(_model(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _describe(session: Any) -> dict[str, Any]:
    metadata = session.get_modelmeta()
    return {
        "inputs": [(tensor.name, tensor.type, tensor.shape) for tensor in session.get_inputs()],
        "outputs": [(tensor.name, tensor.type, tensor.shape) for tensor in session.get_outputs()],
        "overridable": list(session.get_overridable_initializers()),
        "metadata": (metadata.graph_name, metadata.producer_name, dict(metadata.custom_metadata_map), metadata.version),
        "all": [result.tolist() for result in session.run(None, FEED)],
        "some": [result.tolist() for result in session.run(["product"], FEED)],
        "bound": _run_bound(session),
        "called back": _run_async(session),
    }


def _run_bound(session: Any) -> Any:
    binding, target = session.io_binding(), np.empty((2, 3), np.float32)
    binding.bind_cpu_input("a", FEED["a"])
    array = FEED["b"]
    binding.bind_input("b", "cpu", 0, np.float32, array.shape, array.ctypes.data)
    binding.bind_output("product")
    binding.bind_output("sum", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    session.run_with_iobinding(binding)
    return [result.tolist() for result in binding.copy_outputs_to_cpu()], target.tolist()


def _run_async(session: Any) -> Any:
    done, got = threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        got.append((results[0].tolist(), user_data, error))
        done.set()

    session.run_async(["sum"], FEED, callback, "mine")
    assert done.wait(30)
    return got


def test_it_answers_as_onnx_runtime_does(path: Path) -> None:
    ours = dt.InferenceSession(path, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert _describe(ours) == _describe(theirs)
    assert ours.get_providers() == ["cpu", "onnxruntime"]


def test_bytes_and_plans_are_opened(path: Path, tmp_path: Path) -> None:
    with dt.compile(path) as engine:
        engine.save(tmp_path / "model.plan")
    for source in (_model().SerializeToString(), tmp_path / "model.plan", (tmp_path / "model.plan").read_bytes()):
        np.testing.assert_array_equal(dt.InferenceSession(source).run(["sum"], FEED)[0], FEED["a"] + FEED["b"])
    assert dt.InferenceSession(tmp_path / "model.plan").get_modelmeta().graph_name == "pair"


def test_options_are_used_or_told(path: Path) -> None:
    options, messages = onnxruntime.SessionOptions(), Messages()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = dt.InferenceSession(path, options, [("onnxruntime", {"threads": 2})], logger=messages)
    session.run(None, FEED, onnxruntime.RunOptions())
    session.run(None, FEED, onnxruntime.RunOptions())
    assert messages.texts == ["sess_options.log_severity_level has no effect", "run_options have no effect"]
    assert session.get_session_options() is options
    assert session.get_provider_options()["onnxruntime"] == {"threads": "2"}


def test_values_of_onnx_runtime_are_taken(path: Path) -> None:
    feed = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in FEED.items()}
    np.testing.assert_array_equal(dt.InferenceSession(path).run(["sum"], feed)[0], FEED["a"] + FEED["b"])


def test_mistakes_are_told(path: Path) -> None:
    with pytest.raises(dt.UsageError, match="no counterpart of 'TensorrtExecutionProvider'; expected CPUExecution"):
        dt.InferenceSession(path, providers=["TensorrtExecutionProvider"])
    with pytest.raises(dt.ProviderError, match="there is no provider 'cuda'"):
        dt.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(dt.UsageError, match="provider_options: not one entry a provider"):
        dt.InferenceSession(path, providers=["cpu"], provider_options=[])
    with pytest.raises(dt.ModelError, match="the file cannot be read"):
        dt.InferenceSession(path.with_name("none.onnx"))
    session = dt.InferenceSession(path)
    with pytest.raises(dt.InputError, match=r"nothing was given for input\(s\) b"):
        session.run(None, {"a": FEED["a"]})
    with pytest.raises(dt.InputError, match="not a mapping from input to array"):
        session.run(None, [FEED["a"]])  # type: ignore[arg-type]
    with pytest.raises(dt.UsageError, match="there is no output 'none'"):
        session.run(["none"], FEED)


def test_mistakes_of_bindings_are_told(path: Path) -> None:
    session = dt.InferenceSession(path)
    binding = session.io_binding()
    with pytest.raises(dt.UsageError, match="no output is bound"):
        session.run_with_iobinding(binding)
    with pytest.raises(dt.UsageError, match="there is no input 'c'"):
        binding.bind_cpu_input("c", FEED["a"])
    with pytest.raises(dt.UsageError, match="expected cpu, got cuda"):
        binding.bind_output("sum", "cuda")
    target = np.empty((1, 3), np.float32)
    with pytest.raises(dt.InputError, match="expected float32"):
        binding.bind_output("sum", "cpu", 0, np.int32, target.shape, target.ctypes.data)
    for name, array in FEED.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("sum", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    with pytest.raises(dt.InputError, match=r"output 'sum': wrong shape; expected \(2, 3\), got \(1, 3\)"):
        session.run_with_iobinding(binding)
