"""Rules about order: P60 to P66."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.provider.interfaces import Provider, Stream
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.device_arrays import DeviceArrays
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider, overrides

__all__ = ["open_streams"]

_COPIES: Final = 16
_COUNT: Final = 1 << 18
"""Elements of the arrays that are copied: enough that a copy takes longer than a careless host."""


@contextmanager
def open_streams(provider: Provider, count: int) -> Iterator[list[Stream]]:
    """New streams, closed at the end."""
    made = [provider.create_stream() for _ in range(count)]
    streams = [stream for stream in made if stream is not None]
    if not streams:
        raise NotOffered("its steps end before they return")
    if len(streams) < count:
        raise Broken("create_stream gave a stream once and None another time")
    try:
        yield streams
    finally:
        provider.synchronize()
        for stream in streams:
            stream.close()


def _numbers(seed: int) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).random(_COUNT, np.float32)


@rule(
    "P60",
    "Streams have handles of their own",
    why="Plugins get the handle, and 0 is nobody's.",
    fix="return a number that is not 0 and that no other stream has",
)
def judge_handles(subject: CheckedProvider) -> None:
    """Make three."""
    with open_streams(subject.provider, 3) as streams:
        handles: list[Any] = [stream.handle for stream in streams]
        if any(not isinstance(handle, int) or not handle for handle in handles) or len(set(handles)) < 3:
            raise Broken(f"the handles of three streams are {handles}")


@rule(
    "P61",
    "Work on a stream is done in order, and synchronize waits for all of it",
    why="Steps rely on it and do not wait for each other.",
    fix="put copies and kernels on the stream that they are given, one behind the other",
)
def judge_order(subject: CheckedProvider) -> None:
    """There, along and back on one stream, for several inputs."""
    provider = subject.provider
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        first, second = arrays.make((_COUNT,), np.float32), arrays.make((_COUNT,), np.float32)
        for seed in range(3):
            numbers, result = _numbers(seed), np.zeros(_COUNT, np.float32)
            _pass_through(provider, (numbers, first, second, result), stream)
            stream.synchronize()
            if not np.array_equal(result, numbers):
                raise Broken("after synchronize the result of three copies in a row is not there")


def _pass_through(provider: Provider, arrays: tuple[Any, ...], stream: Stream) -> None:
    for source, target in pairwise(arrays):
        provider.copy(source, target, stream)


@rule(
    "P62",
    "An event is done when the work before it is",
    why="The host waits for events before it reads.",
    fix="record the event on the stream; synchronize waits for it, and is_done says whether it has come",
)
def judge_events(subject: CheckedProvider) -> None:
    """Wait for a copy to the host."""
    provider = subject.provider
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        numbers, result = _numbers(1), np.zeros(_COUNT, np.float32)
        _pass_through(provider, (numbers, arrays.make((_COUNT,), np.float32), result), stream)
        event = stream.record()
        if event.is_done() and not np.array_equal(result, numbers):
            raise Broken("is_done is True before the copy is done")
        event.synchronize()
        if not event.is_done():
            raise Broken("is_done is False after synchronize")
        if not np.array_equal(result, numbers):
            raise Broken("the event is done, and the copy before it is not")


@rule(
    "P63",
    "A stream waits for an event of another",
    why="Values go from one stream to another.",
    fix="have later work of the stream wait for the event, on the device",
)
def judge_wait(subject: CheckedProvider) -> None:
    """Write on one stream and read on another."""
    provider = subject.provider
    with open_streams(provider, 2) as (first, second), DeviceArrays(provider) as arrays:
        shared = arrays.make((_COUNT,), np.float32)
        for seed in range(3):
            numbers, result = _numbers(seed), np.zeros(_COUNT, np.float32)
            provider.copy(numbers, shared, first)
            second.wait(first.record())
            provider.copy(shared, result, second)
            second.synchronize()
            first.wait(second.record())
            if not np.array_equal(result, numbers):
                raise Broken("work after wait() did not see what was written before the event")


@rule(
    "P64",
    "Times between timed events are right",
    why="Candidates are compared by them.",
    fix="take the device's time when the stream comes to the event; elapsed_us is later minus earlier",
)
def judge_times(subject: CheckedProvider) -> str:
    """Three events with copies between, and the host's own clock around them."""
    provider, numbers = subject.provider, _numbers(1)
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        device = arrays.make((_COUNT,), np.float32)
        start = time.perf_counter()
        events = [stream.record(is_timed=True)]
        for _ in range(2):
            for _ in range(_COPIES):
                provider.copy(numbers, device, stream)
            events.append(stream.record(is_timed=True))
        stream.synchronize()
        wall_us = (time.perf_counter() - start) * 1e6
        try:
            whole, parts = events[2].elapsed_us(events[0]), [events[i + 1].elapsed_us(events[i]) for i in (0, 1)]
        except NotImplementedError:
            raise NotOffered("its events take no times") from None
    if not all(math.isfinite(each) and each >= 0 for each in (whole, *parts)):
        raise Broken(f"the times are {whole}, {parts}, expected numbers that are not negative")
    if abs(whole - sum(parts)) > 0.05 * whole + 2:
        raise Broken(f"from the first to the last event {whole} us, and in parts {parts}")
    # The stream was empty before, so its own clock saw most of what the host saw, and no more.
    if not 0.05 * wall_us - 20 <= whole <= 1.05 * wall_us + 20:
        raise Broken(f"copies for which the host waited {wall_us:.0f} us took {whole:.3g} us by the events")
    return f"{2 * _COPIES} copies of 1 MiB took {whole:.0f} us"


@rule(
    "P65",
    "synchronize of the provider waits for every stream",
    why="Memory is given back after it.",
    fix="wait for the whole device",
)
def judge_synchronize(subject: CheckedProvider) -> None:
    """Work on two streams, and one wait."""
    provider = subject.provider
    with open_streams(provider, 2) as streams, DeviceArrays(provider) as arrays:
        rows = [(_numbers(i), arrays.make((_COUNT,), np.float32), np.zeros(_COUNT, np.float32)) for i in (1, 2)]
        for stream, row in zip(streams, rows, strict=True):
            _pass_through(provider, row, stream)
        provider.synchronize()
        if not all(np.array_equal(row[0], row[2]) for row in rows):
            raise Broken("after synchronize a copy on a stream is not done")


@rule(
    "P66",
    "wrap_stream puts work on the caller's stream, and closing leaves that alone",
    why="Callers bring streams of their own, with other work on them.",
    fix="keep the handle and make nothing new; close() gives back only what wrap_stream made",
)
def judge_wrap(subject: CheckedProvider) -> None:
    """Wrap a stream of the provider itself."""
    provider = subject.provider
    if not overrides(provider, "wrap_stream"):
        raise NotOffered("it takes no streams of callers")
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        numbers, device, result = _numbers(1), arrays.make((_COUNT,), np.float32), np.zeros(_COUNT, np.float32)
        wrapped = provider.wrap_stream(stream.handle)
        if wrapped.handle != stream.handle:
            raise Broken(f"the handle is {wrapped.handle:#x}, expected {stream.handle:#x}")
        provider.copy(numbers, device, wrapped)
        wrapped.close()
        provider.copy(device, result, stream)
        stream.synchronize()
        if not np.array_equal(result, numbers):
            raise Broken("work on the wrapped stream was not done in the order of the caller's")
