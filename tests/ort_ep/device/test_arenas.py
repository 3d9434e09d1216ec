"""Memory for streams: what is given again to whom, how arenas grow and shrink, and what is counted."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import UsageError
from dovetail.allocators import HostAllocator, IGpuAllocator
from onnxruntime_ep_dovetail.device.arenas import Arenas, ArenaSettings, read_settings

pytestmark = pytest.mark.versions

KNOWN = {
    "Limit",
    "InUse",
    "TotalAllocated",
    "MaxInUse",
    "NumAllocs",
    "NumReserves",
    "NumArenaExtensions",
    "NumArenaShrinkages",
    "MaxAllocSize",
}


class Counted(HostAllocator):
    """Notes the sizes that were asked for, and what is out."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.out = 0

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        self.sizes.append(size)
        self.out += 1
        return super().allocate(size, alignment, flags)

    def deallocate(self, memory: int) -> bool:
        self.out -= 1
        return super().deallocate(memory)


def test_freed_memory_is_given_again_to_the_same_stream_only() -> None:
    arenas = Arenas(HostAllocator(), ArenaSettings())
    first = arenas.allocate(1000, "one")
    arenas.free(first)
    assert arenas.allocate(1000, "other") != first
    assert arenas.allocate(1000) != first
    assert arenas.allocate(1000, "one") == first


def test_memory_of_nobody_waits_for_the_work_of_all() -> None:
    done: set[int] = set()
    number = iter(range(100))

    def make_barrier() -> Any:
        mine = next(number)
        return lambda: mine in done

    arenas = Arenas(HostAllocator(), ArenaSettings(), synchronize=lambda: None, make_barrier=make_barrier)
    first, reserved = arenas.allocate(1000), arenas.reserve(1000)
    arenas.free(first)
    arenas.free(reserved)
    assert arenas.statistics["InUse"] == 0
    assert arenas.allocate(1000) != first
    done.add(0)
    assert arenas.allocate(1000) == first
    on_stream = arenas.allocate(1000, "one")
    arenas.free(on_stream)
    assert arenas.allocate(1000, "one") == on_stream  # in the order of its stream


def test_memory_that_waits_is_bounded() -> None:
    waits: list[int] = []
    arenas = Arenas(
        HostAllocator(),
        ArenaSettings(is_doubling=False),
        synchronize=lambda: waits.append(1),
        make_barrier=lambda: lambda: False,
    )
    for _ in range(12):
        arenas.free(arenas.allocate(2**24))
    assert len(waits) == 2
    assert arenas.statistics["TotalAllocated"] <= 6 * 2**24


def test_memory_of_a_stream_that_ended_serves_others() -> None:
    source = Counted()
    arenas = Arenas(source, ArenaSettings())
    first, kept = arenas.allocate(1000, "one"), arenas.allocate(1000, "one")
    arenas.free(first)
    arenas.retire("one")
    assert arenas.allocate(1000, "other") == first
    arenas.free(kept)
    assert len(source.sizes) == 1


def test_arenas_double_up_to_a_bound() -> None:
    source = Counted()
    grown = ArenaSettings(first_chunk_bytes=1024, next_chunk_bytes=4096, max_chunk_bytes=4096)
    arenas = Arenas(source, grown)
    for _ in range(10):
        arenas.allocate(1024, "one")
    arenas.allocate(100_000, "one")
    assert source.sizes == [1024, 2048, 4096, 4096, 100_096]
    arenas.allocate(10, "other")
    assert source.sizes[-1] == 4096


def test_arenas_can_take_what_is_asked_for() -> None:
    source = Counted()
    arenas = Arenas(source, ArenaSettings(is_doubling=False))
    for size in (100, 5000, 300):
        arenas.allocate(size)
    assert source.sizes == [256, 5120, 512]


def test_a_limit_holds_for_all_streams_and_unused_memory_is_moved() -> None:
    arenas = Arenas(HostAllocator(), ArenaSettings(is_doubling=False, limit_bytes=4096))
    first = arenas.allocate(3072, "one")
    assert first
    assert arenas.allocate(2048, "other") == 0
    arenas.free(first)
    assert arenas.allocate(2048, "other")  # the other arena gave back what it did not use
    assert arenas.statistics["Limit"] == 4096


