"""One model run in many ways that must all give the same: ONNX Runtime alone, and Dovetail built and used differently.

A *way* is how an engine is built: the providers, the layers that are forced elsewhere, the passes that are left out, a
profile. A *use* is how it is run: called, from a file, by bound addresses, in two threads.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import dovetail as dt
from dovetail.passes import PASS_NAMES
from dovetail.providers.onnxruntime.sessions import Level, SessionSettings, Use, create_session
from dovetail.testing import host_device
from tests.support.plugins import PlainCreator, ScalePlugin
from tests.support.random_models import RandomModel, plain_model
from tests.support.threads import in_threads

__all__ = ["USES", "WAYS", "Expected", "Failure", "expect", "find_failures"]

Results = dict[str, Any]
DEVICE = "differential_device"
RELATIVE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-6}
_GUARD = 64
_RANKLESS = {"SequenceAt", "ConcatFromSequence"}
"""What these give has no rank before the run, and a plugin wants to know it."""


@dataclass(frozen=True)
class Failure:
    """A way and a use that gave something else."""

    way: str
    use: str
    message: str

    def __str__(self) -> str:
        return f"{self.way} / {self.use}: {self.message}"


@dataclass
class Expected:
    """What ONNX Runtime gives for each of the inputs, and how much its own optimiser changes that."""

    feeds: list[dict[str, Any]]
    results: list[Results]
    noise: list[dict[str, float]]
    refusal: str = ""
    """Why ONNX Runtime gives nothing; Dovetail's own kernels stand in for it then."""
    empty: Results | None = None


# what is right


def expect(case: RandomModel) -> Expected:
    """The results to hold others against: ONNX Runtime's without its optimiser."""
    data = plain_model(case.model).SerializeToString()
    try:
        exact = _run_session(data, Level.NONE, case.feeds)
    except Exception as error:  # noqa: BLE001 - whatever ONNX Runtime does not take, Dovetail is asked
        engine = _plain_engine(case)
        results = [_call(engine, feed) for feed in case.feeds]
        return Expected(case.feeds, results, [{} for _ in case.feeds], refusal=str(error)[:300])
    return Expected(case.feeds, exact, _find_noise(case, data, exact), empty=_expect_empty(case))


def _find_noise(case: RandomModel, data: bytes, exact: list[Results]) -> list[dict[str, float]]:
    """How far ONNX Runtime's own optimiser goes from the exact results, where it does not fail."""
    is_risky = "DequantizeLinear" in case.ops and case.ops & {"If", "Loop", "Scan"}
    try:
        # With bodies, its passes over Q and DQ may end the process.
        fast = exact if is_risky else _run_session(data, Level.ALL, case.feeds)
    except Exception:  # noqa: BLE001 - its optimiser has faults of its own
        fast = exact
    # Weights of eight bits are multiplied by inputs that it makes eight bits too.
    least = 0.002 if {"DequantizeLinear", "MatMul"} <= case.ops else 0.0
    return [
        {name: max(_distance(a[name], b[name]), least * _magnitude(a[name])) for name in a}
        for a, b in zip(exact, fast, strict=True)
    ]


def _magnitude(value: Any) -> float:
    if isinstance(value, list):
        return max(map(_magnitude, value), default=0.0)
    finite = np.abs(value[np.isfinite(value)].astype(np.float64)) if value.dtype.kind == "f" else np.empty(0)
    return float(finite.max(initial=0.0))


def _expect_empty(case: RandomModel) -> Results | None:
    """By the kernels of ``cpu`` alone: ONNX Runtime reduces empty tensors to other shapes than ONNX, or crashes."""
    if case.empty is None or "Reshape" in case.ops:  # a size of 0 that is computed means something else there
        return None
    try:
        return _call(_plain_engine(case), case.empty)
    except dt.InputError:
        return None


def _run_session(data: bytes, level: str, feeds: Sequence[dict[str, Any]]) -> list[Results]:
    session = create_session(data, level, SessionSettings(threads=1), Use.WHOLE, where="the reference")
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, feed), strict=True)) for feed in feeds]


def _plain_engine(case: RandomModel) -> dt.Engine:
    config = dt.BuilderConfig()
    config.passes_off = PASS_NAMES
    return dt.compile(plain_model(case.model), providers=["cpu"], config=config)


def _distance(left: Any, right: Any) -> float:
    if isinstance(left, list):
        return max((_distance(a, b) for a, b in zip(left, right, strict=True)), default=0.0)
    if left.shape != right.shape or left.dtype.kind != "f" or not left.size:
        return 0.0
    difference = np.abs(left.astype(np.float64) - right.astype(np.float64))
    return float(np.nanmax(difference, initial=0.0))


