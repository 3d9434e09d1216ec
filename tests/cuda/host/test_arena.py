"""The arena against a model of memory, and the allocators around it over a device of paper."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import dovetail
from dovetail.provider.loader import get_default_options, get_provider, set_default_options
from dovetail_cuda.provider import CudaFactory
from dovetail_cuda.run.arenas.arena import ALIGNMENT, Arena, ArenaRules
from dovetail_cuda.run.arenas.arena_memory import ArenaMemory
from dovetail_cuda.run.arenas.guards import GuardedMemory
from tests.cuda.host.callers_memory import CallersMemory
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import FakeToolbox, fake_cuda, make_factory
from tests.cuda.models import make_mlp

RULES = ArenaRules(
    first_region_bytes=4096,
    first_growth_bytes=2048,
    largest_growth_bytes=16384,
    most_dead_bytes=1024,
    limit_bytes=65536,
)
STREAMS = st.sampled_from([0, 1, 2])


class Source:
    """Regions of an endless memory, each apart from the others."""

    def __init__(self) -> None:
        self.regions: dict[int, int] = {}
        self._next = 1 << 20

    def take(self, size: int) -> int:
        address, self._next = self._next, self._next + size + ALIGNMENT
        self.regions[address] = size
        return address

    def give(self, address: int) -> None:
        del self.regions[address]

    def holds(self, start: int, end: int) -> bool:
        return any(region <= start and end <= region + size for region, size in self.regions.items())


class ArenaAgainstModel(RuleBasedStateMachine):
    """What is out, by address; and whose bytes are not free for everybody yet."""

    def __init__(self) -> None:
        super().__init__()
        self.source = Source()
        self.arena = Arena(RULES, self.source.take, self.source.give)
        self.out: dict[int, int] = {}
        self.waiting: dict[int, tuple[int, int]] = {}
        self.num_allocations = 0

    @rule(size=st.integers(0, 9000), stream=STREAMS)
    def allocate(self, size: int, stream: int) -> None:
        before = self.arena.statistics.total_bytes
        address = self.arena.allocate(size, stream)
        if not address:
            assert before + max(-(-size // ALIGNMENT), 1) * ALIGNMENT > RULES.limit_bytes
            return
        end = address + max(size, 1)
        assert address % ALIGNMENT == 0
        assert self.source.holds(address, end)
        assert all(end <= other or address >= other + max(length, 1) for other, length in self.out.items())
        for other, (length, owner) in list(self.waiting.items()):
            overlaps = address < other + length and other < end
            assert not overlaps or owner == stream, "memory of another stream that may still use it"
        self._stop_waiting(address, address + self.arena._used[address].size)
        self.out[address] = size
        self.num_allocations += 1

    def _stop_waiting(self, start: int, end: int) -> None:
        """Bytes that are out again wait for whatever is said when they come back."""
        left: dict[int, tuple[int, int]] = {}
        for other, (length, owner) in self.waiting.items():
            for first, last in ((other, min(other + length, start)), (max(other, end), other + length)):
                if first < last:
                    left[first] = (last - first, owner)
        self.waiting = left

    @rule(size=st.integers(1, 9000))
    def reserve(self, size: int) -> None:
        address = self.arena.reserve(size)
        if address:
            assert address in self.source.regions
            self.out[address] = size

    @precondition(lambda self: self.out)
    @rule(data=st.data(), stream=STREAMS)
    def free(self, data: Any, stream: int) -> None:
        address = data.draw(st.sampled_from(sorted(self.out)))
        size = self.out.pop(address)
        assert self.arena.free(address, stream)
        assert not self.arena.free(address, stream)
        if stream and self.source.holds(address, address + 1):
            self.waiting[address] = (max(size, 1), stream)

    @rule(stream=st.sampled_from([None, 1, 2]))
    def forget_streams(self, stream: int | None) -> None:
        self.arena.forget_streams(stream)
        self.waiting = {a: w for a, w in self.waiting.items() if stream is not None and w[1] != stream}

    @rule()
    def shrink(self) -> None:
        self.arena.forget_streams()
        self.waiting.clear()
        given = self.arena.shrink()
        used = {
            region for region, size in self.source.regions.items() if any(region <= a < region + size for a in self.out)
        }
        assert used == set(self.source.regions), "a region is kept that nothing uses"
        assert given >= 0

    @invariant()
    def statistics_agree(self) -> None:
        found = self.arena.statistics
        assert found.total_bytes == sum(self.source.regions.values()) <= RULES.limit_bytes
        assert found.num_allocations == self.num_allocations
        assert sum(max(size, 1) for size in self.out.values()) <= found.used_bytes <= found.peak_bytes
        assert found.used_bytes <= found.total_bytes

    @invariant()
    def chunks_are_whole(self) -> None:
        for region in self.arena._regions:
            chunks = list(region.walk())
            assert sum(chunk.size for chunk in chunks) == region.size
            for left, right in itertools.pairwise(chunks):
                assert left.address + left.size == right.address
                assert right.before is left
                assert left.is_used or right.is_used or left.stream != right.stream, "free neighbours are apart"

    def teardown(self) -> None:
        for address in list(self.out):
            assert self.arena.free(address)
        self.arena.forget_streams()
        self.arena.shrink()
        assert not self.source.regions
        assert self.arena.statistics.used_bytes == 0


TestArenaAgainstModel = ArenaAgainstModel.TestCase
TestArenaAgainstModel.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_the_smallest_chunk_that_fits_is_taken() -> None:
    source = Source()
    arena = Arena(ArenaRules(first_region_bytes=1 << 16), source.take, source.give)
    large, wall, small, _ = (arena.allocate(size) for size in (4096, 256, 1024, 256))
    arena.free(large)
    arena.free(small)
    assert arena.allocate(1000) == small
    assert arena.allocate(1000) == large
    assert wall


def test_regions_double_and_start_again_after_a_shrink() -> None:
    source = Source()
    arena = Arena(RULES, source.take, source.give)
    taken = [arena.allocate(4096) for _ in range(4)]
    assert list(source.regions.values()) == [4096, 8192, 16384]
    for address in taken:
        arena.free(address)
    assert arena.shrink() == 28672
    arena.allocate(256)
    assert list(source.regions.values()) == [2048]
    assert arena.statistics.num_shrinkages == 1


def test_regions_can_be_as_large_as_asked_for() -> None:
    source = Source()
    arena = Arena(ArenaRules(is_doubling=False, first_region_bytes=1024), source.take, source.give)
    for size in (256, 2048, 4096):
        arena.allocate(size)
    assert list(source.regions.values()) == [1024, 2048, 4096]


def _open(**options: str) -> tuple[Any, Any]:
    factory = make_factory(memory_bytes=1 << 22)
    chosen = {"arena.use_cuda_mempool": "0", "arena.initial_chunk_size_bytes": "65536", **options}
    provider = factory.create(factory.devices()[0], chosen)
    return provider, provider.allocator


def test_what_a_stream_gave_back_serves_it_at_once_and_others_when_it_is_done() -> None:
    provider, memory = _open(**{"arena.max_mem": "65536"})
    first, second = provider.create_stream(), provider.create_stream()
    block = memory.allocate_async(60000, 256, 0, first.handle)
    provider.copy(_ones(60000), provider.array_at(block, (60000,), "uint8"), first)
    assert memory.deallocate_async(block, first.handle)
    assert memory.allocate_async(60000, 256, 0, first.handle) == block
    assert memory.deallocate_async(block, first.handle)
    assert provider._gpu.driver.streams[first.handle].queue  # the copy is still to be done
    assert memory.allocate_async(60000, 256, 0, second.handle) == block
    assert not provider._gpu.driver.streams[first.handle].queue  # it was waited for


def _ones(count: int) -> Any:
    import numpy as np

    return np.ones(count, np.uint8)


def test_nothing_waits_for_the_device_while_it_is_captured() -> None:
    provider, memory = _open(**{"arena.max_mem": "65536"})
    stream = provider.create_stream()
    block = memory.allocate(60000, 256, 0)
    provider.begin_capture(stream)
    assert memory.deallocate(block)
    assert not memory.allocate(60000, 256, 0)
    provider.end_capture(stream).close()
    assert memory.allocate(60000, 256, 0) == block


def test_an_arena_gives_back_what_it_does_not_need() -> None:
    provider, memory = _open()
    assert isinstance(memory, ArenaMemory)
    blocks = [memory.allocate(size, 256, 0) for size in (1000, 100000, 300000)]
    reserved = memory.reserve(5000)
    assert memory.statistics.num_reserves == 1
    before = memory.statistics.total_bytes
    assert memory.deallocate(reserved)
    assert memory.statistics.total_bytes == before - 5120
    assert memory.shrink() == 0
    for block in blocks:
        assert memory.deallocate(block)
        assert not memory.deallocate(block)
    assert memory.shrink() == before - 5120
    assert not provider._gpu.driver.sizes


def test_threads_share_an_arena() -> None:
    _, memory = _open(**{"arena.max_mem": str(1 << 21)})
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            mine: list[int] = []
            for step in range(200):
                address = memory.allocate(256 * (1 + (seed + step) % 7), 256, 0)
                assert address
                ctypes.memset(address, seed, 256)
                mine.append(address)
                if len(mine) > 5:
                    oldest = mine.pop(0)
                    assert ctypes.string_at(oldest, 256) == bytes([seed]) * 256
                    assert memory.deallocate(oldest)
            for address in mine:
                assert memory.deallocate(address)
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.statistics.used_bytes == 0


def test_memory_that_the_collector_brings_in_the_middle_of_a_call_is_taken_back() -> None:
    _, memory = _open()
    block = memory.allocate(1000, 256, 0)
    with memory._lock:  # as while this very thread allocates
        assert memory.deallocate(block)
    assert memory.statistics.used_bytes == 0


# guards


def test_what_comes_back_twice_or_never_is_told() -> None:
    _, memory = _open()
    told: list[str] = []
    guarded = GuardedMemory(memory, told.append)
    first, second = guarded.allocate(1000, 256, 0), guarded.allocate_async(500, 256, 0, 0)
    assert guarded.deallocate(first)
    assert not guarded.deallocate(first)
    assert not guarded.deallocate(12345)
    guarded.tell_leaks()
    assert len(told) == 3
    assert f"memory at {first:#x} is given back that is not out: it came back before at" in told[0]
    assert "nobody was given it" in told[1]
    assert f"500 bytes at {second:#x} were not given back; taken at" in told[2]
    assert "test_arena.py" in told[2]
    assert [leak.address for leak in guarded.list_leaks()] == [second]


def test_a_provider_with_guards_runs_and_leaves_nothing(tmp_path: Any) -> None:
    import numpy as np

    import dovetail
    from dovetail.provider.loader import register_provider, unregister_provider
    from tests.cuda.models import make_mlp

    factory = make_factory()
    register_provider(factory)
    try:
        config = dovetail.BuilderConfig()
        options = {"check_memory": "1", "kernel_store": str(tmp_path), "arena.use_cuda_mempool": "0"}
        config.providers, config.provider_options = ["cuda"], {"cuda": options}
        x = np.ones((4, 8), np.float32)
        with dovetail.compile(make_mlp(rows=4, width=8), config=config) as engine:
            engine(x)
            memory = engine.providers["cuda"].allocator
            assert isinstance(memory, GuardedMemory)
            assert memory.list_leaks()
        gc.collect()
        assert not memory.list_leaks()
    finally:
        unregister_provider("cuda")


# functions of the caller


def test_memory_comes_from_functions_of_the_caller() -> None:
    driver = FakeDriver()
    caller, factory = CallersMemory(driver, limit_bytes=1 << 20), CudaFactory(FakeToolbox(driver))
    memory = factory.create(factory.devices()[0], caller.options).allocator
    block = memory.allocate(1000, 256, 0)
    assert caller.given == {block}
    assert not memory.allocate(2 << 20, 256, 0)
    assert memory.deallocate(block)
    assert not memory.deallocate(block)
    memory.shrink()
    assert not caller.given
    assert caller.num_emptied == 1


def test_a_driver_without_a_pool_gets_an_arena() -> None:
    factory = make_factory(has_pool=False)
    provider = factory.create(factory.devices()[0], {})
    with pytest.warns(RuntimeWarning, match="the driver has no pool for this device"):
        assert isinstance(provider.allocator, ArenaMemory)


def test_weights_of_an_engine_are_reserved(tmp_path: Any) -> None:
    with fake_cuda(str(tmp_path)):
        options = {**get_default_options("cuda"), "arena.use_cuda_mempool": "0"}
        set_default_options("cuda", options)
        memory = get_provider("cuda").allocator
        assert isinstance(memory, ArenaMemory)
        model, x = make_mlp(rows=4, width=8), np.ones((4, 8), np.float32)
        with dovetail.compile(model, providers=["cuda"]) as engine:
            engine(x)
            assert memory.statistics.num_reserves == 1
