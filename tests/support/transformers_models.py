"""The tiny exports under tests/data/models: their names, inputs for them, and ways to run a model."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.network.importer.importer import import_model
from dovetail.passes.clone import clone_model
from dovetail.provider.loader import get_provider
from tests.support.single_kernels import load_kernel

FOLDER = Path(__file__).parents[1] / "data" / "models"
FAMILIES = ("bert", "gpt2", "vit", "llama")
STATIC = tuple(f"{family}_static" for family in FAMILIES)
OPEN = (*(f"{family}_{kind}" for family in FAMILIES for kind in ("dynamic", "eager")), "bert_opset18")
NAMES = STATIC + OPEN

FUSED = {
    "bert": {"Attention": 2, "Gelu": 2, "LayerNormalization": 5},
    "gpt2": {"Attention": 2, "Gelu": 2, "LayerNormalization": 5},
    "vit": {"Attention": 2, "Gelu": 2, "LayerNormalization": 5},
    "llama": {"Attention": 2, "RMSNormalization": 5, "RotaryEmbedding": 4},
}
"""How many nodes of which fused operators the two layers of a family come to."""

Arrays = dict[str, Any]


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.onnx"


@cache
def _imported(name: str) -> ir.Model:
    return import_model(path_of(name))


def load(name: str) -> ir.Model:
    """A model of one's own, imported."""
    return clone_model(_imported(name))


@cache
def expected(name: str, batch: int = 2, sequence: int = 8) -> list[Any]:
    """What ONNX Runtime makes of the file as it is."""
    return run_onnxruntime(path_of(name), make_inputs(name, batch, sequence))


def make_inputs(name: str, batch: int = 2, sequence: int = 8) -> Arrays:
    """Inputs of a model; the last sample is padded at its end."""
    chance = np.random.default_rng(3)
    if name.startswith("vit"):
        return {"pixel_values": chance.standard_normal((batch, 3, 32, 32)).astype(np.float32)}
    mask = np.ones((batch, sequence), dtype=np.int64)
    mask[-1, max(1, sequence - 3) :] = 0
    return {"input_ids": chance.integers(0, 50, (batch, sequence)), "attention_mask": mask}


def shapes_of(name: str) -> list[tuple[int, int]]:
    """Batches and sequences to try: the exported ones, and others where they are open."""
    return [(2, 8)] if name in STATIC else [(2, 8), (1, 5), (3, 1)]


def run_onnxruntime(model: ir.Model | Path, inputs: Arrays) -> list[Any]:
    """What ONNX Runtime makes of a model as it is: its own fusions change last digits, and of Q/DQ pairs more."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def run_kernels(model: ir.Model, inputs: Arrays) -> list[Any]:
    """What the kernels of the `cpu` provider make of a model, node by node."""
    provider = get_provider("cpu")
    arrays: dict[ir.Value, Any] = {value: inputs[value.name or ""] for value in model.graph.inputs}
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        arrays[value] = value.const_value.numpy()
    for node in model.graph:
        given = [None if value is None else arrays[value] for value in node.inputs]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        types = [None if array is None else array.dtype.name for array in given]
        opset, count = model.opset_imports[""], len(node.outputs)
        step = load_kernel(provider, node.op_type, opset, attributes, types, domain=node.domain, num_outputs=count)
        results = step(*given)
        results = results if isinstance(results, tuple) else (results,)
        arrays.update(zip(node.outputs, results, strict=False))
    return [arrays[value] for value in model.graph.outputs]


def count_ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


def assert_close(first: list[Any], second: list[Any], tolerance: float = 2e-5) -> None:
    for one, two in zip(first, second, strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