def compare(ours: Any, theirs: Any, name: str, noise: float = 0.0) -> None:
    """Fail when a result is not the one expected."""
    if isinstance(theirs, list):
        assert isinstance(ours, list), f"{name} is no sequence"
        assert len(ours) == len(theirs), f"{name} has {len(ours)} parts, not {len(theirs)}"
        for index, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            compare(left, right, f"{name}[{index}]", noise)
        return
    assert isinstance(ours, np.ndarray), f"{name} is a {type(ours).__name__}"
    assert ours.dtype == theirs.dtype, f"{name} is {ours.dtype}, not {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{name} has the shape {ours.shape}, not {theirs.shape}"
    relative = RELATIVE.get(theirs.dtype.name)
    if relative is None:
        assert np.array_equal(ours, theirs), f"{name} differs at {_first(ours != theirs)}: {_show(ours, theirs)}"
        return
    left, right = ours.astype(np.float64), theirs.astype(np.float64)
    room = relative * max(_magnitude(right), 1.0) + 10 * noise
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(left - right) <= room) | (left == right) | (np.isnan(left) & np.isnan(right)))
    assert not wrong.any(), f"{name} differs at {_first(wrong)} by more than {room:.3g}: {_show(left, right)}"


def _first(wrong: Any) -> str:
    return f"{np.count_nonzero(wrong)} of {wrong.size} places, first {tuple(map(int, np.argwhere(wrong)[0]))}"


def _show(ours: Any, theirs: Any) -> str:
    return f"got {np.ravel(ours)[:8].tolist()}, expected {np.ravel(theirs)[:8].tolist()}"


def compare_all(ours: Results, expected: Results, noise: dict[str, float]) -> None:
    assert list(ours) == list(expected), f"outputs {list(ours)}, not {list(expected)}"
    for name, value in expected.items():
        compare(ours[name], value, name, noise.get(name, 0.0))


# ways to build


@dataclass
class Build:
    """What a way decides."""

    providers: list[str] | None = None
    config: dt.BuilderConfig = field(default_factory=dt.BuilderConfig)
    shapes: Any = None
    profiles: Any = None


Way = Callable[[RandomModel, random.Random], Build]


def _forced(case: RandomModel, rng: random.Random) -> Build:
    build = Build()
    names = [node.name for node in _all_nodes(case.model.graph) if node.name]
    build.config.layer_providers = {name: "cpu" for name in names if rng.random() < 0.3}
    return build


def _on_device(*before: str, forced: bool = False, **device: Any) -> Way:
    def way(case: RandomModel, rng: random.Random) -> Build:
        build = _forced(case, rng) if forced else Build()
        build.providers = [*before, DEVICE, "cpu"]
        if forced:
            names = [node.name for node in _all_nodes(case.model.graph) if node.name and not node.domain]
            build.config.layer_providers = {name: DEVICE for name in names if rng.random() < 0.3}
        return build

    return way


def _without_pass(case: RandomModel, rng: random.Random) -> Build:
    build = Build(providers=rng.choice([None, ["cpu"]]))
    build.config.passes_off = [rng.choice(PASS_NAMES)]
    return build


def _without_passes(case: RandomModel, rng: random.Random) -> Build:
    build = Build(providers=rng.choice([None, ["cpu"]]))
    build.config.passes_off = PASS_NAMES
    return build


def _in_profile(case: RandomModel, rng: random.Random) -> Build:
    return Build(providers=rng.choice([None, ["cpu"], [DEVICE, "cpu"]]), shapes=case.bounds or None)


def _in_profiles(case: RandomModel, rng: random.Random) -> Build:
    """One profile for the smallest shapes alone, and one for all."""
    build = _in_profile(case, rng)
    if build.shapes is not None:
        build.profiles = [{name: least for name, (least, _, _) in case.bounds.items()}, build.shapes]
        build.shapes = None
    return build


WAYS: dict[str, Way] = {
    "default": lambda case, rng: Build(),
    "cpu": lambda case, rng: Build(providers=["cpu"]),
    "forced": _forced,
    "device": _on_device(),
    "device after onnxruntime": _on_device("onnxruntime", forced=True),
    "without a pass": _without_pass,
    "without passes": _without_passes,
    "profile": _in_profile,
    "profiles": _in_profiles,
}


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


# ways to use

Useful = Callable[[dt.Engine, Expected, Any], None]


