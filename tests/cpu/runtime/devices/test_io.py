"""Inputs and outputs in the memory of a device: where they lie, how callers bind them, and what stays there."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.dlpack import export_dlpack
from dovetail.errors import BuildError, InputError, UsageError
from dovetail.host_arrays import array_at
from dovetail.testing import HostDevice, HostStream, host_device
from tests.support.device_models import X, build, chain, expected, make_model, steps_of


def _nonzero() -> Any:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    return make_model(nodes, {"x": ["n", 8]}, {"y": None})


def _memories(engine: dt.Engine) -> dict[str, str]:
    return {name: engine.get_tensor_memory(name) for name in engine.tensor_names}


def _place(**places: str) -> dt.BuilderConfig:
    config = dt.BuilderConfig()
    config.io_memory = places
    return config


def _stream(device: HostDevice) -> HostStream:
    stream = device.create_stream()
    assert stream is not None
    return stream


# where they lie


def test_an_input_that_decides_shapes_stays_on_the_host() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Reshape", ["a", "s"], ["y"])]
    model = make_model(nodes, {"x": ["n", 8], "s": [2]}, {"y": ["p", "q"]}, types={"s": TensorProto.INT64})
    with host_device():
        engine = build(model)
        assert _memories(engine) == {"x": "host_device", "s": "", "y": "host_device"}
        np.testing.assert_array_equal(engine(X, np.array([8, 3])), np.maximum(X, 0).reshape(8, 3))


@pytest.mark.parametrize(
    ("places", "steps"),
    [
        ({"x": "host", "y": "host"}, ["Copy", "MatMul", "Relu", "Softmax", "Add", "Copy"]),
        ({"x": "host"}, ["Copy", "MatMul", "Relu", "Softmax", "Add"]),
        ({"x": "host_device"}, ["MatMul", "Relu", "Softmax", "Add"]),
    ],
)
def test_the_configuration_can_say_where(places: dict[str, str], steps: list[str]) -> None:
    with host_device():
        engine = build(chain(), config=_place(**places))
        assert [step.partition("@")[0] for step in steps_of(engine)] == steps
        assert {name: place or "host" for name, place in _memories(engine).items() if name in places} == places
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


def test_tensors_of_host_steps_can_lie_on_the_device() -> None:
    with host_device(ops=["Relu"]) as device:
        engine = build(chain(), config=_place(x="host_device", y="host_device"))
        assert _memories(engine) == {"x": "host_device", "y": "host_device"}
        np.testing.assert_allclose(engine(device.to_device(X)), expected(chain(), X), rtol=1e-6)


@pytest.mark.parametrize(
    ("places", "error", "match"),
    [
        ({"z": "host"}, UsageError, r"'z'.*no such input or output"),
        ({"x": "mars"}, UsageError, r"'x'.*no memory of this build"),
        ({"x": "cpu"}, UsageError, "no memory of this build"),
    ],
)
def test_wrong_places_are_errors(places: dict[str, str], error: type[Exception], match: str) -> None:
    with host_device(), pytest.raises(error, match=match):
        build(chain(), config=_place(**places))


def test_an_impossible_place_is_an_error() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Reshape", ["a", "s"], ["y"])]
    model = make_model(nodes, {"x": ["n", 8], "s": [2]}, {"y": ["p", "q"]}, types={"s": TensorProto.INT64})
    with host_device(), pytest.raises(BuildError, match=r"'s'.*cannot be in.*'host_device'"):
        build(model, config=_place(s="host_device"))


# arrays of the host


def test_nothing_is_allocated_after_the_first_run_over_shapes() -> None:
    with host_device() as device:
        engine = build(chain())
        context = engine.create_execution_context()
        context.run([X])
        taken = device.allocator.statistics, device.pinned_allocator.statistics
        for times in range(4):
            np.testing.assert_allclose(context.run([X * times])[0], expected(chain(), X * times), rtol=1e-6)
        assert (device.allocator.statistics, device.pinned_allocator.statistics) == taken
        context.close()
        assert device.pinned_allocator.statistics.used_bytes == 0


def test_arrays_of_the_host_go_through_pinned_memory_and_one_wait() -> None:
    with host_device() as device:
        engine = build(chain())
        engine(X)
        device.statistics.reset()
        given = X.copy()
        result = engine(given)
        counts = device.statistics
        assert (counts.copies_to_device, counts.copies_to_host, counts.waits) == (1, 1, 1)
        np.testing.assert_allclose(result, expected(chain(), X), rtol=1e-6)


def test_a_run_that_fails_frees_its_staging() -> None:
    with host_device() as device:
        engine = build(chain())
        context = engine.create_execution_context()
        context.run([X])
        context.close()
        engine.close()
        gc.collect()
        assert device.allocator.statistics.used_bytes == 0


# results that stay


def test_results_stay_on_the_device_and_go_into_another_engine() -> None:
    with host_device() as device:
        engine = build(chain())
        wanted = expected(chain(), expected(chain(), X))
        device.statistics.reset()
        middle = engine.run_on_device(X)
        assert isinstance(middle, dt.DeviceTensor)
        assert (middle.shape, middle.dtype, middle.device, middle.nbytes) == (X.shape, X.dtype, "host_device", 96)
        last = build(chain()).run_on_device(middle)
        assert device.statistics.copies_to_host == 0
        np.testing.assert_allclose(last.numpy(), wanted, rtol=1e-6)
        np.testing.assert_allclose(middle.numpy(), expected(chain(), X), rtol=1e-6)
        with pytest.raises(TypeError, match="numpy"):
            np.asarray(middle)
        assert not hasattr(middle, "__cuda_array_interface__")


def test_each_result_that_stays_has_memory_of_its_own() -> None:
    with host_device() as device:
        engine = build(chain())
        results = [engine.run_on_device(X * times) for times in range(3)]
        for times, result in enumerate(results):
            np.testing.assert_allclose(result.numpy(), expected(chain(), X * times), rtol=1e-6)
        used = device.allocator.statistics.used_bytes
        del results, result
        gc.collect()
        assert device.allocator.statistics.used_bytes < used


def test_results_outlive_the_engine() -> None:
    with host_device() as device:
        engine = build(chain())
        result = engine.run_on_device(X)
        engine.close()
        np.testing.assert_allclose(result.numpy(), expected(chain(), X), rtol=1e-6)
        del result, engine
        gc.collect()
        assert device.allocator.statistics.used_bytes == 0


def test_results_whose_shape_the_run_tells_stay_too() -> None:
    with host_device():
        engine, wanted = build(_nonzero()), expected(_nonzero(), X)
        result = engine.run_on_device(X)
        assert isinstance(result, dt.DeviceTensor)
        np.testing.assert_array_equal(result.numpy(), wanted)
        np.testing.assert_array_equal(engine(X), wanted)


def test_results_in_host_memory_are_numpy_arrays() -> None:
    model = make_model(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Sin", ["a"], ["b"])],
        {"x": ["n", 8]},
        {"a": ["n", 8], "b": ["n", 8]},
    )
    with host_device(ops=["Relu"]):
        engine = build(model, config=_place(b="host"))
        results = engine.run_on_device(x=X)
        assert isinstance(results["a"], dt.DeviceTensor)
        assert isinstance(results["b"], np.ndarray)
        np.testing.assert_allclose(results["b"], np.sin(np.maximum(X, 0)), rtol=1e-6)
    assert isinstance(dt.compile(model, providers=["cpu"]).run_on_device(X)["a"], np.ndarray)


def test_a_result_of_another_device_is_refused() -> None:
    with host_device(), host_device(name="other"):
        result = build(chain(), "other").run_on_device(X)
        with pytest.raises(InputError, match="input 'x'"):
            build(chain())(result)


# by address


def _addressed(context: dt.ExecutionContext, x: int, y: int) -> None:
    context.set_input_shape("x", X.shape)
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", y)


def test_addresses_are_the_devices() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        pairs = [(device.to_device(X * times), device.empty(X.shape, np.float32)) for times in (1, 2)]
        device.statistics.reset()
        for number in range(6):
            source, target = pairs[number % 2]
            _addressed(context, source.address, target.address)
            context.execute_async_v3(0)
            np.testing.assert_allclose(target.view(), expected(chain(), source.view()), rtol=1e-6)
        assert (device.statistics.copies_to_device, device.statistics.copies_to_host) == (0, 0)
        assert (device.statistics.captures, device.statistics.replays) == (2, 4)


def test_a_null_address_is_an_error() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        _addressed(context, device.to_device(X).address, 0)
        with pytest.raises(InputError, match="null address"):
            context.execute_async_v3(0)


class DeviceOutputs(dt.IOutputAllocator):
    """Gives memory of a device."""

    def __init__(self, device: HostDevice) -> None:
        self.device = device
        self.sizes: list[int] = []
        self.shape: tuple[int, ...] = ()
        self.address = 0

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        self.device.find_stream(stream)
        self.sizes.append(size)
        self.address = self.device.allocator.allocate(size, alignment, 0)
        return self.address

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        self.shape = tuple(shape)


@pytest.mark.parametrize("model", [chain(), _nonzero()], ids=["known", "told by the run"])
def test_output_allocators_give_memory_of_the_device(model: Any) -> None:
    with host_device() as device:
        context, wanted = build(model).create_execution_context(), expected(model, X)
        source, outputs = device.to_device(X), DeviceOutputs(device)
        context.set_input_shape("x", X.shape)
        context.set_tensor_address("x", source.address)
        context.set_output_allocator("y", outputs)
        context.execute_async_v3(0)
        assert (outputs.sizes, outputs.shape) == ([wanted.nbytes], wanted.shape)
        made = device.array_at(outputs.address, outputs.shape, np.float32)
        np.testing.assert_allclose(device.to_host(made), wanted, rtol=1e-6)


# the caller's stream


def test_a_run_by_address_is_put_on_the_callers_stream() -> None:
    with host_device() as device:
        engine = build(chain())
        context, stream = engine.create_execution_context(), _stream(device)
        source, target = device.to_device(X), device.empty(X.shape, np.float32)
        _addressed(context, source.address, target.address)
        for number in range(4):
            device.statistics.reset()
            context.execute_async_v3(stream.handle)
            assert (device.statistics.waits, stream.pending > 0) == (0, True)
            stream.synchronize()
            np.testing.assert_allclose(target.view(), expected(chain(), X), rtol=1e-6)
            assert device.statistics.replays == (number > 0)


def test_streams_change_and_nothing_is_bound_anew() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        streams = [_stream(device), _stream(device)]
        source, target = device.to_device(X), device.empty(X.shape, np.float32)
        _addressed(context, source.address, target.address)
        bound = context.bind([X.shape])
        for number in range(6):
            context.execute_async_v3([*streams, None][number % 3].handle if number % 3 < 2 else 0)
        assert context.bind([X.shape]) is bound
        np.testing.assert_allclose(target.view(), expected(chain(), X), rtol=1e-6)
        assert (device.statistics.captures, device.statistics.replays) == (1, 5)


def test_another_stream_comes_behind_what_is_under_way() -> None:
    """A context has one set of memory: the second run must not write where the first still reads."""
    with host_device() as device:
        engine = build(chain())
        engine.capture_graphs = False
        context = engine.create_execution_context()
        first, second = _stream(device), _stream(device)
        inputs = [device.to_device(X), device.to_device(X * 2)]
        targets = [device.empty(X.shape, np.float32) for _ in inputs]
        for stream, source, target in zip((first, second), inputs, targets, strict=True):
            _addressed(context, source.address, target.address)
            context.execute_async_v3(stream.handle)
        second.synchronize()
        assert first.pending == 0
        for source, target in zip(inputs, targets, strict=True):
            np.testing.assert_allclose(target.view(), expected(chain(), source.view()), rtol=1e-6)


def test_a_result_on_the_callers_stream_knows_when_it_is_there() -> None:
    with host_device() as device:
        engine = build(chain())
        context, stream = engine.create_execution_context(), _stream(device)
        context.use_streams({"host_device": stream.handle})
        (result,) = context.run([device.to_device(X)], keep_on_device=True)
        assert stream.pending > 0
        (last,) = engine.create_execution_context().run([result])
        np.testing.assert_allclose(last, expected(chain(), expected(chain(), X)), rtol=1e-6)
        np.testing.assert_allclose(result.numpy(), expected(chain(), X), rtol=1e-6)


def test_many_streams_of_callers_are_not_all_kept() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        for _ in range(40):
            stream = _stream(device)
            context.use_streams({"host_device": stream.handle})
            np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)
        (kept,) = [slot for _, slot in context._devices.streams()]
        assert len(kept._wrapped) <= 8


def test_streams_of_nobody_are_refused() -> None:
    with host_device(), build(chain()).create_execution_context() as context:
        with pytest.raises(dt.ProviderError, match="no stream of this device"):
            context.use_streams({"host_device": 77})
        with pytest.raises(UsageError, match="does not run on mars"):
            context.use_streams({"mars": 1})
        np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)


def test_a_stream_of_one_of_several_devices_needs_a_name() -> None:
    first, second = host_device(name="first", ops=["MatMul", "Softmax"]), host_device(name="second", ops=["Relu"])
    with first as device, second:
        context = build(chain(), "first", "second").create_execution_context()
        stream = _stream(device)
        with pytest.raises(UsageError, match="several devices"):
            context.execute_async_v3(stream.handle)
        context.use_streams({"first": stream.handle})
        np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)


# memory that is given back


def test_a_context_gives_memory_back_in_the_order_of_its_stream() -> None:
    with host_device() as device:
        engine = build(chain())
        engine(X)
        device.statistics.reset()
        engine(np.resize(X, (500, 8)))  # the arena grows, and the old one goes
        assert device.statistics.waits == 1  # at the end of the run only


def test_freed_memory_is_poisoned_when_the_stream_comes_there() -> None:
    with host_device() as device:
        stream = _stream(device)
        address = device.allocator.allocate(32, 256, 0)
        array = device.array_at(address, (8,), np.float32)
        array.view()[...] = 1
        seen: list[bool] = []
        stream.submit("read", lambda: seen.append(bool((array.read() == 1).all())))
        assert device.allocator.deallocate_async(address, stream.handle)
        with pytest.raises(dt.ProviderError, match="after its free"):
            device.allocator.deallocate_async(address, stream.handle)
        with pytest.raises(dt.ProviderError, match="after its free"):
            device.copy(array, np.empty(8, np.float32), stream)
        assert device.allocator.statistics.used_bytes > 0
        stream.synchronize()
        assert seen == [True]
        with pytest.raises(dt.ProviderError, match="no live memory"):
            array.read()
        assert np.isnan(array_at(address, (8,), np.float32)).all()
        assert device.allocator.statistics.used_bytes == 0


def test_memory_goes_back_although_work_before_it_failed() -> None:
    with host_device() as device:
        stream = _stream(device)
        address = device.allocator.allocate(32, 256, 0)
        stream.submit("bad", lambda: next(iter(())))
        device.allocator.deallocate_async(address, stream.handle)
        with pytest.raises(StopIteration):
            stream.synchronize()
        assert device.allocator.statistics.used_bytes == 0


# other libraries


class Foreign:
    """An array of another library, of which nothing is known but DLPack."""

    def __init__(self, tensor: dt.DeviceTensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)


def test_engines_exchange_arrays_by_dlpack_without_a_copy() -> None:
    with host_device() as device:
        first, second = build(chain()), build(chain())
        middle = Foreign(first.run_on_device(X))
        device.statistics.reset()
        result = second.run_on_device(middle)
        counts = device.statistics
        assert (counts.copies_to_device, counts.copies_to_host, counts.copies_inside) == (0, 0, 0)
        wanted = expected(chain(), expected(chain(), X))
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-6)
        with second.create_execution_context() as context:  # and what is written lies in the other's memory
            (returned,) = context.run([middle], {"y": Foreign(result)})
        assert isinstance(returned, Foreign)


def test_an_imported_array_lives_through_the_run_and_no_longer() -> None:
    with host_device() as device:
        engine = build(chain())
        engine(X)
        used = device.allocator.statistics.used_bytes
        np.testing.assert_allclose(
            engine(Foreign(engine.run_on_device(X))), expected(chain(), expected(chain(), X)), rtol=1e-6
        )
        gc.collect()
        assert device.allocator.statistics.used_bytes == used


def test_numpy_refuses_an_array_of_the_device() -> None:
    with host_device():
        result = build(chain()).run_on_device(X)
        assert result.__dlpack_device__() == (12, 0)
        with pytest.raises((RuntimeError, BufferError, TypeError)):
            np.from_dlpack(result)
        with pytest.raises(BufferError, match="without a copy"):
            result.__dlpack__(copy=True)
        with pytest.raises(InputError, match="on a device"):
            dt.compile(chain(), providers=["cpu"])(result)


def test_a_device_that_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device():
        engine = build(chain())
        result = engine.run_on_device(X)
        foreign = Foreign(result)
        monkeypatch.setattr(HostDevice, "dlpack_device", None)
        with pytest.raises(BufferError, match="DLPack"):
            result.__dlpack__()
        with pytest.raises((InputError, BufferError)):
            engine(foreign)
        np.testing.assert_allclose(engine(result), expected(chain(), expected(chain(), X)), rtol=1e-6)


class CudaArray:
    """An array of another library, as CUDA's interface describes it."""

    def __init__(self, tensor: dt.DeviceTensor, **changes: Any) -> None:
        self._tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changes}


