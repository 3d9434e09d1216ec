"""Flags of weakly typed networks: ordinary layers take the types that they allow, and layers in fp32 stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import decode_manifest
from tests.support.typed import Log

WEIGHTS = np.random.default_rng(0).uniform(-0.5, 0.5, (8, 8)).astype(np.float32)


def _build(*flags: Any, wide: str = "", ranges: bool = False, strongly_typed: bool = False) -> tuple[Any, Log]:
    log = Log()
    builder = dt.Builder(log)
    network = builder.create_network(strongly_typed=strongly_typed)
    tensor = network.add_input("x", dt.float32, (4, 8))
    for name in ("first", "second"):
        weights = network.add_constant((8, 8), dt.Weights(WEIGHTS)).get_output(0)
        if ranges:
            tensor.dynamic_range = (-2.0, 2.0)
        layer = network.add_matrix_multiply(tensor, dt.MatrixOperation.NONE, weights, dt.MatrixOperation.NONE)
        layer.name = name
        if name == wide:
            layer.precision = dt.float32
        tensor = layer.get_output(0)
        tensor.name = f"{name}_output"
    network.mark_output(tensor)
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(flag)
    return builder.build_serialized_network(network, config), log


def _types(plan: Any) -> dict[str, str]:
    return {row.layer: row.type for row in decode_manifest(PlanFile.from_bytes(plan).manifest).precision}


def _error(plan: Any) -> float:
    x = np.random.default_rng(1).uniform(-1, 1, (4, 8)).astype(np.float32)
    found = dt.Runtime().deserialize_cuda_engine(plan)(x)
    return float(np.abs(found - x @ WEIGHTS @ WEIGHTS).max())


def test_a_flag_gives_ordinary_layers_the_type() -> None:
    plan, log = _build(dt.BuilderFlag.FP16)
    assert _types(plan) == {"first": "fp16", "second": "fp16"}
    assert 0 < _error(plan) < 5e-3
    assert "has no effect" not in log


def test_a_layer_whose_precision_is_fp32_stays() -> None:
    plan, log = _build(dt.BuilderFlag.FP16, wide="second")
    assert _types(plan) == {"first": "fp16", "second": "fp32"}
    assert "has no effect" not in log


def test_int8_takes_the_ranges_of_tensors() -> None:
    plan, _ = _build(dt.BuilderFlag.INT8, ranges=True)
    assert _types(plan) == {"first": "int8", "second": "int8"}
    assert 0 < _error(plan) < 0.1


@pytest.mark.parametrize("flags", [(), (dt.BuilderFlag.FP16,)])
def test_strongly_typed_networks_are_left_as_they_are(flags: Any) -> None:
    plan, _ = _build(*flags, strongly_typed=True)
    assert _types(plan) == {}


def _build_asked(dtype: Any, *flags: Any, output: bool = False) -> tuple[Any, Log]:
    log = Log()
    builder = dt.Builder(log)
    network = builder.create_network(strongly_typed=False)
    weights = network.add_constant((8, 8), dt.Weights(WEIGHTS)).get_output(0)
    tensor = network.add_input("x", dt.float32, (4, 8))
    layer = network.add_matrix_multiply(tensor, dt.MatrixOperation.NONE, weights, dt.MatrixOperation.NONE)
    layer.name = "product"
    if output:
        layer.set_output_type(0, dtype)
    else:
        layer.precision = dtype
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    for flag in (dt.BuilderFlag.FP16, *flags):
        config.set_flag(flag)
    return builder.build_serialized_network(network, config), log


def test_constraints_make_another_type_an_error_or_a_warning() -> None:
    with pytest.raises(dt.BuildError, match=r"layer 'product' is to have bf16 and has fp16(.|\n)*no flag allows bf16"):
        _build_asked(dt.bfloat16, dt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    plan, log = _build_asked(dt.bfloat16, dt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
    assert _types(plan) == {"product": "fp16"}
    assert "layer 'product' is to have bf16 and has fp16" in log
    plan, log = _build_asked(dt.float16, dt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    assert _types(plan) == {"product": "fp16"}
    assert "has no effect" not in log


def test_an_output_type_of_fp32_keeps_its_layer() -> None:
    plan, log = _build_asked(dt.float32, dt.BuilderFlag.INT8, output=True)
    assert _types(plan).get("product", "fp32") == "fp32"
    assert "set_output_type" not in log