def _call(engine: dt.Engine, feed: dict[str, Any]) -> Results:
    result = engine(**feed)
    names = [tensor.name for tensor in engine.manifest.outputs]
    return result if len(names) > 1 else {names[0]: result}


def _use_strided(engine: dt.Engine, expected: Expected, registry: Any) -> None:
    """Inputs that do not lie row by row or may not be written, and results that the caller writes over."""
    for index in [*range(len(expected.feeds)), 0]:
        feed = {name: _strided(array, number) for number, (name, array) in enumerate(expected.feeds[index].items())}
        result = _call(engine, feed)
        compare_all(result, expected.results[index], expected.noise[index])
        for value in result.values():
            for array in value if isinstance(value, list) else [value]:
                assert array.flags.writeable, "a result is read-only"
                array[...] = 77


def _strided(array: Any, number: int) -> Any:
    if number % 3 == 1:
        return np.asfortranarray(array) if array.ndim else array
    if number % 3 == 2:
        array = array.copy()
        array.flags.writeable = False
        return array
    return np.repeat(array[..., None], 2, axis=-1)[..., 0]


def _use_calls(engine: dt.Engine, expected: Expected, registry: Any) -> None:
    kept = []
    for index in [*range(len(expected.feeds)), 0, 0]:
        before = {name: array.copy() for name, array in expected.feeds[index].items()}
        result = _call(engine, expected.feeds[index])
        compare_all(result, expected.results[index], expected.noise[index])
        for name, array in before.items():
            assert array.tobytes() == expected.feeds[index][name].tobytes(), f"input {name} was changed"
        kept.append((index, result))
    for index, result in kept:  # a result belongs to the caller, whatever ran since
        compare_all(result, expected.results[index], expected.noise[index])


