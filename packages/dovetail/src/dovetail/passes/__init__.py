"""Network to better network: one file a pass, each working on an onnx-ir model in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.passes.base import Pass

__all__ = ["standard_passes"]


def standard_passes(*, keep: frozenset[str]) -> list[Pass]:
    """The passes every build runs, in order.

    Args:
        keep: Names of weights that must stay as they are, because they may be refitted.
    """
    from dovetail.passes.constant_folding import ConstantFolding  # passes need onnx-ir, and this package is imported
    from dovetail.passes.conv_batchnorm import ConvBatchNorm  # by name alone too
    from dovetail.passes.dead_code import DeadCode

    return [ConstantFolding(keep=keep), ConvBatchNorm(keep=keep), DeadCode()]