def test_statistics_have_the_names_that_onnx_runtime_knows() -> None:
    arenas = Arenas(HostAllocator(), ArenaSettings(first_chunk_bytes=4096))
    kept = [arenas.allocate(size) for size in (100, 1000)]
    arenas.free(kept[1])
    reserved = arenas.reserve(5000)
    told = arenas.statistics
    assert told.keys() == KNOWN
    assert (told["InUse"], told["MaxInUse"], told["MaxAllocSize"]) == (256 + 5000, 256 + 5000, 5000)
    assert (told["NumAllocs"], told["NumReserves"], told["NumArenaExtensions"]) == (2, 1, 1)
    assert told["TotalAllocated"] == 4096 + 5000
    arenas.free(reserved)
    assert arenas.statistics["TotalAllocated"] == 4096
    assert arenas.shrink() == 0  # a part of the only chunk is in use
    arenas.free(kept[0])
    assert arenas.shrink() == 4096
    assert (arenas.statistics["TotalAllocated"], arenas.statistics["NumArenaShrinkages"]) == (0, 2)


def test_unused_memory_goes_back_when_the_work_on_it_is_done() -> None:
    waits: list[str] = []
    arenas = Arenas(HostAllocator(), ArenaSettings(), synchronize=lambda: waits.append("wait"))
    arenas.free(arenas.allocate(10))
    arenas.shrink()
    assert waits == ["wait"]


def test_the_garbage_collector_may_free_in_the_middle_of_an_allocation() -> None:
    class Cycle:
        """Something with memory that only the collector finds."""

        def __init__(self, arenas: Arenas) -> None:
            self.me, self.arenas, self.address = self, arenas, arenas.allocate(100, "one")

        def __del__(self) -> None:
            self.arenas.free(self.address)

    class Collecting(HostAllocator):
        """Has the collector run while the arena has its lock."""

        def allocate(self, size: int, alignment: int, flags: int) -> int:
            gc.collect()
            return super().allocate(size, alignment, flags)

    arenas = Arenas(Collecting(), ArenaSettings(is_doubling=False))
    Cycle(arenas)
    assert arenas.allocate(10_000, "one")
    assert arenas.statistics["InUse"] == 10_240


class Empty(IGpuAllocator):
    """Has nothing."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        return 0

    def deallocate(self, memory: int) -> bool:
        return False


def test_no_memory_is_0() -> None:
    arenas = Arenas(Empty(), ArenaSettings())
    assert (arenas.allocate(10), arenas.reserve(10)) == (0, 0)
    assert arenas.statistics["NumAllocs"] == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.sampled_from(["one", "two", None]), st.booleans()), max_size=40))
def test_parts_never_overlap(steps: list[tuple[int, Any, bool]]) -> None:
    source = Counted()
    arenas = Arenas(source, ArenaSettings(first_chunk_bytes=4096, next_chunk_bytes=2048, max_chunk_bytes=8192))
    held: dict[int, int] = {}
    for size, key, frees in steps:
        address = arenas.allocate(size, key)
        assert all(address + size <= other or other + length <= address for other, length in held.items())
        assert address % 256 == 0
        held[address] = size
        if frees:
            gone = next(iter(held))
            del held[gone]
            arenas.free(gone)
    for address in held:
        arenas.free(address)
    assert arenas.statistics["InUse"] == 0
    arenas.shrink()
    assert source.out == 0


# options


def test_settings_are_read() -> None:
    told = read_settings(
        {
            "arena.extend_strategy": "kSameAsRequested",
            "arena.initial_chunk_size_bytes": "10",
            "arena.initial_growth_chunk_size_bytes": "20",
            "arena.max_power_of_two_extend_bytes": "30",
            "arena.max_dead_bytes_per_chunk": "-1",
            "arena.max_mem": "40",
        }
    )
    assert told == ArenaSettings(
        is_doubling=False, first_chunk_bytes=10, next_chunk_bytes=20, max_chunk_bytes=30, limit_bytes=40
    )
    assert read_settings({"arena.max_mem": str(2**64 - 1)}).limit_bytes == 0
    assert read_settings({"arena.initial_chunk_size_bytes": "-1"}) == ArenaSettings()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("arena.colour", "1", "unknown option arena.colour"),
        ("arena.extend_strategy", "2", "not a strategy"),
        ("arena.max_mem", "much", "not a number"),
    ],
)
def test_settings_that_are_wrong(key: str, value: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        read_settings({key: value})


def test_arenas_that_end_give_everything_back() -> None:
    source = Counted()
    arenas = Arenas(source, ArenaSettings())
    places = [arenas.allocate(1000, key) for key in ("one", "other", None)]
    for place in places:
        arenas.free(place)
    assert source.out
    arenas.close()
    assert not source.out
