"""Rules about the end: P90 to P93."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dovetail.allocators import IGpuAllocator
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.models import CHAIN
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []


@contextmanager
def _ledger(allocator: IGpuAllocator) -> Iterator[dict[int, int]]:
    """What was taken and not given back since: address -> bytes."""
    taken: dict[int, int] = {}

    def note_taken(method: Callable[..., int]) -> Callable[..., int]:
        def allocate(size: int, *rest: int) -> int:
            address = method(size, *rest)
            if address:
                taken[address] = size
            return address

        return allocate

    def note_given(method: Callable[..., bool]) -> Callable[..., bool]:
        def deallocate(memory: int, *rest: int) -> bool:
            taken.pop(memory, None)
            return method(memory, *rest)

        return deallocate

    methods = {"allocate": note_taken, "allocate_async": note_taken, "deallocate": note_given}
    for name, note in {**methods, "deallocate_async": note_given}.items():
        setattr(allocator, name, note(getattr(allocator, name)))
    try:
        yield taken
    finally:
        for name in (*methods, "deallocate_async"):
            delattr(allocator, name)


def _live_once(subject: CheckedProvider) -> None:
    """Build, run in two contexts, close."""
    _require_builds(subject)
    engine = subject.compile(CHAIN.make_model())
    for rows in (3, 50, 3):
        with engine.create_execution_context() as context:
            context.run([CHAIN.make_feeds()[0]["x"].repeat(rows, axis=0)])
    engine(CHAIN.make_feeds()[0]["x"])
    engine.close()


def _require_builds(subject: CheckedProvider) -> None:
    subject.build(CHAIN)


@rule(
    "P90",
    "All memory comes back when engines are closed",
    why="A server loads and drops engines for months.",
    fix="give back in close() of bound and loaded partitions what was taken, and keep nothing in the provider",
)
def judge_leaks(subject: CheckedProvider) -> str:
    """Count what is taken from the allocator and not given back."""
    provider = subject.provider
    allocator = provider.allocator
    if allocator is not provider.allocator:
        raise NotOffered("it has no allocator of its own")
    with _ledger(allocator) as taken:
        _live_once(subject)
        gc.collect()
        provider.synchronize()
        left = dict(taken)
    if left:
        raise Broken(f"{len(left)} block(s) of {sum(left.values())} bytes were not given back")
    return "nothing is left"


@rule(
    "P91",
    "Nothing of an engine is kept after it is closed",
    why="A cache without a bound is a leak with a name.",
    fix="let partitions and kernels go with the engine; cache by weak references or with a bound",
)
def judge_kept(subject: CheckedProvider) -> str:
    """See whether what was loaded can be collected."""
    _require_builds(subject)
    loaded = subject.recording.loaded = []
    engine = subject.compile(CHAIN.make_model())
    engine(CHAIN.make_feeds()[0]["x"])
    engine.close()
    del engine
    gc.collect()
    if not loaded:
        raise NotOffered("it loads no partitions")
    alive = sum(reference() is not None for reference in loaded)
    if alive:
        raise Broken(f"{alive} loaded partition(s) are still referred to after the engine was closed")
    return f"{len(loaded)} partitions"


@rule(
    "P92",
    "Closing twice does no harm, and neither does closing in the middle",
    why="Engines are torn down by people and by the garbage collector.",
    fix="have close() forget what it gave back",
)
def judge_close(subject: CheckedProvider) -> None:
    """Close engines and contexts again, and with work behind them."""
    _require_builds(subject)
    engine, feed = subject.compile(CHAIN.make_model()), CHAIN.make_feeds()[0]
    context = engine.create_execution_context()
    context.run([feed["x"]])
    context.close()
    context.close()
    engine.close()
    engine.close()


@rule(
    "P93",
    "One engine does not notice the end of another",
    why="They share the provider.",
    fix="count who uses what the provider shares, or share nothing that is closed",
)
def judge_neighbours(subject: CheckedProvider) -> None:
    """Close one of two engines, and run the other."""
    first = subject.build(CHAIN)
    feed, model = CHAIN.make_feeds()[0], CHAIN.make_model()
    second = subject.compile(model)
    subject.run(first, feed)
    subject.run(second, feed)
    second.close()
    gc.collect()
    subject.compare("after another engine was closed", subject.run(first, feed), subject.expect(model, feed))
