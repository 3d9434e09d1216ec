"""The allocators of sessions: statistics, arenas of their own, shrinking, and what a shortage of memory looks like."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxruntime_ep_dovetail.abi.pairs import read_pairs
from onnxruntime_ep_dovetail.device.memory import Allocator, DeviceMemory
from tests.ort_ep.device.test_runs import bind
from tests.support import ort_ep
from tests.support.ort_devices import DeviceInOrt, call_slot, devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model, run_plain

pytestmark = pytest.mark.versions


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Allocator]]:
    """The kind and the allocator of all that ONNX Runtime asks for."""
    found: list[tuple[Any, Allocator]] = []
    create: Any = DeviceMemory.create_allocator

    def note(self: DeviceMemory, info: int, settings: Any) -> Allocator:
        allocator: Allocator = create(self, info, settings)
        kind = self.find_kind(info)
        found.append((kind.name if kind else None, allocator))
        return allocator

    monkeypatch.setattr(DeviceMemory, "create_allocator", note)
    return found


def statistics(allocator: Allocator) -> dict[str, int]:
    place = ctypes.c_void_p()
    call_slot(allocator, "GetStats", ctypes.addressof(place))
    pairs = read_pairs(allocator.runtime.api, place.value or 0)
    allocator.runtime.api.ReleaseKeyValuePairs(place.value)
    return {key: int(value) for key, value in pairs.items()}


def test_there_are_three_kinds(made: list[tuple[str, Allocator]]) -> None:
    with devices_in_ort() as (device,):
        assert [kind for kind, _ in made] == ["DEFAULT", "PINNED"]
        made.clear()
        session = device.session(plain_model())
        assert sorted(kind for kind, _ in made) == ["DEFAULT", "PINNED", "READ_ONLY"]
        del session


def test_onnx_runtime_reads_statistics(made: list[tuple[str, Allocator]]) -> None:
    with devices_in_ort() as (device,):
        allocator = dict(made)["DEFAULT"]
        before = statistics(allocator)
        value = device.empty((1000,))
        after = statistics(allocator)
        assert after["InUse"] - before["InUse"] == 4096
        assert after["NumAllocs"] - before["NumAllocs"] == 1
        assert after["MaxAllocSize"] >= 4096
        del value
        assert statistics(allocator)["InUse"] == before["InUse"]


def test_slots_give_and_take_memory(made: list[tuple[str, Allocator]]) -> None:
    with devices_in_ort():
        allocator = dict(made)["DEFAULT"]
        taken = [call_slot(allocator, name, 1000) for name in ("Alloc", "Reserve")]
        taken.append(call_slot(allocator, "AllocOnStream", 1000, None))
        assert len(set(taken)) == 3
        assert all(taken)
        assert call_slot(allocator, "Alloc", 0) is None
        assert statistics(allocator)["NumReserves"] == 1
        for address in taken:
            call_slot(allocator, "Free", address)
        call_slot(allocator, "Free", None)
        assert statistics(allocator)["InUse"] == 0


@pytest.mark.skipif(ort_ep.RUNTIME < (1, 25), reason="allocators of plugins can be shrunk from 1.25 on")
def test_a_run_can_give_unused_memory_back(device: DeviceInOrt) -> None:
    session, inputs = device.session(plain_model()), feeds(5000)
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", f"gpu:{device.number}")
    session.run(None, inputs)
    held = device.provider.allocator.statistics.used_bytes
    (result,) = session.run(None, inputs, options)
    np.testing.assert_allclose(result, run_plain(inputs), rtol=1e-5, atol=1e-6)
    assert device.provider.allocator.statistics.used_bytes < held
    (result,) = session.run(None, inputs)
    np.testing.assert_allclose(result, run_plain(inputs), rtol=1e-5, atol=1e-6)


def test_sessions_share_an_arena_unless_they_ask_for_one(made: list[tuple[str, Allocator]]) -> None:
    with devices_in_ort() as (device,):
        shared = dict(made)["DEFAULT"]
        made.clear()
        plain = device.session(plain_model())
        plain.run(None, feeds())
        own = device.session(
            plain_model(), **{"arena.max_mem": str(2**20), "arena.extend_strategy": "kSameAsRequested"}
        )
        allocator = made[3][1] if made[3][0] == "DEFAULT" else dict(made[3:])["DEFAULT"]
        before = statistics(shared)
        own.run(None, feeds())
        assert statistics(shared) == before
        told = statistics(allocator)
        assert told["Limit"] == 2**20
        assert told["NumAllocs"] > 0


def test_more_than_the_limit_of_an_arena(device: DeviceInOrt, capfd: pytest.CaptureFixture[str]) -> None:
    session = device.session(plain_model(), **{"arena.max_mem": "65536", "arena.extend_strategy": "1"})
    inputs = feeds()
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
    with pytest.raises(Exception, match="Allocation failed"):  # ONNX Runtime says no more, the log does
        session.run(None, feeds(4000))
    assert "no memory for 256000 bytes" in capfd.readouterr().err
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


@pytest.mark.parametrize(
    ("key", "value"), [("arena.max_mem", "much"), ("arena.colour", "1"), ("arena.extend_strategy", "3")]
)
def test_options_that_are_wrong(device: DeviceInOrt, key: str, value: str) -> None:
    with pytest.raises(Exception, match=key):
        device.session(plain_model(), **{key: value})


def test_a_device_that_is_full() -> None:
    with devices_in_ort(memory_bytes=2**22) as (device,):
        session, inputs = device.session(plain_model()), feeds()
        np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)
        with pytest.raises(Exception, match="Allocation failed"):
            session.run(None, feeds(100_000))
        there = {name: device.value(array) for name, array in feeds(20_000).items()}
        with pytest.raises(Exception, match=f"{device.name}.*no memory for [0-9]+ bytes"):
            session.run_with_iobinding(_leave_result(device, session, there))
        np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


def test_an_allocator_that_raises_is_told_of_where_memory_is_used(device: DeviceInOrt) -> None:
    session, inputs = device.session(plain_model()), feeds()
    there = {name: device.value(array) for name, array in inputs.items()}
    device.break_in("allocate")
    with pytest.raises(Exception, match=f"{device.name}.*told to fail in allocate"):
        session.run_with_iobinding(_leave_result(device, session, there))
    device.break_in()
    np.testing.assert_allclose(session.run(None, inputs)[0], run_plain(inputs), rtol=1e-5)


def _leave_result(device: DeviceInOrt, session: ort.InferenceSession, inputs: dict[str, Any]) -> Any:
    binding = bind(session, inputs, {})
    info = device.ep_device.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    place = ort.OrtDevice.make("gpu", info.device_id, info.device_vendor_id)
    binding._iobinding.bind_output("y", place._get_c_device())
    return binding
