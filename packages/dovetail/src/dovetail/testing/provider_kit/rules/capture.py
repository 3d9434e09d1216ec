"""Rules about captured graphs: P70 to P73."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dovetail.provider.interfaces import CapturedGraph, Provider, Stream
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.device_arrays import DeviceArrays
from dovetail.testing.provider_kit.models import CHAIN, make_feed
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.rules.streams import open_streams
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []

_ONES: Final = np.ones(64, np.float32)


def _require_capture(subject: CheckedProvider) -> Provider:
    if not subject.provider.can_capture:
        raise NotOffered("it captures no graphs")
    return subject.provider


def _capture_copy(provider: Provider, source: Any, target: Any, stream: Stream) -> CapturedGraph:
    provider.begin_capture(stream)
    provider.copy(source, target, stream)
    graph = provider.end_capture(stream)
    if not isinstance(graph, CapturedGraph):
        raise Broken(f"end_capture gave {type(graph).__name__}, expected a CapturedGraph")
    return graph


@rule(
    "P70",
    "What is captured is not done before it is replayed",
    why="The runtime captures a run that it does not want yet.",
    fix="record between begin_capture and end_capture, and run nothing",
)
def judge_recording(subject: CheckedProvider) -> None:
    """Capture a copy and look at the target."""
    provider = _require_capture(subject)
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        source, target = arrays.upload(_ONES), arrays.upload(_ONES * 0)
        graph = _capture_copy(provider, source, target, stream)
        stream.synchronize()
        has_run = arrays.download(target).any()
        graph.close()
        if has_run:
            raise Broken("the copy was done while it was captured")


@rule(
    "P71",
    "A replay does what was captured, over what the memory holds then",
    why="Inputs are written to the same memory before each replay.",
    fix="replay all of it on the stream that replay() gets, in its order",
)
def judge_replay(subject: CheckedProvider) -> None:
    """Replay a copy after other numbers were written to its source."""
    provider = _require_capture(subject)
    with open_streams(provider, 2) as (stream, other), DeviceArrays(provider) as arrays:
        source, target = arrays.upload(_ONES), arrays.upload(_ONES * 0)
        graph = _capture_copy(provider, source, target, stream)
        for factor, on in ((1, stream), (2, stream), (3, other)):
            provider.copy(_ONES * factor, source, on)
            graph.replay(on)
            on.synchronize()
            if not np.array_equal(arrays.download(target), _ONES * factor):
                raise Broken(f"replay {factor} did not copy what the source held")
        graph.close()


@rule(
    "P72",
    "A graph that is updated does what the other recording does",
    why="An update is cheaper than another graph when only addresses change.",
    fix="return True only when replay() does the new work from then on, and False where the device cannot",
)
def judge_update(subject: CheckedProvider) -> None:
    """Update a copy to one from another source."""
    provider = _require_capture(subject)
    with open_streams(provider, 1) as (stream,), DeviceArrays(provider) as arrays:
        first, second, target = arrays.upload(_ONES), arrays.upload(_ONES * 2), arrays.upload(_ONES * 0)
        graph = _capture_copy(provider, first, target, stream)
        is_updated = graph.update(_capture_copy(provider, second, target, stream))
        graph.replay(stream)
        stream.synchronize()
        got = arrays.download(target)
        graph.close()
        if not np.array_equal(got, _ONES * (2 if is_updated else 1)):
            raise Broken(f"update gave {is_updated}, and the replay did not do that")
    if not is_updated:
        raise NotOffered("its graphs cannot be updated")


@rule(
    "P73",
    "Captured runs of an engine give what others give",
    why="From the second run over the same memory on, an engine replays.",
    fix="put all work of a step on BindContext.stream, with nothing that depends on contents of tensors",
)
def judge_engine(subject: CheckedProvider) -> str:
    """Run a model five times with capture, and compare."""
    provider = _require_capture(subject)
    engine, model = subject.build(CHAIN), CHAIN.make_model()
    with engine.create_execution_context() as context, DeviceArrays(provider):
        for seed in range(5):
            feed = make_feed({"x": (3, 8)}, {}, seed)
            (result,) = context.run([feed["x"]])
            subject.compare(f"run {seed + 1}", {"y": result}, subject.expect(model, feed))
    return "5 runs"
