"""The allocator that providers build theirs on: parts of chunks, joined when they come back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.provider.memory.arena_allocator import ArenaAllocator


class Limited(HostAllocator):
    """Has so many bytes and no more."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit
        self.sizes: dict[int, int] = {}

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        if size > self.left:
            return 0
        self.left -= size
        address = super().allocate(size, alignment, flags)
        self.sizes[address] = size
        return address

    def deallocate(self, memory: int) -> bool:
        self.left += self.sizes.pop(memory)
        return super().deallocate(memory)


def test_parts_of_one_chunk_are_reused_and_joined() -> None:
    arena = ArenaAllocator(HostAllocator(), chunk_bytes=1024)
    parts = [arena.allocate(256, 256, 0) for _ in range(4)]
    assert len(set(parts)) == 4
    assert arena.statistics.num_chunks == 1
    for part in (parts[1], parts[3], parts[2]):
        assert arena.deallocate(part)
    whole = arena.allocate(768, 256, 0)
    assert whole == parts[1]
    assert arena.statistics.num_chunks == 1


def test_large_blocks_get_a_chunk_of_their_own() -> None:
    arena = ArenaAllocator(HostAllocator(), chunk_bytes=1024)
    arena.allocate(5000, 256, 0)
    assert arena.statistics.reserved_bytes == 5120


def test_a_source_with_little_is_asked_for_less() -> None:
    arena = ArenaAllocator(Limited(600), chunk_bytes=1024)
    assert arena.allocate(300, 256, 0)
    assert arena.allocate(300, 256, 0) == 0


def test_what_cannot_be_given() -> None:
    arena = ArenaAllocator(HostAllocator(), chunk_bytes=1024)
    assert arena.allocate(10, 4096, 0) == 0
    assert arena.allocate(-1, 256, 0) == 0
    assert not arena.deallocate(12345)


def test_shrink_keeps_what_is_used() -> None:
    source = Limited(10_000)
    arena = ArenaAllocator(source, chunk_bytes=1024)
    used, unused = arena.allocate(1000, 256, 0), arena.allocate(1000, 256, 0)
    arena.deallocate(unused)
    assert arena.shrink() == 1024
    assert arena.statistics.num_chunks == 1
    assert source.left == 10_000 - 1024
    arena.deallocate(used)
    arena.shrink()
    assert source.left == 10_000
    assert arena.statistics.peak_bytes == 2048


def test_it_is_an_allocator_of_the_contract() -> None:
    assert isinstance(ArenaAllocator(HostAllocator()), IGpuAllocator)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3000), st.integers(0, 20)), max_size=40))
def test_blocks_never_overlap(actions: list[tuple[bool, int, int]]) -> None:
    arena = ArenaAllocator(HostAllocator(), chunk_bytes=4096)
    held: dict[int, int] = {}
    for takes, size, pick in actions:
        if takes or not held:
            address = arena.allocate(size, 256, 0)
            assert address
            assert address % 256 == 0
            assert all(address + size <= other or other + held[other] <= address for other in held)
            held[address] = max(size, 1)
        else:
            address = sorted(held)[pick % len(held)]
            del held[address]
            assert arena.deallocate(address)
            assert not arena.deallocate(address)
    for address in held:
        assert arena.deallocate(address)
    assert arena.statistics.used_bytes == 0
    arena.shrink()
    assert arena.statistics.reserved_bytes == 0
