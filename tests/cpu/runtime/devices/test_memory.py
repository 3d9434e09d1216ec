"""Values in the memory of a device: copies, arenas, weights, and arrays that callers bind there."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.errors import InputError
from dovetail.testing import HostDeviceArray, host_device
from tests.support.device_models import WEIGHT, X, build, chain, expected, make_model, steps_of

PROFILE = {"x": ((1, 8), (3, 8), (5, 8))}


def test_numpy_cannot_read_an_array_of_a_device() -> None:
    with host_device() as device:
        array = device.to_device(X)
        for read in (np.asarray, lambda a: np.add(a, 1), lambda a: a + 1, np.sum):
            with pytest.raises(TypeError):
                read(array)
        assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == (X.shape, X.dtype, 2, 24, 96)
        np.testing.assert_array_equal(device.to_host(array), X)


@pytest.mark.parametrize("shapes", [None, PROFILE], ids=["open", "profile"])
def test_one_copy_in_and_one_out(shapes: Any) -> None:
    with host_device() as device:
        engine = build(chain(), shapes=shapes)
        assert steps_of(engine) == [f"{op}@host_device" for op in ("MatMul", "Relu", "Softmax", "Add")]
        device.statistics.reset()
        for rows in (3, 2, 5, 3):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert device.statistics.copies_to_host == 4
        # Each run copies x; the weight was uploaded when the engine was made.
        assert device.statistics.copies_to_device == 4


@pytest.mark.parametrize("shapes", [None, PROFILE], ids=["open", "profile"])
def test_a_step_of_the_host_between_two_of_the_device(shapes: Any) -> None:
    with host_device(ops=["MatMul", "Relu", "Add"]) as device:
        engine = build(chain(), shapes=shapes)
        assert steps_of(engine) == [
            *("MatMul@host_device", "Relu@host_device", "Copy@host_device", "Softmax@cpu"),
            *("Copy@host_device", "Add@host_device"),
        ]
        for rows in (3, 1, 3):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert device.statistics.copies_to_host == 6


def test_a_value_is_copied_once_for_all_who_read_it_there() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Sin", ["a"], ["b"]),
        helper.make_node("Cos", ["a"], ["c"]),
        helper.make_node("Mul", ["b", "c"], ["d"]),
        helper.make_node("Add", ["a", "d"], ["y"]),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8], "a": ["n", 8]})
    with host_device(ops=["Relu", "Add"]) as device:
        engine = build(model)
        copies = [step for step in engine.manifest.programs[0].steps if step.kind == "copy"]
        assert [step.name for step in copies] == ["Copy a host_device -> host", "Copy d host -> host_device"]
        results = engine(X)
        wanted = expected(model, X)
        np.testing.assert_allclose(results["y"], wanted["y"], rtol=1e-6)
        np.testing.assert_array_equal(results["a"], wanted["a"])
        assert device.statistics.waits == 2  # before Sin reads a, and at the end


def test_weights_are_uploaded_once_for_all_contexts_and_profiles() -> None:
    with host_device() as device:
        engine = build(chain(), profiles=[PROFILE, {"x": ((6, 8), (6, 8), (9, 8))}])
        assert device.statistics.copies_to_device == 1
        with engine.create_execution_context(), engine.create_execution_context():
            assert device.statistics.copies_to_device == 1
        engine(np.resize(X, (7, 8)))
        assert device.statistics.copies_to_device == 2


def test_new_weights_are_uploaded_and_captured_again() -> None:
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    with host_device() as device:
        engine = build(chain(), config=config)
        for _ in range(3):
            engine(X)
        other = WEIGHT + 1
        refitter = dt.Refitter(engine)
        refitter.set_named_weights("W", other)
        refitter.refit_cuda_engine()
        model = chain()
        model.graph.initializer[0].raw_data = other.tobytes()
        for _ in range(3):
            np.testing.assert_allclose(engine(X), expected(model, X), rtol=1e-5)
        assert device.statistics.captures == 2


def test_a_plan_file_keeps_where_values_lie(tmp_path: Path) -> None:
    with host_device():
        build(chain(), shapes=PROFILE).save(tmp_path / "plan")
        engine = dt.load(tmp_path / "plan")
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        program = engine.manifest.programs[0]
        assert program.arenas["host_device"] > 0
        assert {value.memory for value in program.values} == {"host_device"}
    with pytest.raises(dt.PlanDeviceMismatchError, match="host_device"):
        dt.load(tmp_path / "plan")


def test_memory_goes_back_with_the_engine() -> None:
    with host_device() as device:
        engine = build(chain())
        engine(X)
        assert device.allocator.statistics.used_bytes > 0
        engine.close()
        gc.collect()
        assert device.allocator.statistics.used_bytes == 0
        assert device.allocator.shrink() > 0
        assert device.allocator.statistics.reserved_bytes == 0


def test_an_arena_grows_and_is_reused() -> None:
    with host_device() as device:
        engine = build(chain())
        for _ in range(2):  # what was bound before the arena grew is bound again
            engine(X)
            engine(np.resize(X, (500, 8)))
        taken = device.allocator.statistics
        engine(X)
        engine(np.resize(X, (500, 8)))
        assert device.allocator.statistics == taken


def test_the_shape_of_a_device_value_is_read_without_a_copy() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["rows"]),
        helper.make_node("Concat", ["rows", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["a", "target"], ["y"]),
    ]
    weights = {"first": np.array([0], np.int64), "minus": np.array([2, -1], np.int64)}
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 2, 4]}, weights)
    with host_device() as device:
        engine = build(model)
        assert steps_of(engine) == [
            *("Relu@host_device", "Shape@cpu", "Gather@cpu", "Concat@cpu", "Reshape@host_device")
        ]
        device.statistics.reset()
        np.testing.assert_array_equal(engine(X), np.maximum(X, 0).reshape(3, 2, 4))
        assert (device.statistics.copies_to_host, device.statistics.waits) == (1, 1)


def test_shapes_that_only_the_run_tells() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["i"]),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": None})
    for ops in (None, ["Relu", "Cast"]):
        with host_device(ops=ops):
            engine = build(model)
            for x in (X, np.zeros_like(X), -np.abs(X), X):
                np.testing.assert_array_equal(engine(x), expected(model, x))


@pytest.mark.parametrize("ops", [None, ["Add", "Mul"]], ids=["all", "some"])
def test_bodies_of_control_flow(ops: Any) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "x"], ["sum"]),
            helper.make_node("Sin", ["sum"], ["next"]),
            helper.make_node("Mul", ["next", "two"], ["scan"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("scan", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["start"]),
        helper.make_node("Loop", ["count", "", "start"], ["last", "all"], body=body),
    ]
    weights = {"count": np.array(4, np.int64), "two": np.array(2, np.float32)}
    model = make_model(nodes, {"x": ["n", 8]}, {"last": ["n", 8], "all": None}, weights)
    with host_device(ops=ops) as device:
        engine = build(model)
        for x in (X, X[:2]):
            results, wanted = engine(x), expected(model, x)
            np.testing.assert_allclose(results["last"], wanted["last"], rtol=1e-6)
            np.testing.assert_allclose(results["all"], wanted["all"], rtol=1e-6)
        assert device.statistics.launches > 8


# arrays of the device as inputs and outputs


def test_an_array_of_the_device_saves_the_copy_in() -> None:
    with host_device() as device:
        engine = build(chain())
        wanted = expected(chain(), X)
        given = device.to_device(X)
        device.statistics.reset()
        np.testing.assert_allclose(engine(given), wanted, rtol=1e-6)
        assert device.statistics.copies_to_device == 0
        np.testing.assert_allclose(engine(x=given), wanted, rtol=1e-6)
        np.testing.assert_allclose(engine(X), wanted, rtol=1e-6)
        assert device.statistics.copies_to_device == 1
        np.testing.assert_array_equal(device.to_host(given), X)
        np.testing.assert_allclose(engine(given), wanted, rtol=1e-6)


def test_an_array_of_the_device_takes_a_result() -> None:
    with host_device() as device:
        engine = build(chain())
        wanted = expected(chain(), X)
        with engine.create_execution_context() as context:
            given, result = device.to_device(X), device.empty(X.shape, np.float32)
            device.statistics.reset()
            for _ in range(4):
                (returned,) = context.run([given], {"y": result})
                assert returned is result
                np.testing.assert_allclose(device.to_host(result), wanted, rtol=1e-6)
            assert (device.statistics.copies_to_device, device.statistics.copies_to_host) == (0, 0)
            assert (device.statistics.captures, device.statistics.replays) == (1, 3)
            np.testing.assert_allclose(context.run([X])[0], wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.empty((3, 8), np.float32), "not an array of provider"),
        (HostDeviceArray(0, (3, 8), np.float64, device="host_device"), "wrong type"),
        (HostDeviceArray(0, (2, 8), np.float32, device="host_device"), "wrong shape"),
        (HostDeviceArray(0, (3, 8), np.float32, device="another"), "not an array of provider"),
    ],
)
def test_wrong_arrays_for_a_result(value: Any, match: str) -> None:
    with host_device(), build(chain()).create_execution_context() as context:
        with pytest.raises(InputError, match=match):
            context.run([X], {"y": value})
        with pytest.raises(InputError, match="no output"):
            context.run([X], {"z": value})
        np.testing.assert_allclose(context.run([X])[0], expected(chain(), X), rtol=1e-6)


def test_a_device_array_for_an_input_in_host_memory_raises() -> None:
    config = dt.BuilderConfig()
    config.io_memory = {"x": "host"}
    with host_device() as device:
        engine = build(chain(), config=config)
        with pytest.raises(InputError, match="input 'x'"):
            engine(device.to_device(X))


def test_an_array_of_another_device_is_refused() -> None:
    with host_device() as device, host_device(name="other") as other:
        engine = build(chain())
        with pytest.raises(InputError, match="input 'x'"):
            engine(other.to_device(X))
        with pytest.raises(InputError, match="wrong type"):
            engine(device.to_device(X.astype(np.float64)))


# the host's own arena


class CountingAllocator(dt.HostAllocator):
    """Counts what is taken and given back."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        address = super().allocate(size, alignment, flags)
        self.sizes[address] = size
        return address

    def deallocate(self, memory: int) -> bool:
        del self.sizes[memory]
        return super().deallocate(memory)


def test_the_allocator_of_the_runtime_gives_the_hosts_arena() -> None:
    plan = dt.compile(chain(), providers=["cpu"], shapes=PROFILE).serialize()
    runtime = dt.Runtime()
    allocator = runtime.gpu_allocator = CountingAllocator()
    engine = runtime.deserialize_cuda_engine(plan)
    np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
    assert list(allocator.sizes.values()) == [engine.manifest.programs[0].arena_bytes]
    engine.close()
    assert not allocator.sizes


class NoAllocator(dt.HostAllocator):
    """Has nothing to give."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        return 0


def test_an_allocator_without_memory_is_an_error() -> None:
    plan = dt.compile(chain(), providers=["cpu"], shapes=PROFILE).serialize()
    runtime = dt.Runtime()
    runtime.gpu_allocator = NoAllocator()
    engine = runtime.deserialize_cuda_engine(plan)
    with pytest.raises(dt.ResourceError, match="allocator"):
        engine(X)
