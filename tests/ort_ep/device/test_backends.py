"""Several back ends: which one a session runs on, and what happens when it has the device of another."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import dovetail as dt
from dovetail import UsageError
from onnxruntime_ep_dovetail.device.backends import CPU_BACKEND, Backend, choose_backend
from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain

pytestmark = pytest.mark.versions


def test_the_first_device_is_chosen_and_the_cpu_where_there_is_none() -> None:
    assert choose_backend(["cpu", "a", "b"], "") == Backend(name="a")
    assert choose_backend(["cpu"], "") == CPU_BACKEND
    assert choose_backend([], "") == CPU_BACKEND
    assert choose_backend(["cpu", "a"], "cpu") == CPU_BACKEND


def test_a_back_end_can_be_named() -> None:
    with devices_in_ort(2) as (one, other):
        assert choose_backend(["cpu", one.name, other.name], other.name) == Backend(name=other.name)
        assert choose_backend(["cpu"], one.name) == Backend(name=one.name, is_given=False)
        with pytest.raises(UsageError, match="option backend"):
            choose_backend([one.name], other.name)
        with pytest.raises(UsageError, match="no back end with memory"):
            choose_backend(["cpu"], "onnxruntime")
        with pytest.raises(dt.ProviderError, match="there is no provider 'nothing'"):
            choose_backend(["cpu"], "nothing")


def test_each_back_end_is_a_device(device: DeviceInOrt) -> None:
    listed = [one.ep_metadata["backend"] for one in ort.get_ep_devices() if one.ep_name == ort_ep.EP]
    assert {"cpu", device.name} <= set(listed)
    cpu = next(one for one in ort.get_ep_devices() if one.ep_metadata.get("backend") == "cpu")
    assert "device_id" not in cpu.ep_metadata
    assert cpu.memory_info(ort.OrtDeviceMemoryType.DEFAULT) is None


@ort_ep.needs_names
def test_by_name_a_session_gets_the_cpu_and_can_name_another(device: DeviceInOrt, registration: str) -> None:
    inputs = feeds()
    session = ort_ep.dovetail_session(plain_model(), by_name=True, fallback=False, claim="all")
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
    assert device.provider.statistics.launches == 0
    session = by_name(plain_model(), backend=device.name)
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
    assert device.provider.statistics.launches == 3
    assert ort_ep.assigned(session) == {ort_ep.EP: ["Add", "MatMul", "Relu"]}


@ort_ep.needs_names
def test_by_name_a_back_end_that_is_not_there(registration: str) -> None:
    with pytest.raises(Exception, match="there is no provider 'nothing'"):
        by_name(plain_model(), backend="nothing")


def by_name(model: Any, **options: str) -> ort.InferenceSession:
    made = ort_ep.session_options(fallback=False)
    return ort.InferenceSession(model.SerializeToString(), made, providers=[(ort_ep.EP, options)])


def all_devices(device: DeviceInOrt) -> list[Any]:
    """Those of one registration, the CPU first."""
    listed = [one for one in ort.get_ep_devices() if one.ep_name == ort_ep.EP]
    place = next(i for i, one in enumerate(listed) if one.ep_metadata["backend"] == device.name)
    return listed[place - 1 : place + 1]


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 27), reason="before 1.27 all devices of a session must share their memory")
@pytest.mark.parametrize("wanted", ["", "device"])
def test_a_session_with_the_cpu_and_a_device(device: DeviceInOrt, wanted: str) -> None:
    def plugin(x: Any) -> Any:
        return x + x

    dt.layer("OnTwoDevices")(plugin)
    options = ort_ep.session_options(fallback=True)
    chosen = {"backend": device.name} if wanted else {}
    options.add_provider_for_devices(all_devices(device), chosen)
    model = plugin_model("OnTwoDevices")
    session = ort.InferenceSession(model.SerializeToString(), options)
    x = np.arange(32, dtype=np.float32).reshape(2, 16) - 9
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -2 * np.maximum(x, 0))
    assert device.provider.statistics.launches > 0


def test_two_registrations_of_one_device(device: DeviceInOrt) -> None:
    name = ort_ep.register("dovetail-again")
    try:
        x = np.ones((2, 3), np.float32)
        np.testing.assert_array_equal(device.value(x).numpy(), x)
        inputs = feeds()
        session = device.session(plain_model())
        np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
    finally:
        ort.unregister_execution_provider_library(name)
    np.testing.assert_array_equal(device.value(x).numpy(), x)
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


def test_a_value_outlives_the_registration() -> None:
    x = np.arange(4, dtype=np.float32)
    with devices_in_ort() as (device,):
        value = device.value(x)
        used = device.provider.allocator.statistics.used_bytes
        assert used > 0
    provider = device.provider
    del value
    assert provider.allocator.statistics.used_bytes <= used
