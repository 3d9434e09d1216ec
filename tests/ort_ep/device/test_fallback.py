"""Sessions on a device in which every step of a partition runs on the host: values stay where ONNX Runtime has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort

pytestmark = pytest.mark.versions

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(1).standard_normal((1, 1, 6, 6)).astype(np.float32)


@dt.layer("HostOnlyScale")
def host_only_scale(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x * np.float32(3)


def make(
    nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, int], *, opset: int = 18
) -> onnx.ModelProto:
    """A model whose inputs are those of the arrays; shapes of outputs are left to inference."""
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
    )
    domains = (("", opset), ("com.microsoft", 1), ("trt.plugins", 1))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in domains], ir_version=10)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], dict[str, int], int]] = {
    "ReduceSum": ([helper.make_node("ReduceSum", ["x", "axes"], ["y"])], {"x": X, "axes": ints(1)}, {"y": FLOAT}, 18),
    "ConstantOfShape": ([helper.make_node("ConstantOfShape", ["s"], ["y"])], {"s": ints(2, 5)}, {"y": FLOAT}, 18),
    "OneHot": (
        [helper.make_node("OneHot", ["i", "depth", "values"], ["y"])],
        {"i": ints(0, 2, 1), "depth": ints(4), "values": np.array([0, 1], np.float32)},
        {"y": FLOAT},
        18,
    ),
    "Reshape": ([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": X, "s": ints(4, 6)}, {"y": FLOAT}, 18),
    "TopK": ([helper.make_node("TopK", ["x", "k"], ["y", "i"])], {"x": X, "k": ints(2)}, {"y": FLOAT, "i": INT64}, 18),
    "NonZero": ([helper.make_node("NonZero", ["x"], ["y"])], {"x": np.maximum(X, 0)}, {"y": INT64}, 18),
    "Dropout10": ([helper.make_node("Dropout", ["x"], ["y"])], {"x": X}, {"y": FLOAT}, 10),
    "ResizeAntialias": (
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1)],
        {"x": IMAGE, "sizes": ints(1, 1, 3, 3)},
        {"y": FLOAT},
        18,
    ),
    "Sin": ([helper.make_node("Sin", ["x"], ["y"])], {"x": X}, {"y": FLOAT}, 18),
    "Unique": ([helper.make_node("Unique", ["x"], ["y"])], {"x": X}, {"y": FLOAT}, 18),
}


@pytest.fixture
def narrow() -> Iterator[DeviceInOrt]:
    """A device that runs Relu only, so that other operators fall back to the host."""
    with devices_in_ort(ops=["Relu"]) as (made,):
        yield made


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("case", CASES)
def test_a_partition_of_host_steps_runs_on_a_device(narrow: DeviceInOrt, case: str, route: str) -> None:
    nodes, feed, outputs, opset = CASES[case]
    model = make(nodes, feed, outputs, opset=opset)
    wanted = ort_ep.reference_session(model).run(None, feed)
    session = narrow.session(model, fallback=True, route=route, claim="all")
    assert ort_ep.EP in ort_ep.assigned(session)
    for _ in range(3):
        for result, expected in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("claim", ["custom", "all", "auto"])
def test_a_python_layer_alone_in_its_partition_runs_on_a_device(narrow: DeviceInOrt, claim: str) -> None:
    node = helper.make_node("HostOnlyScale", ["x"], ["y"], domain="trt.plugins")
    session = narrow.session(make([node], {"x": X}, {"y": FLOAT}), fallback=True, claim=claim)
    for scale in (1, 2, 3):
        np.testing.assert_allclose(session.run(None, {"x": X * scale})[0], X * scale * 3, rtol=1e-6)


def test_a_python_layer_among_others_runs_with_custom_claims(narrow: DeviceInOrt) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("HostOnlyScale", ["a"], ["b"], domain="trt.plugins"),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    session = narrow.session(make(nodes, {"x": X}, {"y": FLOAT}), fallback=True, claim="custom")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -3 * np.exp(X), rtol=1e-5)


def test_bound_values_of_the_device_serve_host_steps(narrow: DeviceInOrt) -> None:
    session = narrow.session(make([helper.make_node("Sin", ["x"], ["y"])], {"x": X}, {"y": FLOAT}))
    binding, result = session.io_binding(), narrow.empty(X.shape)
    binding.bind_ortvalue_input("x", narrow.value(X))
    binding.bind_ortvalue_output("y", result)
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(result.numpy(), np.sin(X), rtol=1e-5)


def test_a_sequence_element_at_a_run_time_index(narrow: DeviceInOrt) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
        helper.make_node("SequenceAt", ["s", "i"], ["y"]),
    ]
    model = make(nodes, {"x": X, "i": np.array(1, np.int64)}, {"y": FLOAT})
    session = narrow.session(model, fallback=True, claim="all")
    for index in (0, 2, 1):
        result = session.run(None, {"x": X, "i": np.array(index, np.int64)})[0]
        np.testing.assert_array_equal(result, X[:, index])


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("ends", ["in", "out", "both"])
def test_memcpy_nodes_of_a_model_run(narrow: DeviceInOrt, ends: str, route: str) -> None:
    first, last = ("a" if ends != "out" else "x"), ("b" if ends != "in" else "y")
    nodes = [helper.make_node("Relu", [first], [last])]
    if first == "a":
        nodes.insert(0, helper.make_node("MemcpyFromHost", ["x"], ["a"]))
    if last == "b":
        nodes.append(helper.make_node("MemcpyToHost", ["b"], ["y"]))
    session = narrow.session(make(nodes, {"x": X}, {"y": FLOAT}), fallback=True, route=route)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


def test_the_host_backend_by_an_option_serves_a_session_on_a_device(narrow: DeviceInOrt) -> None:
    model = make([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, {"y": FLOAT})
    session = narrow.session(model, providers="cpu")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(X, 0))


def test_a_compiled_model_of_host_steps_runs_on_a_device(narrow: DeviceInOrt, tmp_path: Any) -> None:
    model = make([helper.make_node("Sin", ["x"], ["y"])], {"x": X}, {"y": FLOAT})
    path = tmp_path / "model.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": "1"}
    narrow.session(model, entries=entries)
    session = narrow.session(onnx.load(path))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.sin(X), rtol=1e-5)


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 26), reason="ONNX Runtime has plugins capture graphs from 1.26 on")
@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Sin", ["x"], ["y"])],
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Sin", ["a"], ["b"]),
            helper.make_node("Relu", ["b"], ["y"]),
        ],
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("RandomUniformLike", ["x"], ["r"]),
            helper.make_node("Add", ["a", "r"], ["y"]),
        ],
    ],
    ids=["only", "middle", "without an input of the device"],
)
def test_a_capture_with_a_host_step_is_refused(nodes: list[onnx.NodeProto]) -> None:
    with devices_in_ort(ops=["Relu", "Add"]) as (device,):
        session = device.session(make(nodes, {"x": X}, {"y": FLOAT}), graph_capture="1")
        binding, result = session.io_binding(), device.empty(X.shape)
        binding.bind_ortvalue_input("x", device.value(X))
        binding.bind_ortvalue_output("y", result)

        def run() -> None:
            for _ in range(4):  # the third run captures
                session.run_with_iobinding(binding)

        with pytest.raises(Exception, match=r"(?s)needs the host, for a step.*graph_capture=0"):
            run()


@pytest.mark.parametrize("name", ["x", "y"])
def test_host_memory_bound_as_device_memory_raises(narrow: DeviceInOrt, name: str) -> None:
    session = narrow.session(make([helper.make_node("Sin", ["x"], ["y"])], {"x": X}, {"y": FLOAT}))
    info = narrow.ep_device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    place = ort.OrtDevice.make("gpu", info.device_id, info.device_vendor_id)._get_c_device()
    binding, array = session.io_binding(), X.copy()
    binding.bind_ortvalue_input("x", narrow.value(X))
    binding.bind_ortvalue_output("y", narrow.empty(X.shape))
    bind = binding._iobinding.bind_input if name == "x" else binding._iobinding.bind_output
    bind(name, place, np.float32, X.shape, array.ctypes.data)
    with pytest.raises(Exception, match=rf"'{name}'.*wrong kind of memory.*host memory"):
        session.run_with_iobinding(binding)
