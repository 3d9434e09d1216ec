"""Running an engine as often and as long as asked, with the times of every run.

Times are of the host's clock. On a device a run is put on a stream, which is the enqueue time, and waited for, which
ends the compute time; on the host both are the same.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.errors import DovetailError, InputError
from dovetail.inputs.array_files import read_array
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.raw_files import RawFile
from dovetail.inputs.specs import InputSpec, specs_of_manifest
from dovetail_tensorrt.trtexec.words import Options

__all__ = ["Lane", "RunTimes", "make_inputs", "measure", "profile"]

_MIN_RUNS = 10


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When the parts of one run began and ended, in nanoseconds."""

    begin: int
    copied_in: int
    enqueued: int
    computed: int
    copied_out: int


def make_inputs(engine: Any, options: Options) -> dict[str, Any]:
    """An array for each input: from files, else random numbers of the shapes to run with."""
    shapes = dict(options.get("shapes", {}))
    known = {tensor.name for tensor in engine.manifest.inputs}
    for flag, names in (("shapes", shapes), ("loadInputs", options.get("loadInputs", {}))):
        for name in names:
            if name not in known:
                raise InputError(f"the engine has no input '{name}'", where=f"--{flag}", expected=", ".join(known))
    specs = {spec.name: spec for spec in specs_of_manifest(engine.manifest)}
    made = make_feeds(specs.values(), shapes={**_profile_shapes(engine, options), **shapes})
    for name, path in options.get("loadInputs", {}).items():
        made[name] = _read_input(specs[name], Path(path), made[name].shape)
    return made


def _profile_shapes(engine: Any, options: Options) -> dict[str, tuple[int, ...]]:
    """The shapes that the profile to run with is tuned for."""
    number, profiles = options.get("useProfile", 0), engine.manifest.profiles
    if number and number >= len(profiles):
        raise InputError(
            "there is no such profile", where="--useProfile", expected=f"below {len(profiles)}", got=number
        )
    return {name: tuple(opt) for name, (_, opt, _) in profiles[number].shapes.items()} if profiles else {}


def _read_input(spec: InputSpec, path: Path, shape: Sequence[int]) -> Any:
    """The array of a file: ``.npy``, or raw bytes of the input's type and shape."""
    return read_array(path, spec) if path.suffix == ".npy" else RawFile(path).read(spec, shape)


