"""Written-out layer normalization becomes one node: (x - mean) / sqrt(variance + epsilon) * scale + bias."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import onnx_ir as ir

from dovetail.passes._match import dims_of, one_reader, same_dims
from dovetail.passes.fusions._pattern_fusion import Bindings, NormalizationFusion, Target, deviation, either

__all__ = ["LayerNormalizationFusion"]


class LayerNormalizationFusion(NormalizationFusion):
    """Replaces what exporters write for opsets before 17, and what is written by hand."""

    name: ClassVar[str] = "layer_normalization"
    op: ClassVar[str] = "LayerNormalization"
    since: ClassVar[int] = 17

    def targets(self) -> Sequence[Target]:
        """A quotient, or a product with the reciprocal in either order."""
        return [_divide, _multiply, _multiply_other_way]

    def fits(self, bound: Bindings) -> bool:
        """Whether the mean and the variance are taken over the same axes."""
        x: ir.Value = bound["x"]
        first, second = bound["mean"].producer(), bound["spread"].producer()
        axis = self._axis_of(first, x)
        return axis is not None and axis == self._axis_of(second, x)

    def extend(
        self, scale: ir.Node, inputs: tuple[ir.Value | None, ...], axis: int
    ) -> tuple[ir.Node, tuple[ir.Value | None, ...]]:
        """With the bias, when one follows."""
        weights = inputs[1]
        add = one_reader(scale.outputs[0], "Add")
        if add is None or weights is None:
            return scale, inputs
        bias = add.inputs[1] if add.inputs[0] is scale.outputs[0] else add.inputs[0]
        if bias is None or not same_dims(dims_of(bias), dims_of(weights)) or bias.dtype != weights.dtype:
            return scale, inputs
        return add, (*inputs, bias)


def _centre(op: Any, x: Any) -> Any:
    return op.Sub(x, op.ReduceMean(x, _allow_other_inputs=True, _outputs=["mean"]))


def _divide(op: Any, x: Any, exponent: Any, epsilon: Any) -> Any:
    centred = _centre(op, x)
    return op.Div(centred, deviation(op, centred, exponent, epsilon))


def _inverse(op: Any, centred: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    root = deviation(op, centred, exponent, epsilon)
    return either(op.Reciprocal(root), op.Div(one, root))


def _multiply(op: Any, x: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    centred = _centre(op, x)
    return op.Mul(centred, _inverse(op, centred, exponent, epsilon, one))


def _multiply_other_way(op: Any, x: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    centred = _centre(op, x)
    return op.Mul(_inverse(op, centred, exponent, epsilon, one), centred)
