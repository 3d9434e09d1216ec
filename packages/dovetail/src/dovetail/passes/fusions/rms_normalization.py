"""Written-out RMS normalization becomes one node: x / sqrt(mean(x ** 2) + epsilon) * scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dovetail.passes.fusions._pattern_fusion import NormalizationFusion, Target, deviation, either

__all__ = ["RMSNormalizationFusion"]


class RMSNormalizationFusion(NormalizationFusion):
    """Replaces what Llama and its relatives write."""

    name: ClassVar[str] = "rms_normalization"
    op: ClassVar[str] = "RMSNormalization"
    since: ClassVar[int] = 23

    def targets(self) -> Sequence[Target]:
        """A quotient, or a product with the reciprocal in either order."""
        return [_divide, _multiply, _multiply_other_way]


def _divide(op: Any, x: Any, exponent: Any, epsilon: Any) -> Any:
    return op.Div(x, deviation(op, x, exponent, epsilon))


def _inverse(op: Any, x: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    root = deviation(op, x, exponent, epsilon)
    return either(op.Reciprocal(root), op.Div(one, root))


def _multiply(op: Any, x: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    return op.Mul(x, _inverse(op, x, exponent, epsilon, one))


def _multiply_other_way(op: Any, x: Any, exponent: Any, epsilon: Any, one: Any) -> Any:
    return op.Mul(_inverse(op, x, exponent, epsilon, one), x)