class Lane:
    """One context with memory of its own for inputs and outputs."""

    def __init__(self, engine: Any, inputs: Mapping[str, Any], options: Options) -> None:
        self._engine, self._inputs = engine, {name: np.ascontiguousarray(each) for name, each in inputs.items()}
        self.context = engine.create_execution_context()
        if options.has("useProfile"):
            self.context.set_optimization_profile_async(options.get("useProfile"), 0)
        self._results: Any = None
        self._placed: dict[str, Any] = {}
        self._staged: dict[str, Any] = {}
        self._stream = self._open_stream()
        self.is_bound = self._bind()

    def _open_stream(self) -> Any:
        """A stream of its own on the device, where there is one."""
        devices = self._engine.device_names
        return self._engine.providers[devices[0]].create_stream() if len(devices) == 1 else None

    def _bind(self) -> bool:
        """Bind memory by address; False where a size is known only after a run."""
        tensors = (*self._engine.manifest.inputs, *self._engine.manifest.outputs)
        if any(tensor.type or tensor.format != "LINEAR" or tensor.alias for tensor in tensors):
            return False
        for name, array in self._inputs.items():
            self.context.set_input_shape(name, array.shape)
            self._place(name, array.copy())
        if self.context.infer_shapes():
            return False
        for tensor in self._engine.manifest.outputs:
            shape = tuple(self.context.get_tensor_shape(tensor.name))
            if any(size < 0 for size in shape):
                return False
            self._staged[tensor.name] = np.empty(shape, np.dtype(tensor.dtype))
            self._place(tensor.name, np.empty(shape, np.dtype(tensor.dtype)))
        return True

    def _place(self, name: str, array: Any) -> None:
        placed = self._placed[name] = self._engine.place_array(name, array)
        address = placed.address if isinstance(placed, dovetail.DeviceTensor) else placed.ctypes.data
        self.context.set_tensor_address(name, int(address))

    def copy_in(self) -> None:
        """Bring the inputs to where the engine reads them."""
        for name, array in self._inputs.items():
            if name in self._placed:
                _copy(array, self._placed[name])

    def copy_out(self) -> None:
        """Bring the outputs to the host."""
        for name, array in self._staged.items():
            _copy(self._placed[name], array)

    def enqueue(self) -> None:
        """Put one run on the stream, or do it where there is none."""
        if self.is_bound:
            self.context.execute_async_v3(0 if self._stream is None else self._stream.handle)
        else:
            self._results = self.context.run(list(self._inputs.values()))

    def wait(self) -> None:
        """Wait for the run."""
        if self._stream is not None:
            self._stream.synchronize()

    def run(self, *, with_copies: bool) -> RunTimes:
        """One run with its times."""
        clock = time.perf_counter_ns
        begin = copied_in = clock()
        if with_copies:
            self.copy_in()
            copied_in = clock()
        self.enqueue()
        enqueued = computed = clock()
        if self._stream is not None:
            self.wait()
            computed = clock()
        if not with_copies:
            return RunTimes(begin, copied_in, enqueued, computed, computed)
        self.copy_out()
        return RunTimes(begin, copied_in, enqueued, computed, clock())

    def read_outputs(self) -> dict[str, Any]:
        """The outputs of the last run, on the host."""
        names = [tensor.name for tensor in self._engine.manifest.outputs]
        if not self.is_bound:
            return dict(zip(names, self._results or (), strict=False))
        self.copy_out()
        return {name: self._staged[name] for name in names}


def _copy(source: Any, target: Any) -> None:
    if isinstance(target, dovetail.DeviceTensor):
        target.provider.copy(source, target.array, None)
        target.provider.synchronize()
    elif isinstance(source, dovetail.DeviceTensor):
        source.provider.copy(source.array, target, None)
        source.provider.synchronize()
    else:
        np.copyto(target, source)


def measure(lanes: Sequence[Lane], options: Options) -> list[RunTimes]:
    """Warm up, then run in all lanes at once until both the number and the time are reached."""
    if len(lanes) == 1:
        return _measure_lane(lanes[0], options)
    results: list[list[RunTimes]] = [[] for _ in lanes]
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            results[index] = _measure_lane(lanes[index], options)
        except DovetailError as error:
            failures.append(error)

    _run_threads(work, len(lanes))
    if failures:
        raise failures[0]
    return sorted((each for lane in results for each in lane), key=lambda times: times.begin)


def _run_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _measure_lane(lane: Lane, options: Options) -> list[RunTimes]:
    with_copies = options.has("includeDataTransfers")
    clock, warm_s = time.perf_counter, options.get("warmUp", 200) / 1e3
    start = clock()
    lane.run(with_copies=with_copies)
    while clock() - start < warm_s:
        lane.run(with_copies=with_copies)
    count, duration_s = options.get("iterations", _MIN_RUNS), options.get("duration", 3.0)
    pause_s = (options.get("sleepTime", 0) + options.get("idleTime", 0)) / 1e3
    found: list[RunTimes] = []
    gc.collect()
    start = clock()
    while len(found) < count or clock() - start < duration_s:
        found.append(lane.run(with_copies=with_copies))
        if pause_s:
            time.sleep(pause_s)
    return found


def profile(lane: Lane, options: Options) -> list[dict[str, Any]]:
    """The time of each layer, in runs of their own; the first row has their number."""
    times = dovetail.LayerTimes()
    count = max(options.get("iterations", _MIN_RUNS), 1)
    lane.context.profiler = times
    try:
        for _ in range(count):
            lane.enqueue()
            lane.wait()
    finally:
        lane.context.profiler = None
    return [{"count": count}, *times.rows()]
