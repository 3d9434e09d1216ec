"""What sessions share of a device: when its streams have done what they were given."""

from __future__ import annotations

import numpy as np

from dovetail.testing import host_device
from onnxruntime_ep_dovetail.device.shared import get_device, give_back_number, take_number


def test_a_barrier_is_passed_when_all_streams_were_waited_for() -> None:
    with host_device(name="barrier"):
        device = get_device("barrier")
        streams = [device.create_stream() for _ in range(2)]
        assert device.make_barrier() is None
        source = np.ones(3, np.uint8)
        targets = [device.bytes_at(device.provider.allocator.allocate(3, 1, 0), 3) for _ in streams]
        for stream, target in zip(streams, targets, strict=True):
            device.copy(source, target, stream)
        barrier = device.make_barrier()
        assert barrier is not None
        device.wait(streams[0])
        assert not barrier()
        device.copy(source, targets[0], streams[0])  # what came later does not count
        device.wait(streams[1])
        assert barrier()
        assert device.make_barrier() is not None
        later = device.make_barrier()
        assert streams[0] is not None
        device.close_stream(streams[0])
        assert later is not None
        assert later()
        assert device.make_barrier() is None


def test_a_device_is_another_one_when_its_provider_is() -> None:
    with host_device(name="twin"):
        first = get_device("twin")
        assert get_device("twin") is first
        first.copy_now(np.ones(1, np.uint8), np.ones(1, np.uint8))
    with host_device(name="twin") as provider:
        assert get_device("twin") is not first
        assert get_device("twin").provider is provider


def test_numbers_are_used_again() -> None:
    numbers = [take_number(0) for _ in range(3)]
    assert len(set(numbers)) == 3
    give_back_number(numbers[0])
    assert take_number(0) == numbers[0]
    for number in numbers:
        give_back_number(number)
