"""Sessions on a device: where values lie, what is copied, and who runs which node."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model, run_plain, two_part_model
from tests.support.threads import in_threads

pytestmark = pytest.mark.versions


def bind(session: ort.InferenceSession, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    return binding


def model_of(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], kind: int = 1) -> onnx.ModelProto:
    values = [[helper.make_tensor_value_info(n, k, s) for n, (k, s) in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_a_session_takes_everything_by_default(device: DeviceInOrt, route: str) -> None:
    session = device.session(plain_model(), route=route)
    assert ort_ep.assigned(session) == {ort_ep.EP: ["Add", "MatMul", "Relu"]}
    for rows in (4, 4, 1, 7, 4):
        inputs = feeds(rows)
        np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
    assert device.provider.statistics.launches == 15


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_values_on_the_device_are_not_copied(device: DeviceInOrt, route: str) -> None:
    session, inputs = device.session(plain_model(), route=route), feeds()
    there = {name: device.value(array) for name, array in inputs.items()}
    result = device.empty((4, 8))
    binding = bind(session, there, {"y": result})
    for _ in range(3):
        device.provider.statistics.reset()
        session.run_with_iobinding(binding)
        counts = device.provider.statistics
        assert (counts.copies_to_device, counts.copies_to_host, counts.copies_inside) == (0, 0, 0)
        assert counts.launches == 3
        assert counts.waits == 1  # the end of the run
    np.testing.assert_allclose(result.numpy(), run_plain(inputs), rtol=1e-5)


def test_a_result_can_be_left_on_the_device(device: DeviceInOrt) -> None:
    session, inputs = device.session(plain_model()), feeds()
    binding = bind(session, {name: device.value(array) for name, array in inputs.items()}, {})
    info = device.ep_device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    binding._iobinding.bind_output(
        "y", ort.OrtDevice.make("gpu", info.device_id, info.device_vendor_id)._get_c_device()
    )
    device.provider.statistics.reset()
    session.run_with_iobinding(binding)
    assert device.provider.statistics.copies_to_host == 0
    (result,) = binding.get_outputs()
    np.testing.assert_allclose(result.numpy(), run_plain(inputs), rtol=1e-5)


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 25), reason="ONNX Runtime has plugins wait from 1.25 on")
def test_a_run_waits_only_when_it_is_asked_to(device: DeviceInOrt) -> None:
    session, inputs = device.session(plain_model()), feeds()
    result = device.empty((4, 8))
    binding = bind(session, {name: device.value(array) for name, array in inputs.items()}, {"y": result})
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    session.run_with_iobinding(binding)
    device.provider.statistics.reset()
    session.run_with_iobinding(binding, options)
    assert device.provider.statistics.waits == 0
    binding.synchronize_outputs()
    assert device.provider.statistics.waits > 0
    np.testing.assert_allclose(result.numpy(), run_plain(inputs), rtol=1e-5)


# nodes that stay with ONNX Runtime


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_nodes_of_the_cpu_in_the_middle_get_copies_and_order(device: DeviceInOrt, route: str) -> None:
    model = two_part_model("Sqrt")
    session = device.session(model, fallback=True, exclude="Sqrt", route=route)
    assert ort_ep.assigned(session) == {ort_ep.EP: ["Neg", "Relu"], "CPUExecutionProvider": ["Sqrt"]}
    for rows in (2, 2, 5, 0):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], -np.sqrt(np.maximum(x, 0)), rtol=1e-6)
    value, result = device.value(x := np.ones((3, 16), np.float32)), device.empty((3, 16))
    device.provider.statistics.reset()
    session.run_with_iobinding(bind(session, {"x": value}, {"y": result}))
    counts = device.provider.statistics
    assert (counts.copies_to_host, counts.copies_to_device) == (1, 1)  # the two Memcpy nodes
    np.testing.assert_array_equal(result.numpy(), -x)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.bool_, np.uint8, np.float16])
def test_memcpy_nodes_take_every_type(device: DeviceInOrt, dtype: Any) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Reshape", ["a", "s"], ["y"])]
    nodes[0].name, nodes[1].name = "i", "r"
    model = model_of(nodes, {"x": (kind, [2, 3]), "s": (TensorProto.INT64, [1])}, {"y": (kind, [6])})
    session = device.session(
        model, fallback=True, exclude="Identity", entries={"session.disable_specified_optimizers": "EliminateIdentity"}
    )
    array = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    (result,) = session.run(None, {"x": array, "s": np.array([6])})
    np.testing.assert_array_equal(result, array.reshape(6))


# shapes that elements decide


def test_shapes_that_only_a_run_tells(device: DeviceInOrt) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["y"])]
    model = model_of(nodes, {"x": (1, ["N"])}, {"y": (TensorProto.INT64, [1, "M"])})
    session = device.session(model)
    for array in ([1, 0, -2, 3], [0, 0], [5, 6, 7]):
        x = np.array(array, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.array(np.nonzero(np.maximum(x, 0))))


def test_inputs_that_are_shapes(device: DeviceInOrt) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Expand", ["a", "s"], ["y"])]
    model = model_of(nodes, {"x": (1, [1, 3]), "s": (TensorProto.INT64, [2])}, {"y": (1, ["A", "B"])})
    session = device.session(model)
    x = np.array([[1, -1, 2]], np.float32)
    for rows in (2, 5, 2):
        (result,) = session.run(None, {"x": x, "s": np.array([rows, 3])})
        np.testing.assert_array_equal(result, np.broadcast_to(np.maximum(x, 0), (rows, 3)))


def test_an_engine_that_takes_whole_partitions() -> None:
    with devices_in_ort(compiles=True) as (device,):
        session, inputs = device.session(plain_model()), feeds()
        result = device.empty((4, 8))
        binding = bind(session, {name: device.value(array) for name, array in inputs.items()}, {"y": result})
        session.run_with_iobinding(binding)
        counts = device.provider.statistics
        counts.reset()
        session.run_with_iobinding(binding)
        assert (counts.launches, counts.copies_to_device, counts.copies_to_host) == (1, 0, 0)
        np.testing.assert_allclose(result.numpy(), run_plain(inputs), rtol=1e-5)


def test_a_device_without_streams() -> None:
    with devices_in_ort(has_streams=False) as (device,):
        session = device.session(two_part_model("Sqrt"), fallback=True, exclude="Sqrt")
        x = np.arange(32, dtype=np.float32).reshape(2, 16)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], -np.sqrt(x), rtol=1e-6)
        value = device.value(x)
        np.testing.assert_array_equal(value.numpy(), x)


# threads and sessions


def test_threads_have_streams_of_their_own(device: DeviceInOrt) -> None:
    session = device.session(two_part_model("Sqrt"), fallback=True, exclude="Sqrt")
    seen: set[int] = set()

    def work(number: int) -> None:
        seen.add(threading.get_ident())
        for rows in range(1, 12):
            x = np.full((rows, 16), number + rows, np.float32)
            result = session.run(None, {"x": x})[0]
            np.testing.assert_allclose(result, -np.sqrt(x), rtol=1e-6)

    in_threads(work, 4)
    assert len(seen) == 4


def test_sessions_come_and_go_and_leave_nothing(device: DeviceInOrt) -> None:
    inputs = feeds()
    for _ in range(3):
        session = device.session(plain_model())
        np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
        del session
        used = device.provider.allocator.statistics.used_bytes
    assert used == device.provider.allocator.statistics.used_bytes
    before = used
    session = device.session(plain_model())
    session.run(None, inputs)
    assert device.provider.allocator.statistics.used_bytes > before  # weights and what runs need
    del session
    assert device.provider.allocator.statistics.used_bytes == before


def test_a_session_outlives_the_registration() -> None:
    with devices_in_ort() as (device,):
        session, inputs = device.session(plain_model()), feeds()
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


@pytest.mark.parametrize("route", ["compile", "kernels"])
@pytest.mark.parametrize("dims", [[1, 2, 1, 1, 2, 1, 1, 1, 3], [*"abcdefghi"]], ids=["static", "open"])
def test_more_dimensions_than_plugins_have(device: DeviceInOrt, route: str, dims: list[Any]) -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 1, 1, 2, 1, 1, 1, 3)
    turn = helper.make_node("Transpose", ["x"], ["t"], perm=[8, 7, 6, 5, 4, 3, 2, 1, 0])
    model = model_of([turn, helper.make_node("Neg", ["t"], ["y"])], {"x": (1, dims)}, {"y": (1, None)})
    session = device.session(model, route=route)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x.transpose())