class Refusing:
    """An array whose maker does not hand it out, as PyTorch one that has a gradient."""

    requires_grad = True

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("Can't get it on a variable that requires grad")


class RefusingBoth(Refusing):
    """The same with DLPack."""

    requires_grad = False

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **options: Any) -> Any:
        raise ArithmeticError("not today")


class Interfaced(Foreign):
    """An array with DLPack whose interface of CUDA raises."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise KeyError("float8")


def test_what_other_libraries_raise_is_told_with_the_input_and_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device():
        monkeypatch.setattr(HostDevice, "dlpack_device", (2, 0))
        engine = build(chain())
        with pytest.raises(
            InputError, match=r"(?s)input 'x': its __cuda_array_interface__ raised.*x\.detach\(\)"
        ) as told:
            engine(Refusing())
        assert isinstance(told.value.__cause__, RuntimeError)
        with pytest.raises(InputError, match="input 'x': its __dlpack__ raised ArithmeticError: not today"):
            engine(RefusingBoth())
        middle = engine.run_on_device(X)
        wanted = expected(chain(), expected(chain(), X))
        np.testing.assert_allclose(engine(Interfaced(middle)), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": (0, False)},
        {"data": 3},
        {"shape": (-1, 8)},
        {"shape": None},
        {"typestr": "float33"},
        {"strides": (4,)},
    ],
    ids=str,
)
def test_an_interface_of_cuda_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    with host_device():
        monkeypatch.setattr(HostDevice, "dlpack_device", (2, 0))
        engine = build(chain())
        middle = engine.run_on_device(X)
        with pytest.raises(
            InputError, match=r"input 'x': its (__cuda_array_interface__ cannot be|memory is at address 0)"
        ):
            engine(CudaArray(middle, **changes))


class Nowhere(Foreign):
    """An array of DLPack at address 0."""

    def __dlpack__(self, **options: Any) -> Any:
        tensor = self._tensor
        return export_dlpack(0, tensor.shape, np.dtype(np.float32), tensor.__dlpack_device__(), None)


def test_dlpack_at_address_0_is_refused() -> None:
    with host_device():
        engine = build(chain())
        with pytest.raises(InputError, match="input 'x': its memory is at address 0"):
            engine(Nowhere(engine.run_on_device(X)))


def test_arrays_are_exchanged_by_the_interface_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    with host_device() as device:
        monkeypatch.setattr(HostDevice, "dlpack_device", (2, 0))
        engine = build(chain())
        middle, stream = engine.run_on_device(X), _stream(device)
        wanted = expected(chain(), expected(chain(), X))
        for changes in ({}, {"strides": (32, 4)}, {"stream": stream.handle}):
            np.testing.assert_allclose(engine(CudaArray(middle, **changes)), wanted, rtol=1e-6)
        with pytest.raises(InputError, match="row by row"):
            engine(CudaArray(middle, strides=(4, 12)))
        with pytest.raises(InputError, match="wrong type"):
            engine(CudaArray(middle, typestr="<i4"))
        target = CudaArray(middle, data=(middle.address, True))
        with engine.create_execution_context() as context, pytest.raises(InputError, match="read-only"):
            context.run([X], {"y": target})


def test_a_stream_of_the_caller_may_be_gone_when_its_work_is_done() -> None:
    """Scripts make a stream for each inference, and destroy it before they drop the context."""
    with host_device() as device:
        context = build(chain()).create_execution_context()
        source, target = device.to_device(X), device.empty(X.shape, np.float32)
        _addressed(context, source.address, target.address)
        for _ in range(3):
            stream = device.create_stream()
            assert stream is not None
            context.execute_async_v3(stream.handle)
            stream.synchronize()
            stream.close()
        del context


def test_a_stream_of_the_caller_may_be_gone_before_what_was_captured_on_it() -> None:
    with host_device() as device:
        context = build(chain()).create_execution_context()
        source, target = device.to_device(X), device.empty(X.shape, np.float32)
        _addressed(context, source.address, target.address)
        stream = device.create_stream()
        assert stream is not None
        for _ in range(3):
            context.execute_async_v3(stream.handle)
        stream.synchronize()
        assert device.statistics.captures == 1
        stream.close()
        context.close()
        assert all(graph.is_closed for graph in device.graphs)
