"""The kernel route on a back end with memory of its own: values stay there, and the host gets what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.ort_control_models import CONTROL_CASES, ControlCase
from tests.support.ort_devices import DeviceInOrt, devices_in_ort
from tests.support.ort_ep import EP, assigned, reference_session
from tests.support.ort_models import make_model, node, tensor

pytestmark = pytest.mark.versions

RNG = np.random.default_rng(13)


@pytest.fixture
def device() -> Iterator[DeviceInOrt]:
    with devices_in_ort() as devices:
        yield devices[0]


def _floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def _check(session: Any, model: Any, feeds: Any) -> None:
    for ours, theirs in zip(session.run(None, feeds), reference_session(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def _count_copies(device: DeviceInOrt) -> tuple[int, ...]:
    counts = device.provider.statistics
    return counts.copies_to_device, counts.copies_to_host, counts.copies_inside


def test_kernels_run_where_values_lie(device: DeviceInOrt) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Softmax", ["b"], ["y"])]
    model = make_model(nodes, [tensor("x", ["N", 4])], [tensor("y", ["N", 3])], {"w": _floats(4, 3)})
    session = device.session(model, route="kernels")
    assert assigned(session) == {EP: ["MatMul", "Relu", "Softmax"]}
    for rows in (2, 5, 2):
        _check(session, model, {"x": _floats(rows, 4)})


def test_values_bound_on_the_device_are_not_copied(device: DeviceInOrt) -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Exp", ["a"], ["y"])]
    session = device.session(make_model(nodes, [tensor("x", [3])], [tensor("y", [3])]), route="kernels")
    x, target = _floats(3), device.empty([3])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", device.value(x))
    binding.bind_ortvalue_output("y", target)
    copied = _count_copies(device)
    session.run_with_iobinding(binding)
    assert _count_copies(device) == copied
    np.testing.assert_allclose(target.numpy(), np.exp(-x), rtol=1e-6)


def test_inputs_that_the_host_reads_stay_there(device: DeviceInOrt) -> None:
    nodes = [node("Abs", ["x"], ["a"]), node("Reshape", ["a", "s"], ["b"]), node("ReduceSum", ["b", "axes"], ["y"])]
    inputs = [tensor("x", [2, 6]), tensor("s", [2], TensorProto.INT64)]
    model = make_model(nodes, inputs, [tensor("y", None)], {"axes": np.array([1])})
    session = device.session(model, route="kernels")
    for shape in ([3, 4], [4, -1], [12, 1]):
        _check(session, model, {"x": _floats(2, 6), "s": np.array(shape)})


def test_a_result_of_unknown_shape_gets_to_the_device(device: DeviceInOrt) -> None:
    nodes = [node("NonZero", ["x"], ["a"]), node("Cast", ["a"], ["y"], to=TensorProto.FLOAT)]
    model = make_model(nodes, [tensor("x", ["N"])], [tensor("y", None)])
    session = device.session(model, route="kernels")
    for x in ([1, 0, 2], [0, 0, 3], [1, 1, 1]):
        _check(session, model, {"x": np.array(x, np.float32)})


@pytest.mark.parametrize("case", CONTROL_CASES, ids=lambda case: case.name)
def test_control_flow_moves_memory_of_the_device(case: ControlCase, device: DeviceInOrt) -> None:
    session = device.session(case.model, route="kernels")
    assert assigned(session) == {EP: sorted((*case.whole, *case.inside))}
    for feeds in case.feeds:
        _check(session, case.model, feeds)


def test_channels_last_on_a_device(device: DeviceInOrt) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("GlobalMaxPool", ["b"], ["y"])]
    model = make_model(nodes, [tensor("x", ["N", 3, 6, 6])], [tensor("y", None)], {"w": _floats(2, 3, 3, 3)}, opset=18)
    for route in ("compile", "kernels"):
        session = device.session(model, route=route, prefer_nhwc="1")
        assert assigned(session)[EP].count("Transpose") == 2, "around what was rewritten"
        _check(session, model, {"x": _floats(2, 3, 6, 6)})
