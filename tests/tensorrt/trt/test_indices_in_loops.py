"""Indices out of range fail a run in the same way in the body of a loop or conditional as outside of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages

PLACES = ["outside", "loop", "iterator", "conditional"]
MODES = ["gather", "gather nd", "gather elements", "scatter nd", "scatter elements"]
SHAPES = {"gather": (1,), "gather nd": (1, 1), "scatter nd": (1, 1)}


def _constant(network: Any, array: Any) -> Any:
    values = np.ascontiguousarray(array)
    return network.add_constant(np.shape(array), values).get_output(0)


def _apply(network: Any, mode: str, data: Any, indices: Any) -> Any:
    if mode == "gather":
        return network.add_gather(data, indices, 0).get_output(0)
    kind = "ND" if mode.endswith("nd") else "ELEMENT"
    if mode.startswith("gather"):
        return network.add_gather_v2(data, indices, trt.GatherMode[kind]).get_output(0)
    updates = _constant(network, np.ones((1, 4), np.float32))
    return network.add_scatter(data, indices, updates, trt.ScatterMode[kind]).get_output(0)


def _add(network: Any, mode: str, place: str) -> Any:
    x = network.add_input("x", trt.float32, (4, 4))
    indices = network.add_input("i", trt.int32, SHAPES.get(mode, (1, 4)))
    if place == "outside":
        return _apply(network, mode, x, indices)
    if place == "conditional":
        conditional = network.add_if_conditional()
        conditional.set_condition(_constant(network, np.array(True)))
        result = _apply(network, mode, conditional.add_input(x).get_output(0), indices)
        return conditional.add_output(result, result).get_output(0)
    loop, count = network.add_loop(), _constant(network, np.array(2, np.int32))
    loop.add_trip_limit(count, trt.TripLimit.COUNT)
    if place == "iterator":
        shuffle = network.add_shuffle(x)
        shuffle.reshape_dims = (1, 4, 4)
        pair = network.add_concatenation([shuffle.get_output(0)] * 2).get_output(0)
        result = _apply(network, mode, loop.add_iterator(pair).get_output(0), indices)
        output = loop.add_loop_output(result, trt.LoopOutput.CONCATENATE)
        output.set_input(1, count)
        return output.get_output(0)
    recurrence = loop.add_recurrence(x)
    data = recurrence.get_output(0)
    sum_ = trt.ElementWiseOperation.SUM
    recurrence.set_input(1, network.add_elementwise(_apply(network, mode, data, indices), data, sum_).get_output(0))
    return loop.add_loop_output(data, trt.LoopOutput.LAST_VALUE).get_output(0)


def _run(mode: str, place: str, index: int, providers: Any) -> tuple[bool, list[str]]:
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    y = _add(network, mode, place)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.providers = providers
    context = builder.build_engine_with_config(network, config).create_execution_context()
    x, indices = np.ones((4, 4), np.float32), np.full(SHAPES.get(mode, (1, 4)), index, np.int32)
    result = np.zeros(256, np.float32)
    for name, array in (("x", x), ("i", indices), ("y", result)):
        context.set_tensor_address(name, array.ctypes.data)
    return context.execute_async_v3(0), logger.errors


@pytest.mark.parametrize("providers", [None, ["cpu"]])
@pytest.mark.parametrize("mode", MODES)
def test_an_index_out_of_range_fails_the_run_wherever_the_layer_is(mode: str, providers: Any) -> None:
    for index in (4, -5):
        codes = set()
        for place in PLACES:
            is_done, errors = _run(mode, place, index, providers)
            assert not is_done, (place, index)
            codes.add(errors[0].partition(" (")[0])
        assert len(codes) == 1, codes


@pytest.mark.parametrize("place", PLACES)
def test_an_index_in_range_runs(place: str) -> None:
    for index in (3, -4):
        assert _run("gather", place, index, None) == (True, [])


@pytest.mark.parametrize("providers", [None, ["cpu"]])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_an_iterator_over_too_few_slices_fails_the_run(is_reversed: bool, providers: Any) -> None:
    logger = KeptMessages()
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (4, 2))
    loop = network.add_loop()
    loop.add_trip_limit(_constant(network, np.array(5, np.int32)), trt.TripLimit.COUNT)
    total = loop.add_recurrence(_constant(network, np.zeros(2, np.float32)))
    part = loop.add_iterator(x, 0, is_reversed).get_output(0)
    sum_ = trt.ElementWiseOperation.SUM
    total.set_input(1, network.add_elementwise(total.get_output(0), part, sum_).get_output(0))
    network.mark_output(loop.add_loop_output(total.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0))
    config = builder.create_builder_config()
    config.providers = providers
    context = builder.build_engine_with_config(network, config).create_execution_context()
    x_array, y = np.ones((4, 2), np.float32), np.zeros(2, np.float32)
    assert not context.execute_v2([x_array.ctypes.data, y.ctypes.data])
    assert logger.errors
