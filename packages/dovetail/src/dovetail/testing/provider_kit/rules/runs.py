"""Rules about runs: whose arrays they are, who keeps them, and who runs at the same time: P40 to P48."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, Final

import numpy as np

from dovetail.errors import DovetailError
from dovetail.provider.calls import first_line
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.device_arrays import DeviceArrays
from dovetail.testing.provider_kit.models import CHAIN, Feed, find_case, make_feed
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.rules.streams import open_streams
from dovetail.testing.provider_kit.subject import CheckedProvider, overrides

__all__: list[str] = []

_ROWS: Final = 1 << 13
"""Rows of an input that takes longer to copy than a careless host waits."""
_DLPACK_HOST, _DLPACK_END = 1, 64
"""DLPack's number for memory of the host, and one that is larger than all it has."""


def _feed(seed: int, rows: int = 3) -> Feed:
    return make_feed({"x": (rows, 8)}, {}, seed)


@rule(
    "P40",
    "A run over other buffers reads and writes those",
    why="Callers bring new arrays in every run, some of them not contiguous or not writable.",
    fix="take addresses in the run, not once",
)
def judge_buffers(subject: CheckedProvider) -> None:
    """Same shapes, other arrays; then one that is every second row, and one that is read-only."""
    engine, model = subject.build(CHAIN), CHAIN.make_model()
    # All of them live at the same time: an address that was kept is then never that of the next array.
    for seed, feed in enumerate([_feed(seed) for seed in range(4)]):
        subject.compare(f"run {seed + 1}", subject.run(engine, feed), subject.expect(model, feed))
    strided = {"x": _feed(9, rows=6)["x"][::2]}
    subject.compare("every second row", subject.run(engine, strided), subject.expect(model, strided))
    fixed = _feed(10)
    fixed["x"].flags.writeable = False
    subject.compare("a read-only input", subject.run(engine, fixed), subject.expect(model, fixed))


@rule(
    "P41",
    "Results share no memory with inputs, with each other, or with later results",
    why="Results belong to the caller, who writes to them.",
    fix="write into the outputs that run() gets, and make a new array for each that is None",
)
def judge_sharing(subject: CheckedProvider) -> None:
    """Run twice and look."""
    case = find_case("several outputs")
    engine = subject.build(case)
    first_feed, second_feed = make_feed(case.shapes[0], {}, 1), make_feed(case.shapes[0], {}, 2)
    first = subject.run(engine, first_feed)
    kept = {name: array.copy() for name, array in first.items()}
    second = subject.run(engine, second_feed)
    for name, array in first.items():
        if np.shares_memory(array, first_feed["x"]):
            raise Broken(f"output '{name}' shares memory with the input")
        for other, value in {**{f"{k} of the next run": v for k, v in second.items()}, **first}.items():
            if other != name and np.shares_memory(array, value):
                raise Broken(f"output '{name}' shares memory with output '{other}'")
        if not np.array_equal(array, kept[name]):
            raise Broken(f"the next run changed output '{name}' of the one before")


@rule(
    "P42",
    "Inputs are not written to",
    why="They belong to the caller.",
    fix="write to outputs and workspace only",
)
def judge_inputs(subject: CheckedProvider) -> None:
    """Compare inputs before and after."""
    for case in (CHAIN, find_case("several outputs")):
        engine = subject.build(case)
        feed = make_feed(case.shapes[0], {}, 3)
        before = {name: array.copy() for name, array in feed.items()}
        subject.run(engine, feed)
        for name, array in feed.items():
            if not np.array_equal(array, before[name]):
                raise Broken(f"a run of '{case.name}' changed input '{name}'")


@rule(
    "P43",
    "No array of a caller is kept after the run",
    why="A large input would live as long as the engine.",
    fix="keep addresses or nothing; clear what run() put into lists",
)
def judge_references(subject: CheckedProvider) -> None:
    """See whether inputs and results can be collected while the context lives."""
    engine = subject.build(CHAIN)
    with engine.create_execution_context() as context:
        for seed in range(3):
            x = _feed(seed)["x"]
            watched = [("input", weakref.ref(x))]
            results = context.run([x])
            watched += [("result", weakref.ref(array)) for array in results if isinstance(array, np.ndarray)]
            del x, results
            gc.collect()
            alive = [what for what, reference in watched if reference() is not None]
            if alive:
                raise Broken(f"after run {seed + 1} the {alive[0]} is still referred to")


@rule(
    "P44",
    "Contexts of one engine do not disturb each other",
    why="Several requests run over the same weights.",
    fix="keep what belongs to a run in the bound partition or kernel, and nothing in the loaded one",
)
def judge_contexts(subject: CheckedProvider) -> None:
    """Two contexts in turn, over other shapes."""
    engine, model = subject.build(CHAIN), CHAIN.make_model()
    feeds = [_feed(1, rows=3), _feed(2, rows=5)]
    with engine.create_execution_context() as one, engine.create_execution_context() as two:
        for _ in range(3):
            for context, feed in ((one, feeds[0]), (two, feeds[1])):
                (result,) = context.run([feed["x"]])
                subject.compare("two contexts in turn", {"y": result}, subject.expect(model, feed))