def _use_file(engine: dt.Engine, expected: Expected, registry: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.plan"
        engine.save(path)
        runtime = dt.Runtime()
        _register(runtime.get_plugin_registry())
        with runtime.load_engine(path) as loaded:
            _use_calls(loaded, expected, registry)
            again = bytes(loaded.serialize())
        assert again == path.read_bytes(), "a plan that is loaded and serialized is another"


class _Bytes:
    """Memory for a tensor where the engine wants it, with a guard behind it."""

    def __init__(self, engine: dt.Engine, name: str, size: int) -> None:
        self._placed = engine.place_array(name, np.full(size + _GUARD, 0xA5, np.uint8))

    @property
    def address(self) -> int:
        return self._placed.address if isinstance(self._placed, dt.DeviceTensor) else _address(self._placed)

    def read(self) -> Any:
        return self._placed.numpy() if isinstance(self._placed, dt.DeviceTensor) else self._placed


class _Allocator(dt.IOutputAllocator):
    def __init__(self, engine: dt.Engine) -> None:
        super().__init__()
        self.engine, self.shape = engine, ()
        self.memory: _Bytes | None = None

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        self.memory = _Bytes(self.engine, tensor_name, max(size, 1))
        return self.memory.address

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


def _use_addresses(engine: dt.Engine, expected: Expected, registry: Any) -> None:
    tensors = (*engine.manifest.inputs, *engine.manifest.outputs)
    if any(tensor.type for tensor in tensors):
        return
    context = engine.create_execution_context()
    if engine.num_optimization_profiles > 1:
        context.set_optimization_profile_async(engine.num_optimization_profiles - 1)
    for index in [*range(len(expected.feeds)), 0]:
        _run_bound(context, expected.feeds[index], expected.results[index], expected.noise[index])


def _run_bound(context: Any, feed: dict[str, Any], wanted: Results, noise: dict[str, float]) -> None:
    held = {name: context.engine.place_array(name, array.copy()) for name, array in feed.items()}
    for name, array in held.items():
        context.set_input_shape(name, array.shape)
        context.set_tensor_address(name, array.address if isinstance(array, dt.DeviceTensor) else _address(array))
    assert not context.infer_shapes()
    memory: dict[str, Any] = {}
    for name, array in wanted.items():
        shape = _known_shape(context, name)
        if shape is None or -1 in shape:
            memory[name] = _Allocator(context.engine)
            context.set_output_allocator(name, memory[name])
        else:
            assert shape == array.shape, f"the context says {shape} for {name}, not {array.shape}"
            context.set_output_allocator(name, None)
            _bind_fresh(context, name, array, memory)
    assert context.execute_async_v3(0)
    _compare_memory(memory, wanted, noise)
    for _ in range(0 if any(isinstance(held, _Allocator) for held in memory.values()) else 2):
        for name in memory:
            _bind_fresh(context, name, wanted[name], memory)
        context.execute_async_v3(0)
        _compare_memory(memory, wanted, noise)


def _bind_fresh(context: Any, name: str, array: Any, memory: dict[str, Any]) -> None:
    memory[name] = _Bytes(context.engine, name, array.nbytes)
    context.set_tensor_address(name, memory[name].address)


def _compare_memory(memory: dict[str, Any], wanted: Results, noise: dict[str, float]) -> None:
    for name, array in wanted.items():
        held = memory[name]
        if isinstance(held, _Allocator):
            assert held.memory is not None
            raw, shape = held.memory.read(), held.shape
        else:
            raw, shape = held.read(), array.shape
            assert (raw[array.nbytes :] == 0xA5).all(), f"{name} was written past its end"
        assert shape == array.shape, f"{name} has the shape {shape}, not {array.shape}"
        compare(raw[: array.nbytes].view(array.dtype).reshape(shape), array, name, noise.get(name, 0.0))


def _known_shape(context: Any, name: str) -> tuple[int, ...] | None:
    try:
        return tuple(context.get_tensor_shape(name))
    except dt.UsageError:
        return None  # only the run tells even the rank


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _use_threads(engine: dt.Engine, expected: Expected, registry: Any) -> None:
    def work(number: int) -> None:
        order = range(len(expected.feeds)) if number else reversed(range(len(expected.feeds)))
        for index in order:
            compare_all(_call(engine, expected.feeds[index]), expected.results[index], expected.noise[index])

    in_threads(work, 2)


def _use_empty(engine: dt.Engine, expected: Expected, registry: Any, feed: dict[str, Any] | None = None) -> None:
    assert feed is not None
    _use_calls(engine, expected, registry)
    compare_all(_call(engine, feed), expected.empty or {}, {})
    _use_calls(engine, expected, registry)


USES: dict[str, Useful] = {
    "calls": _use_calls,
    "file": _use_file,
    "addresses": _use_addresses,
    "threads": _use_threads,
    "strided": _use_strided,
}


# all of it


def _register(registry: Any) -> Any:
    registry.register_creator(PlainCreator("TestScale", lambda factor: ScalePlugin(factor)), "")
    return registry


@contextmanager
def _device(rng: random.Random) -> Iterator[Any]:
    with host_device(name=DEVICE, layout=rng.choice(["NCHW", "NHWC"]), can_capture=rng.random() < 0.7) as device:
        yield device


def find_failures(
    case: RandomModel, ways: Sequence[str] | None = None, uses: Sequence[str] | None = None
) -> list[Failure]:
    """What gave other results, or ended in an error.

    Args:
        case: The model and its inputs.
        ways: Some of ``WAYS``; all of them when None.
        uses: Some of ``USES``; all of them when None.
    """
    expected = expect(case)
    found: list[Failure] = []
    for way in ways or WAYS:
        rng = random.Random(f"{case.seed} {way}")
        with ExitStack() as stack:
            stack.enter_context(_device(rng))
            registry = _register(dt.PluginRegistry())
            build = WAYS[way](case, rng)
            try:
                engine = dt.compile(
                    case.model,
                    providers=build.providers,
                    config=build.config,
                    shapes=build.shapes,
                    profiles=build.profiles,
                    registry=registry,
                )
            except Exception as error:  # noqa: BLE001 - every error is a finding
                if not ("no known rank" in str(error) and case.ops & _RANKLESS):
                    found.append(Failure(way, "build", f"{type(error).__name__}: {error}"))
                continue
            stack.callback(engine.close)
            found += _try_uses(engine, expected, case, way, uses or list(USES), registry)
    return found


def _try_uses(
    engine: dt.Engine, expected: Expected, case: RandomModel, way: str, uses: Sequence[str], registry: Any
) -> list[Failure]:
    found = []
    tried: dict[str, Callable[[], None]] = {use: lambda use=use: USES[use](engine, expected, registry) for use in uses}
    if expected.empty is not None and way in ("cpu", "device"):
        tried["empty"] = lambda: _use_empty(engine, expected, registry, case.empty)
    for use, run in tried.items():
        try:
            run()
        except Exception as error:  # noqa: BLE001 - every error is a finding
            if not (
                expected.refusal and isinstance(error, dt.ProviderError)
            ):  # what it fails at alone, it fails at here
                found.append(Failure(way, use, f"{type(error).__name__}: {error}"))
    return found
