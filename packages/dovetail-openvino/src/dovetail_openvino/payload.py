"""Partitions as plans store them: ONNX without its weights.

ONNX, and not what OpenVINO compiles it into: that fits one processor and one version of OpenVINO only, and would hold
the weights a second time. Nor OpenVINO's own format, which drops the names of weights, so that none could be replaced
later. Compiling takes place when a plan is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import TensorSpec
from dovetail_openvino.device import FORBIDDEN, find_wide

__all__ = ["describe", "split_partition"]

_INLINE_BYTES: Final = 1024
"""Weights below this stand in the graph: shapes, axes and scalars."""


def split_partition(model: ir.Model, keep: frozenset[str]) -> tuple[bytes, dict[str, Any]]:
    """The graph with inputs in place of large weights and those to keep, and these weights; the model is changed.

    What only bodies read stays in the graph: as an input of a body OpenVINO would not know that it is constant.
    """
    common.LiftConstantsToInitializersPass(lift_all_constants=True)(model)
    common.ClearMetadataAndDocStringPass()(model)
    graph = model.graph
    weights: dict[str, Any] = {}
    for value in [value for part in (graph, *graph.subgraphs()) for value in part.initializers.values()]:
        array, name = _read(value), str(value.name)
        is_read_here = value.graph is graph and any(use.node.graph is graph for use in value.uses())
        if name in keep or (is_read_here and array.nbytes >= _INLINE_BYTES):
            weights[name] = np.ascontiguousarray(array).reshape(array.shape)
            del graph.initializers[name]
            graph.inputs.append(value)
    payload = ir.to_proto(model).SerializeToString(deterministic=True)
    if FORBIDDEN in payload:
        raise ProviderError(f"a name has '{FORBIDDEN.decode()}' in it, which no partition for OpenVINO may have")
    return payload, weights


def _read(value: ir.Value) -> Any:
    """The numbers of a weight, which must fit 32 bits; limits of a Slice may be any."""
    if value.const_value is None:
        raise ProviderError(f"weight '{value.name}' has no numbers yet")
    array, is_limit = value.const_value.numpy(), all(use.node.op_type == "Slice" for use in value.uses())
    if value.dtype == ir.DataType.INT64 and not is_limit and find_wide(array) is not None:
        raise ProviderError(f"OpenVINO computes in 32 bits, and weight '{value.name}' has larger numbers")
    return array


def describe(values: Iterable[ir.Value]) -> list[TensorSpec]:
    """What is known of the inputs or outputs of a partition."""
    return [TensorSpec.of(value.dtype.numpy().name, _sizes(value)) for value in values if value.dtype is not None]


def _sizes(value: ir.Value) -> tuple[int | None, ...] | None:
    return None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