@rule(
    "P45",
    "Threads with a context each may run at the same time",
    why="Servers do.",
    fix="share nothing that is written between bound runs, or guard it",
)
def judge_threads(subject: CheckedProvider) -> str:
    """Four threads, each with its own context and numbers."""
    engine, model = subject.build(CHAIN), CHAIN.make_model()
    feeds = [_feed(seed, rows=2 + seed) for seed in range(4)]
    rights = [subject.expect(model, feed) for feed in feeds]
    failures: list[str] = []
    start = threading.Barrier(len(feeds))

    def work(index: int) -> None:
        try:
            with engine.create_execution_context() as context:
                start.wait(30)
                for _ in range(8):
                    (result,) = context.run([feeds[index]["x"]])
                    subject.compare(f"thread {index}", {"y": result}, rights[index])
        except Exception as error:  # noqa: BLE001 - a thread has nobody to tell
            failures.append(f"{type(error).__name__}: {first_line(error)}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Broken(failures[0])
    return f"{len(threads)} threads"


@rule(
    "P46",
    "Arrays of the device go in and out without copies",
    why="Whoever has data on the device wants it to stay there.",
    fix="have import_array take what array_at gives, and write to the outputs that the step gets",
)
def judge_device_arrays(subject: CheckedProvider) -> None:
    """Run over an input and an output in the provider's own memory."""
    if subject.provider.memory.is_host:
        raise NotOffered("its memory is the host's")
    engine, model, feeds = _build_on_device(subject), CHAIN.make_model(), [_feed(5), _feed(6)]
    with DeviceArrays(subject.provider) as arrays, engine.create_execution_context() as context:
        rows = [(arrays.upload(each["x"]), arrays.make((3, 8), np.float32), each) for each in feeds]
        for source, target, each in (*rows, *rows, *rows):
            _run_into(context, source, target)
            subject.compare("on the device", {"y": arrays.download(target)}, subject.expect(model, each))


def _build_on_device(subject: CheckedProvider) -> Any:
    """The engine of a model whose inputs and outputs are on the device."""
    engine = subject.build(CHAIN)
    if not all(tensor.memory for tensor in (*engine.manifest.inputs, *engine.manifest.outputs)):
        raise NotOffered("input or output of the kit's model is not on the device")
    return engine


def _run_into(context: Any, source: Any, target: Any) -> None:
    try:
        context.run([source], {context.engine.manifest.outputs[0].name: target})
    except DovetailError as error:
        raise Broken(f"a run over arrays of the device: {first_line(error)}") from error


@rule(
    "P47",
    "A run goes where the caller wants it: on another stream in another run",
    why="Callers change streams between runs, and nothing is bound anew.",
    fix="ask BindContext.stream for its current stream in each run, not once in bind",
)
def judge_other_streams(subject: CheckedProvider) -> None:
    """Runs on two streams of the caller's in turn, each behind work of that stream that the result depends on."""
    provider = subject.provider
    if not overrides(provider, "wrap_stream"):
        raise NotOffered("it takes no streams of callers")
    engine, model = _build_on_device(subject), CHAIN.make_model()
    with (
        open_streams(provider, 2) as streams,
        DeviceArrays(provider) as arrays,
        engine.create_execution_context() as context,
    ):
        source, target = arrays.make((_ROWS, 8), np.float32), arrays.make((_ROWS, 8), np.float32)
        _bind_by_address(context, source, target)
        for turn in range(6):
            feed, result = _feed(turn, rows=_ROWS), np.zeros((_ROWS, 8), np.float32)
            stream = streams[turn % 2]
            provider.copy(feed["x"], source, stream)
            context.execute_async_v3(stream.handle)
            provider.copy(target, result, stream)
            stream.synchronize()
            subject.compare(f"run {turn + 1}, stream {turn % 2}", {"y": result}, subject.expect(model, feed))


def _bind_by_address(context: Any, source: Any, target: Any) -> None:
    (given,), (made,) = context.engine.manifest.inputs, context.engine.manifest.outputs
    context.set_input_shape(given.name, source.shape)
    context.set_tensor_address(given.name, source.address)
    context.set_tensor_address(made.name, target.address)


@rule(
    "P48",
    "Arrays of the device are offered by DLPack under a device that is not the host",
    why="Who takes them reads them there; under a wrong device that ends the process.",
    fix="give dlpack_device the type of DLPack and the ordinal of the device, or leave it None",
)
def judge_dlpack(subject: CheckedProvider) -> str:
    """Look at what is said of the memory."""
    provider = subject.provider
    if provider.memory.is_host:
        raise NotOffered("its memory is the host's")
    device: Any = provider.dlpack_device
    if device is None:
        raise NotOffered("its arrays are not exchanged")
    if not isinstance(device, tuple) or [type(part) for part in device] != [int, int]:
        raise Broken(f"dlpack_device is {device!r}, expected a pair of numbers")
    kind, ordinal = device
    if kind == _DLPACK_HOST or not 0 < kind < _DLPACK_END:
        raise Broken(f"dlpack_device has the type {kind}, which is the host's or nobody's")
    if ordinal != provider.device.ordinal:
        raise Broken(f"dlpack_device names device {ordinal}, and this one is {provider.device.ordinal}")
    return f"type {kind}, device {ordinal}"
