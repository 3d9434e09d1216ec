"""Small models from text for the tests of passes, and a check that a pass leaves their numbers as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import numpy_helper, parser

from dovetail.network.importer.importer import import_model
from dovetail.passes.base import Pass, run_passes
from dovetail.passes.clone import clone_model
from tests.support.transformers_models import run_onnxruntime


def make(text: str, opset: int = 20, **weights: Any) -> ir.Model:
    """A model from the text of a graph, with these weights besides those in the text."""
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n' + text)
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return import_model(proto)


def ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def sample_inputs(model: ir.Model, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    """Arrays for the inputs of a model; open dims are 3 unless ``sizes`` says otherwise."""
    chance = np.random.default_rng(9)
    arrays = {}
    for value in model.graph.inputs:
        assert value.dtype is not None
        dims = [dim if isinstance(dim, int) else (sizes or {}).get(str(dim), 3) for dim in value.shape or ()]
        numbers = chance.standard_normal(dims) * 2
        arrays[value.name or ""] = np.asarray(numbers).astype(value.dtype.numpy())
    return arrays


def check_numbers(
    model: ir.Model,
    passes: Sequence[Pass],
    *,
    tolerance: float | None = 1e-5,
    sizes: dict[str, int] | None = None,
) -> list[str]:
    """Run passes on a model and compare ONNX Runtime's results before and after; what changed comes back."""
    inputs = sample_inputs(model, sizes)
    before = run_onnxruntime(clone_model(model), inputs)
    changed = run_passes(model, passes, check=True).changed
    for one, two in zip(before, run_onnxruntime(model, inputs), strict=True):
        if tolerance is None:
            np.testing.assert_array_equal(one, two)
        else:
            np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)
    return changed
