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
from dovetail.provider.interfaces import BorderValue
from dovetail.provider.type_names import onnx_type_from_dtype
from dovetail_openvino.device import FORBIDDEN

__all__ = ["describe", "split_partition"]

_INLINE_BYTES: Final = 1024
"""Weights below this stand in the graph: shapes, axes and scalars."""
_INT32: Final = np.iinfo(np.int32)


def split_partition(model: ir.Model, keep: frozenset[str]) -> tuple[bytes, dict[str, Any]]:
    """The graph with inputs in place of large weights and those to keep, and these weights; the model is changed.

    What only bodies read stays in the graph: as an input of a body OpenVINO would not know that it is constant.
    """
    common.LiftConstantsToInitializersPass(lift_all_constants=True)(model)
    common.ClearMetadataAndDocStringPass()(model)
    graph = model.graph
    weights: dict[str, Any] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None:
            _check_range(value, tensor.numpy())
            is_outside = tensor.nbytes >= _INLINE_BYTES and any(use.node.graph is graph for use in value.uses())
            if name in keep or is_outside:
                weights[name] = np.ascontiguousarray(tensor.numpy()).reshape(tensor.shape.numpy())
                del graph.initializers[name]
                graph.inputs.append(value)
    payload = ir.to_proto(model).SerializeToString(deterministic=True)
    if FORBIDDEN in payload:
        raise ProviderError(f"a name has '{FORBIDDEN.decode()}' in it, which no partition for OpenVINO may have")
    return payload, weights


def _check_range(value: ir.Value, numbers: Any) -> None:
    """Refuse weights of 64 bits that do not fit 32, in which OpenVINO computes; limits of a Slice may be any."""
    is_limit = all(use.node.op_type == "Slice" for use in value.uses())
    if value.dtype != ir.DataType.INT64 or not numbers.size or is_limit:
        return
    if not _INT32.min <= numbers.min() <= numbers.max() <= _INT32.max:
        raise ProviderError(f"OpenVINO computes in 32 bits, and weight '{value.name}' has larger numbers")


def describe(values: Iterable[ir.Value]) -> list[BorderValue]:
    """What is known of the inputs or outputs of a partition."""
    return [BorderValue(type=onnx_type_from_dtype(value.dtype.numpy().name), dims=_dims(value)) for value in values]


def _dims(value: ir.Value) -> tuple[int | None, ...] | None:
    return None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)
