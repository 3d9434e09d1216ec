"""Values on a device outside of sessions: made, read, changed and copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from onnxruntime_ep_dovetail.device.memory import VENDOR_ID
from tests.support.ort_devices import DeviceInOrt, devices_in_ort, needs_memory_info

pytestmark = pytest.mark.versions

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint16, np.bool_])
def test_a_value_goes_to_the_device_and_back(device: DeviceInOrt, dtype: Any) -> None:
    array = (X % 3).astype(dtype)
    value = device.value(array)
    np.testing.assert_array_equal(value.numpy(), array)
    assert value.data_ptr() != array.ctypes.data
    counts = device.provider.statistics
    assert (counts.copies_to_device, counts.copies_to_host, counts.copies_inside) == (1, 1, 0)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3)])
def test_scalars_and_empty_values(device: DeviceInOrt, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    result = device.value(array).numpy()
    assert result.shape == shape
    np.testing.assert_array_equal(result, array)


def test_memory_belongs_to_the_device(device: DeviceInOrt) -> None:
    value = device.empty((3, 4))
    statistics = device.provider.allocator.statistics
    assert statistics.used_bytes >= 48
    assert np.isnan(value.numpy()).all()  # the pattern of fresh memory


def test_a_value_is_changed_in_place(device: DeviceInOrt) -> None:
    value = device.value(X)
    address = value.data_ptr()
    value.update_inplace(X + 1)
    assert value.data_ptr() == address
    np.testing.assert_array_equal(value.numpy(), X + 1)


def test_values_are_copied_inside_the_device(device: DeviceInOrt) -> None:
    sources, targets = [device.value(X), device.value(X * 2)], [device.empty(X.shape), device.empty(X.shape)]
    ort.copy_tensors(sources, targets)
    np.testing.assert_array_equal(targets[0].numpy(), X)
    np.testing.assert_array_equal(targets[1].numpy(), X * 2)
    assert device.provider.statistics.copies_inside == 2


def test_copies_with_a_stream_are_done_when_somebody_waits_for_it(device: DeviceInOrt) -> None:
    stream = device.ep_device.create_sync_stream()
    source, target = device.value(X), device.value(X - 20)
    ort.copy_tensors([source], [target], stream)
    queue = device.provider.find_stream(stream.get_handle())
    assert queue.pending == 1
    queue.synchronize()
    np.testing.assert_array_equal(target.numpy(), X)


def test_a_stream_goes_back_when_nobody_has_it(device: DeviceInOrt) -> None:
    handle = device.ep_device.create_sync_stream().get_handle()
    with pytest.raises(Exception, match="no stream of this device"):
        device.provider.find_stream(handle)


@needs_memory_info
def test_pinned_memory_is_read_and_written_without_a_copy(device: DeviceInOrt) -> None:
    value = device.pinned((3, 4))
    assert device.provider.pinned_allocator.statistics.used_bytes >= 48
    array = value.numpy()
    assert array.ctypes.data == value.data_ptr()
    array[...] = X
    there, back = device.empty((3, 4)), device.pinned((3, 4))
    ort.copy_tensors([value], [there])
    ort.copy_tensors([there], [back])
    np.testing.assert_array_equal(back.numpy(), X)
    counts = device.provider.statistics
    assert (counts.copies_to_device, counts.copies_to_host) == (1, 1)


def test_memory_infos_say_which_device_it_is(device: DeviceInOrt) -> None:
    info = device.ep_device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    assert (info.device_id, info.device_vendor_id) == (device.number, VENDOR_ID)
    assert device.name in info.name
    pinned = device.ep_device.memory_info(ort.OrtDeviceMemoryType.HOST_ACCESSIBLE)
    assert pinned.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
    assert device.ep_device.ep_metadata["device"] == "host device"


def test_two_devices_have_memory_of_their_own() -> None:
    with devices_in_ort(2) as (one, other):
        assert one.number != other.number
        values = [one.value(X), other.value(X + 1)]
        np.testing.assert_array_equal(values[0].numpy(), X)
        np.testing.assert_array_equal(values[1].numpy(), X + 1)
        assert [d.provider.statistics.copies_to_device for d in (one, other)] == [1, 1]
        with pytest.raises(
            Exception, match="Data transfer implementation between source and destination device was not found"
        ):
            ort.copy_tensors([values[0]], [values[1]])


def test_a_peer_copies_from_one_device_to_another() -> None:
    with devices_in_ort(2) as (one, other):
        one.provider.options = type(one.provider.options)(name=one.name, peers=(other.name,))
        source, target = one.value(X), other.empty(X.shape)
        ort.copy_tensors([source], [target])
        np.testing.assert_array_equal(target.numpy(), X)
        assert one.provider.statistics.copies_inside == 1


@pytest.mark.parametrize("route", ["compile", "kernels"])
def test_results_whose_rank_only_the_run_tells(device: DeviceInOrt, route: str) -> None:
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Exp", ["x"], ["y"])], "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 18)]
    session = device.session(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), route=route)
    for shape in ((2, 2), (3,), (1, 2, 3), (2, 2)):
        x = np.ones(shape, np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x), rtol=1e-6)
