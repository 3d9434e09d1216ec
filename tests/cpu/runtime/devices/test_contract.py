"""That the host device has all of the contract, so that a callback that is added to it is tried here too."""

from __future__ import annotations

import inspect
from pathlib import Path

import dovetail.testing
from dovetail.provider.devices import CapturedGraph, DeviceArray, Event, Stream
from dovetail.provider.interfaces import LoadedPartition, Provider, ProviderFactory, StoredKernel
from dovetail.testing import (
    HostDevice,
    HostDeviceArray,
    HostDeviceFactory,
    HostEvent,
    HostGraph,
    HostStream,
    host_device,
)
from dovetail.testing.host_partitions import HostDevicePartition

DERIVED = {"memory_name", "id", "current"}
"""What follows from the rest and is not to be overridden."""


def _methods(kind: type) -> set[str]:
    members = inspect.getmembers(kind, lambda m: inspect.isfunction(m) or isinstance(m, property))
    return {name for name, _ in members if not name.startswith("_")}


def test_every_callback_is_overridden() -> None:
    pairs = [
        (Provider, HostDevice),
        (Stream, HostStream),
        (Event, HostEvent),
        (CapturedGraph, HostGraph),
        (LoadedPartition, HostDevicePartition),
    ]
    for contract, ours in pairs:
        assert _methods(contract) - vars(ours).keys() <= DERIVED, ours


def test_every_callback_that_can_fail_is_made_to() -> None:
    """Each name that the host device checks appears in a test of misbehaviour, and each is one a test can use."""
    source = "".join(path.read_text() for path in Path(dovetail.testing.__file__).parent.glob("*.py"))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    checked = {part.split('"')[0] for part in source.split('check("')[1:]} | {"allocate"}
    assert len(checked) > 20
    assert {name for name in checked if f'"{name}"' not in tests} == set()


def test_the_factory_and_the_arrays_keep_the_contract() -> None:
    assert isinstance(HostDeviceFactory(), ProviderFactory)
    assert isinstance(HostDeviceArray(0, (), "float32", device="d"), DeviceArray)
    with host_device() as device:
        assert device.memory_name == "host_device"
        assert not device.memory.is_host
        assert device.device.kind == "npu"


def test_defaults_of_the_contract_are_safe() -> None:
    """A provider that has only what it must have: memory of the host, no streams, no capture."""
    import numpy as np
    import pytest

    from dovetail.errors import ProviderError
    from dovetail.provider.devices import HOST_MEMORY, Device
    from dovetail.provider.kernels import KernelRegistry

    class Least(Provider):
        name = "least"
        device = Device(name="d", kind="cpu", fingerprint="f")
        kernels = KernelRegistry("least")  # type: ignore[assignment]

    least = Least()
    assert (least.memory_name, least.create_stream(), least.can_capture) == ("", None, False)
    assert least.host_inputs("Reshape", "", 20) == frozenset()
    assert least.import_array(object()) is None
    assert least.can_copy(HOST_MEMORY, HOST_MEMORY)
    source, target = np.arange(3), np.zeros(3, np.int64)
    least.copy(source, target, None)
    assert target.tolist() == [0, 1, 2]
    view = least.array_at(target.ctypes.data, (3,), np.int64)
    assert view.tolist() == [0, 1, 2]
    assert least.array_at(0, (0,), np.int64).shape == (0,)
    assert not least.stop_profiling()
    for refused in (
        lambda: least.load_kernel(StoredKernel(op="Relu", opset=20)),
        lambda: least.begin_capture(None),  # type: ignore[arg-type]
        lambda: least.end_capture(None),  # type: ignore[arg-type]
        lambda: least.build_partition(None, None),  # type: ignore[arg-type]
        lambda: least.load_partition(None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ProviderError, match="'least'"):
            refused()
    address = least.allocator.allocate(100, 256, 0)
    assert address % 256 == 0
