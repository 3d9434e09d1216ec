"""BERT, GPT-2, ViT and Llama as users export them: how many nodes the fusions leave, and that the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dovetail.passes import PASS_NAMES, fusion_passes, standard_passes
from dovetail.passes.base import run_passes
from dovetail.provider.loader import get_provider
from dovetail.provider.origins import find_layers
from tests.support.transformers_models import (
    FAMILIES,
    FUSED,
    NAMES,
    assert_close,
    count_ops,
    expected,
    load,
    make_inputs,
    run_kernels,
    run_onnxruntime,
    shapes_of,
)

NONE = frozenset[str]()
FUSIONS = ("layer_normalization", "gelu", "rms_normalization", "rotary_embedding", "attention", "matmul_add")
RESULT = {
    "gelu": "Gelu",
    "layer_normalization": "LayerNormalization",
    "rms_normalization": "RMSNormalization",
    "rotary_embedding": "RotaryEmbedding",
    "attention": "Attention",
}


def accepts(op: str, domain: str, opset: int) -> bool:
    return get_provider("cpu").kernels.find(op, domain, opset) is not None


def clean(name: str, **options: Any) -> ir.Model:
    model = load(name)
    run_passes(model, standard_passes(keep=NONE, **options), check=True)
    return model


def fuse(model: ir.Model, **options: Any) -> list[str]:
    options = {"keep": NONE, "accepts": accepts, **options}
    return run_passes(model, fusion_passes(**options), check=True).changed


@pytest.mark.parametrize("name", NAMES)
def test_the_counts(name: str) -> None:
    model = clean(name)
    fuse(model)
    counts = count_ops(model)
    family = name.split("_")[0]
    assert {op: counts[op] for op in FUSED[family]} == FUSED[family]
    assert not {"Softmax", "Erf", "Pow", "ReduceMean", "IsNaN"} & counts.keys()
    tanh_of_the_pooler = 0 if family in ("gpt2", "llama") else 1
    assert counts["Tanh"] == tanh_of_the_pooler
    # Queries and keys are turned with heads on an axis of their own; all others go in with heads side by side.
    assert counts["Transpose"] == {"bert": 0, "gpt2": 0, "vit": 1, "llama": 8}[family]


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_on_onnxruntime(name: str) -> None:
    model = clean(name)
    fuse(model)
    for batch, sequence in shapes_of(name):
        inputs = make_inputs(name, batch, sequence)
        assert_close(expected(name, batch, sequence), run_onnxruntime(model, inputs))


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_on_the_reference_kernels(name: str) -> None:
    model = clean(name)
    fuse(model)
    for batch, sequence in shapes_of(name):
        inputs = make_inputs(name, batch, sequence)
        assert_close(expected(name, batch, sequence), run_kernels(model, inputs))


@pytest.mark.parametrize("name", NAMES)
def test_cleaning_alone(name: str) -> None:
    before, model = load(name), clean(name)
    assert len(model.graph) <= len(before.graph)
    assert "Softmax" in count_ops(model)
    for batch, sequence in shapes_of(name):
        inputs = make_inputs(name, batch, sequence)
        assert_close(expected(name, batch, sequence), run_onnxruntime(model, inputs))


@pytest.mark.parametrize("family", FAMILIES)
def test_open_shapes_are_as_clean_as_fixed_ones(family: str) -> None:
    """What is left of computing shapes at run time makes masks and positions, not the shapes of layers."""
    model = clean(f"{family}_dynamic")
    fuse(model)
    for node in model.graph:
        if node.op_type == "Reshape" and node.outputs[0].dtype == ir.DataType.FLOAT and family != "gpt2":
            shape = node.inputs[1]
            assert shape is not None
            assert shape.is_initializer()


@pytest.mark.parametrize("name", ["bert_opset18", "gpt2_dynamic", "vit_static", "llama_dynamic"])
@pytest.mark.parametrize("alone", FUSIONS)
def test_each_fusion_alone(name: str, alone: str) -> None:
    model = clean(name)
    before = count_ops(model)
    changed = fuse(model, off=[other for other in FUSIONS if other != alone])
    assert all(line.startswith((alone, "dead_code")) for line in changed)
    after = count_ops(model)
    for other, op in RESULT.items():
        if other != alone:
            assert after[op] == before[op]
    inputs = make_inputs(name)
    assert_close(expected(name), run_onnxruntime(model, inputs))


@pytest.mark.parametrize("name", ["bert_opset18", "gpt2_dynamic", "llama_dynamic"])
@pytest.mark.parametrize("off", PASS_NAMES)
def test_each_pass_switched_off(name: str, off: str) -> None:
    model = load(name)
    changed = run_passes(model, standard_passes(keep=NONE, off=[off]), check=True).changed
    changed += fuse(model, off=[off])
    assert not any(line.startswith(f"{off}:") for line in changed)
    inputs = make_inputs(name)
    assert_close(expected(name), run_onnxruntime(model, inputs))


@pytest.mark.parametrize("name", ["bert_static", "llama_dynamic"])
def test_all_switched_off_changes_nothing(name: str) -> None:
    model = load(name)
    before = [node.op_type for node in model.graph]
    assert run_passes(model, standard_passes(keep=NONE, off=PASS_NAMES)).changed == []
    assert fuse(model, off=PASS_NAMES) == []
    assert [node.op_type for node in model.graph] == before


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_finds_nothing(name: str) -> None:
    model = clean(name)
    fuse(model)
    assert fuse(model) == []


@pytest.mark.parametrize("name", ["bert_dynamic", "gpt2_dynamic", "vit_dynamic", "llama_dynamic"])
def test_weights_to_keep_are_the_same_afterwards(name: str) -> None:
    before = load(name)
    keep = frozenset(key for key, value in before.graph.initializers.items() if value.dtype == ir.DataType.FLOAT)
    model = load(name)
    run_passes(model, standard_passes(keep=keep), check=True)
    fuse(model, keep=keep)
    assert len(keep) > 20
    for key in keep:
        old, new = before.graph.initializers[key].const_value, model.graph.initializers[key].const_value
        assert old is not None
        assert new is not None
        np.testing.assert_array_equal(old.numpy(), new.numpy())
    inputs = make_inputs(name)
    assert_close(expected(name), run_onnxruntime(model, inputs))


def test_nothing_is_fused_for_a_provider_without_the_operators() -> None:
    model = clean("bert_dynamic")
    before = [node.op_type for node in model.graph]
    assert fuse(model, accepts=lambda op, domain, opset: False) == []
    assert [node.op_type for node in model.graph] == before


def test_only_nodes_of_the_share_are_fused() -> None:
    model = clean("llama_dynamic")
    nodes = list(model.graph)
    second_half = set(nodes[len(nodes) // 2 :])
    fuse(model, within=lambda node: node in second_half)
    counts = count_ops(model)
    assert 0 < counts["RMSNormalization"] < 5
    assert counts["Attention"] == 1
    inputs = make_inputs("llama_dynamic")
    assert_close(expected("llama_dynamic"), run_onnxruntime(model, inputs))


def test_new_nodes_belong_to_the_provider_of_the_old() -> None:
    model = clean("llama_dynamic")
    for node in model.graph:
        node.metadata_props["dovetail.provider"] = "cpu"
    old = {node.name for node in model.graph}
    fuse(model)
    new = [node for node in model.graph if node.name not in old]
    assert new
    assert all(node.metadata_props["dovetail.provider"] == "cpu" for node in new)
    fused = next(node for node in new if node.op_type == "Attention")
    assert fused.name is not None
    assert fused.name.endswith("+attention")
    assert len(find_layers(fused)) > 1
