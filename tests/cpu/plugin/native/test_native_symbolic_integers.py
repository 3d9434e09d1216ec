"""Dimension expressions that C++ plugins build, against Python's integers, in plans and at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import dovetail as dt
from dovetail.expr import Symbol, decode_expr, encode_expr, evaluate, interval
from dovetail.plugin.libraries import PluginLibrary
from dovetail.plugin.registry import get_plugin_registry
from tests.support.native_libraries import Compile
from tests.support.plugins import build_engine
from tests.support.symbolic_integers import (
    OPERATIONS,
    RANGES,
    Implementation,
    Tree,
    check_bounds,
    check_values,
    list_values,
    trees,
)

CONTRACT = tuple(name for name in OPERATIONS if name != "mod")
DIMS = {name: f"d{index}" for index, name in enumerate(RANGES)}


@pytest.fixture(scope="module")
def library(compile_library: Compile) -> Iterator[PluginLibrary]:
    registry = get_plugin_registry()
    loaded = registry.load_library(compile_library("formula"))
    yield loaded
    registry.deregister_library(loaded)


def _make(library: PluginLibrary, program: str) -> Any:
    fields = [dt.PluginField("program", program.encode(), dt.PluginFieldType.CHAR)]
    return library.creators[0].create_plugin("p", dt.PluginFieldCollection(fields), dt.TensorRTPhase.BUILD)


def _join(operation: str) -> Any:
    number = int(dt.DimensionOperation[operation.upper()])
    return lambda first, second: f"{first} {second} o{number}"


def _make_implementation(library: PluginLibrary) -> Implementation:
    @cache
    def build(program: str) -> Any:
        plugin = _make(library, program)
        capability = plugin.get_capability_interface(dt.PluginCapabilityType.BUILD)
        dims = dt.DimsExprs([Symbol(name) for name in RANGES])
        (shape,) = capability.get_output_shapes([dims], [], dt.IExprBuilder())
        return shape[0]

    def compute(program: str, values: Mapping[str, int]) -> int:
        return evaluate(decode_expr(encode_expr(build(program))), values)

    return Implementation(
        symbols=DIMS,
        operations={name: _join(name) for name in CONTRACT},
        constant=str,
        evaluate=compute,
        bounds=lambda program: interval(build(program), RANGES),
    )


@given(trees(CONTRACT, max_leaves=6))
@settings(max_examples=40, deadline=None)
def test_formulas(library: PluginLibrary, tree: Tree) -> None:
    implementation = _make_implementation(library)
    program = check_values(tree, implementation)
    if any(value is not None for _, value in list_values(tree)):  # elsewhere a constant is divided by zero
        check_bounds(tree, program, implementation)


def test_a_sum_of_many_dimensions_is_read_again(library: PluginLibrary) -> None:
    program = "d0" + " d0 o0" * 600
    implementation = _make_implementation(library)
    assert implementation.evaluate(program, {"n": 3, "value_m_0": 0}) == 3 * 601


@pytest.mark.parametrize(
    ("program", "size"),
    [
        ("0 d0 o4 -2 o7", lambda n: -n // -2),
        ("10 d0 o4", lambda n: 10 - n),
        ("0 d0 o4 -3 o8", lambda n: -(n // -3)),
        ("24 9 d0 o4 o7", lambda n: 24 // (9 - n)),
    ],
)
def test_memory_covers_the_whole_profile(library: PluginLibrary, program: str, size: Any) -> None:
    plan, runtime = build_engine(
        _make(library, program), library.creators[0], shape=(-1, 2), profile=((4, 2), (5, 2), (8, 2))
    )
    engine = runtime.deserialize_cuda_engine(plan)
    for n in range(4, 9):
        np.testing.assert_array_equal(np.asarray(engine(np.zeros((n, 2), np.float32))), np.arange(size(n)))
