"""Network to better network: one file a pass, each working on an onnx-ir model in place.

Two lists: what every provider gets, and what becomes one node for a provider that has a kernel for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from dovetail.errors import UsageError
from dovetail.growth import DEFAULT_GROWTH, ByteBudget, GrowthLimits
from dovetail.near_names import suggest

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.passes.base import Pass

__all__ = ["PASS_NAMES", "fusion_passes", "standard_passes"]

PASS_NAMES: Final = (
    "constant_folding",
    "shape_simplification",
    "sequences",
    "common_subexpressions",
    "conv_batchnorm",
    "qdq_placement",
    "dead_code",
    "layer_normalization",
    "gelu",
    "rms_normalization",
    "rotary_embedding",
    "attention",
    "matmul_add",
    "layout",
    "rewrite",
)
"""Every pass by the name that switches it off."""


def standard_passes(
    *, keep: frozenset[str], off: Collection[str] = (), limits: GrowthLimits = DEFAULT_GROWTH
) -> list[Pass]:
    """The passes every build runs, in order.

    Args:
        keep: Names of weights that must stay as they are, because they may be refitted.
        off: Names of passes to leave out.
        limits: How much larger the model may become.

    Raises:
        UsageError: A name is none of ``PASS_NAMES``.
    """
    from dovetail.passes.common_subexpressions import CommonSubexpressions  # passes need onnx-ir, and this package is
    from dovetail.passes.constant_folding import ConstantFolding  # imported by name alone too
    from dovetail.passes.dead_code import DeadCode
    from dovetail.passes.fusions.conv_batchnorm import ConvBatchNorm
    from dovetail.passes.qdq_placement import QDQPlacement
    from dovetail.passes.sequences import Sequences
    from dovetail.passes.shape_simplification import ShapeSimplification

    budget = ByteBudget(limits.bytes)
    return _without(
        off,
        [
            ConstantFolding(keep=keep, budget=budget),
            ShapeSimplification(keep=keep),
            Sequences(keep=keep),
            DeadCode(),  # who reads a value counts from here on
            QDQPlacement(keep=keep),
            # Sizes that are known now, and weights that are moved in their narrow type.
            ConstantFolding(keep=keep, budget=budget),
            CommonSubexpressions(keep=keep),
            ConvBatchNorm(keep=keep),
            DeadCode(),
        ],
    )


def fusion_passes(
    *,
    keep: frozenset[str],
    accepts: Callable[[str, str, int], bool],
    within: Callable[[ir.Node], bool] | None = None,
    serves: Callable[[ir.Node, int], bool] | None = None,
    off: Collection[str] = (),
) -> list[Pass]:
    """The passes that make one node of several, for the nodes of one provider, in order.

    Args:
        keep: Names of weights that must stay as they are, because they may be refitted.
        accepts: Whether the provider has a kernel for an operator, a domain and an opset.
        within: Whether a node is of the provider's share; all are without it.
        serves: Whether whoever has a node could still run it at a higher opset; everybody could without it.
        off: Names of passes to leave out.

    Raises:
        UsageError: A name is none of ``PASS_NAMES``.
    """
    from dovetail.passes.dead_code import DeadCode
    from dovetail.passes.fusions.attention import AttentionFusion
    from dovetail.passes.fusions.base import always
    from dovetail.passes.fusions.gelu import GeluFusion
    from dovetail.passes.fusions.layer_normalization import LayerNormalizationFusion
    from dovetail.passes.fusions.matmul_add import MatMulAddFusion
    from dovetail.passes.fusions.rms_normalization import RMSNormalizationFusion
    from dovetail.passes.fusions.rotary_embedding import RotaryEmbeddingFusion

    kinds = (
        LayerNormalizationFusion,
        GeluFusion,
        RMSNormalizationFusion,
        RotaryEmbeddingFusion,
        AttentionFusion,
        MatMulAddFusion,
    )
    share, still = within or always, serves or always
    fusions: list[Pass] = [kind(accepts=accepts, keep=keep, within=share, serves=still) for kind in kinds]
    return _without(off, [*fusions, DeadCode()])


def _without(off: Collection[str], passes: list[Pass]) -> list[Pass]:
    names = {off} if isinstance(off, str) else set(off)
    unknown = sorted(names.difference(PASS_NAMES))
    if unknown:
        raise UsageError(
            f"there is no pass {', '.join(map(repr, unknown))}",
            where="passes",
            expected=", ".join(PASS_NAMES),
            fix=suggest(unknown[0], PASS_NAMES),
        )
    return [each for each in passes if each.name not in names]
