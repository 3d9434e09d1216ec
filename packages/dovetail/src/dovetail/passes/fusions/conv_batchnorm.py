"""Folds a batch normalization into the convolution before it: the same numbers with one layer less.

With s = gamma / sqrt(variance + epsilon), one factor for each output channel, the weights become w * s and the bias
becomes (b - mean) * s + beta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import onnx_ir as ir

from dovetail.passes._graph import (
    Array,
    add_initializer,
    constant_array,
    is_onnx,
    layer_name,
    names_in,
    opset_of,
    replace_output,
    walk_graphs,
)
from dovetail.passes.base import Pass, PassResult
from dovetail.provider.origins import note_origins

__all__ = ["ConvBatchNorm"]

_FIRST_OPSET: Final = 9
"""Before it, normalization could be per element, and inference had to be asked for."""


@dataclass(frozen=True)
class _Match:
    conv: ir.Node
    norm: ir.Node
    weights: Array
    bias: Array | None
    gamma: Array
    beta: Array
    mean: Array
    variance: Array

    @property
    def scale(self) -> Array:
        """One factor for each output channel, in double precision."""
        attribute = self.norm.attributes.get("epsilon")
        epsilon = 1e-5 if attribute is None else attribute.as_float()
        return np.asarray(self.gamma.astype(np.float64) / np.sqrt(self.variance.astype(np.float64) + epsilon))


class ConvBatchNorm(Pass):
    """Replaces Conv or ConvTranspose followed by BatchNormalization by one node.

    Args:
        keep: Names of initializers that stay as they are, because they may be refitted.
    """

    name: ClassVar[str] = "conv_batchnorm"

    def __init__(self, *, keep: frozenset[str] = frozenset()) -> None:
        self._keep = keep

    def call(self, model: ir.Model) -> PassResult:
        """Fold every pair that has constant weights and no other user in between."""
        changed = []
        taken = names_in(model)
        for graph in walk_graphs(model.graph):
            for node in list(graph):
                match = self._match(model, node)
                if match is not None:
                    changed.append(f"folded '{layer_name(match.norm)}' into '{layer_name(match.conv)}'")
                    _fold(graph, match, taken)
        return PassResult(model=model, changed=changed)

    def _match(self, model: ir.Model, norm: ir.Node) -> _Match | None:
        if not is_onnx(norm, "BatchNormalization") or not _is_inference(norm, opset_of(model, norm)):
            return None
        conv = _convolution_before(norm)
        if conv is None:
            return None
        given = conv.inputs[2] if len(conv.inputs) > 2 else None
        bias = constant_array(given, self._keep)
        weights = constant_array(conv.inputs[1], self._keep)
        numbers = [array for value in norm.inputs[1:5] if (array := constant_array(value, self._keep)) is not None]
        if weights is None or (bias is None and given is not None) or len(numbers) != 4:
            return None
        channels = weights.shape[0] if conv.op_type == "Conv" else weights.shape[1] * _groups(conv)
        if any(array.shape != (channels,) for array in numbers):
            return None
        return _Match(conv, norm, weights, bias, *numbers)


def _convolution_before(norm: ir.Node) -> ir.Node | None:
    """The convolution that nothing but this node reads."""
    between = norm.inputs[0]
    conv = None if between is None else between.producer()
    if between is None or conv is None or conv.graph is not norm.graph:
        return None
    is_private = not between.is_graph_output() and len(between.uses()) == 1
    return conv if is_private and is_onnx(conv, "Conv", "ConvTranspose") else None


def _groups(conv: ir.Node) -> int:
    attribute = conv.attributes.get("group")
    return 1 if attribute is None else attribute.as_int()


def _is_inference(norm: ir.Node, opset: int) -> bool:
    """Whether a normalization uses its own statistics; in training it computes new ones."""
    mode = norm.attributes.get("training_mode")
    return opset >= _FIRST_OPSET and len(norm.outputs) == 1 and (mode is None or mode.as_int() == 0)


def _fold(graph: ir.Graph, match: _Match, taken: set[str]) -> None:
    conv, norm = match.conv, match.norm
    old = conv.inputs[1]
    name = "weights" if old is None else old.name
    dtype = ir.DataType.from_numpy(match.weights.dtype)
    weights = add_initializer(graph, f"{name}_folded", _scaled_weights(match), dtype, taken)
    bias = add_initializer(graph, f"{name}_folded_bias", _shifted_bias(match), dtype, taken)
    new = ir.Node(
        conv.domain,
        conv.op_type,
        [conv.inputs[0], weights, bias],
        list(conv.attributes.values()),
        num_outputs=1,
        name=conv.name,
        doc_string=conv.doc_string,
        metadata_props={**norm.metadata_props, **conv.metadata_props},
    )
    note_origins(new, [conv, norm], ConvBatchNorm.name)
    new.meta.update({**norm.meta, **conv.meta})
    graph.insert_before(norm, new)
    replace_output(norm.outputs[0], new.outputs[0])
    graph.remove([norm, conv], safe=True)


def _scaled_weights(match: _Match) -> Array:
    weights, scale = match.weights, match.scale
    if match.conv.op_type == "Conv":  # [out, in / group, ...]
        factors = scale.reshape(-1, *[1] * (weights.ndim - 1))
        return np.asarray((weights.astype(np.float64) * factors).astype(weights.dtype))
    groups = _groups(match.conv)  # [in, out / group, ...], the groups one after the other
    split = weights.astype(np.float64).reshape(groups, -1, *weights.shape[1:])
    factors = scale.reshape(groups, 1, -1, *[1] * (weights.ndim - 2))
    return np.asarray((split * factors).reshape(weights.shape).astype(weights.dtype))


def _shifted_bias(match: _Match) -> Array:
    bias = np.zeros_like(match.scale) if match.bias is None else match.bias.astype(np.float64)
    shifted = (bias - match.mean.astype(np.float64)) * match.scale + match.beta.astype(np.float64)
    return np.asarray(shifted.astype(match.weights.dtype))
