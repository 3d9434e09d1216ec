"""A device that fails in a callback: the status has the name of the device and the text, and the device goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort, needs_memory_info
from tests.support.ort_ep_models import feeds, plain_model, run_plain, two_part_model

pytestmark = pytest.mark.versions

X = np.arange(32, dtype=np.float32).reshape(2, 16)


def new_value(device: DeviceInOrt) -> Any:
    return device.value(X)


def read_value(device: DeviceInOrt) -> Any:
    return VALUES[0].numpy()


def copy_values(device: DeviceInOrt) -> None:
    ort.copy_tensors([VALUES[0]], [VALUES[0]])


VALUES: list[Any] = []


@pytest.mark.parametrize("action", [new_value, read_value, copy_values])
@pytest.mark.parametrize("callback", ["copy", "array_at", "synchronize_stream"])
def test_values(device: DeviceInOrt, action: Callable[[DeviceInOrt], Any], callback: str) -> None:
    VALUES[:] = [device.value(X)]
    device.break_in(callback)
    with pytest.raises(Exception, match=f"{device.name}.*told to fail in {callback}"):
        action(device)
    device.break_in()
    np.testing.assert_array_equal(VALUES[0].numpy(), X)
    VALUES.clear()


@pytest.mark.parametrize(
    "callback", ["get_capability", "host_inputs", "load_kernel", "array_at", "copy", "synchronize"]
)
def test_making_a_session(device: DeviceInOrt, callback: str) -> None:
    device.break_in(callback)
    with pytest.raises(Exception, match=f"{device.name}.*told to fail in {callback}"):
        _run_once(device)
    device.break_in()
    _run_once(device)


def _run_once(device: DeviceInOrt) -> None:
    inputs = feeds()
    session = device.session(plain_model())
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


@pytest.mark.parametrize(
    "callback", ["create_stream", "array_at", "copy", "import_array", "synchronize_stream", "bind"]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_run(device: DeviceInOrt, callback: str, is_first: bool) -> None:
    if not is_first and callback in ("create_stream", "bind"):
        pytest.skip("only the first run makes streams and contexts")
    session = device.session(two_part_model("Sqrt"), fallback=True, exclude="Sqrt")
    if not is_first:
        session.run(None, {"x": X})
    device.break_in(callback)
    with pytest.raises(Exception, match=f"told to fail in {callback}"):
        session.run(None, {"x": X})
    device.break_in()
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.sqrt(X), rtol=1e-6)


@pytest.mark.parametrize("callback", ["record", "synchronize_event"])
def test_order_between_a_device_and_the_cpu(device: DeviceInOrt, callback: str) -> None:
    session = device.session(two_part_model("Sqrt"), fallback=True, exclude="Sqrt")
    device.break_in(callback)
    with pytest.raises(Exception, match=f"told to fail in {callback}"):
        session.run(None, {"x": X})
    device.break_in()
    np.testing.assert_allclose(session.run(None, {"x": X})[0], -np.sqrt(X), rtol=1e-6)


def test_a_failure_while_streams_end_is_logged(device: DeviceInOrt, capfd: pytest.CaptureFixture[str]) -> None:
    session = device.session(plain_model())
    session.run(None, feeds())
    device.break_in("close_stream")
    del session
    assert "told to fail in close_stream" in capfd.readouterr().err
    device.break_in()
    _run_once(device)


def test_too_few_claims() -> None:
    with devices_in_ort(missing_claims=1) as (device,), pytest.raises(Exception, match="another number of claims"):
        device.session(plain_model())


def test_a_provider_that_cannot_be_made_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    from dovetail.provider.loader import register_provider, unregister_provider
    from dovetail.testing import HostDeviceFactory, HostDeviceOptions

    register_provider(HostDeviceFactory(HostDeviceOptions(name="broken", raises_in=("create",))))
    try:
        with devices_in_ort() as (device,):
            _run_once(device)
            listed = [one.ep_metadata["backend"] for one in ort.get_ep_devices() if one.ep_name == ort_ep.EP]
            assert "broken" not in listed
    finally:
        unregister_provider("broken")
    assert "told to fail in create" in capfd.readouterr().err


@needs_memory_info
def test_pinned_memory_that_cannot_be_had(device: DeviceInOrt, capfd: pytest.CaptureFixture[str]) -> None:
    device.break_in("pinned_allocator")
    value = device.pinned((3,))  # ONNX Runtime makes a value without memory of it
    assert value.data_ptr() == 0
    assert f"provider '{device.name}': pinned_allocator raised" in capfd.readouterr().err
    device.break_in()
    assert device.pinned((3,)).shape() == [3]
