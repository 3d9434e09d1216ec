"""Numbers for the inputs of small models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

__all__ = ["make_inputs"]


def make_inputs(model: onnx.ModelProto) -> list[Any]:
    """Normal numbers, and small whole ones that are indices of anything with four elements."""
    rng, made = np.random.default_rng(2), []
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value for dim in kind.shape.dim]
        is_integer = np.issubdtype(dtype, np.integer)
        made.append((rng.integers(1, 4, shape) if is_integer else rng.standard_normal(shape)).astype(dtype))
    return made
