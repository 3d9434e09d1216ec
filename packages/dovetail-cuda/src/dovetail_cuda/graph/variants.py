"""Which shapes a partition is planned for: those to be fast for, each by itself, and all others together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail_cuda.graph.plan import PartitionPlan, PlannedShapes, PlannedVariant
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.symbols import Dimension, find_dimensions, make_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from dovetail.provider.interfaces import BuildContext

__all__ = ["plan_shapes"]


def plan_shapes(model: ir.Model, context: BuildContext) -> PlannedShapes:
    """Plan a partition for the shapes of a profile.

    Raises:
        ProviderError: Something in it is not for this back end.
    """
    dimensions = find_dimensions(model, context.shapes)
    sizes = make_sizes(dimensions)
    if not dimensions:
        plan = plan_partition(model, context.keep)
        return PlannedShapes(variants=[PlannedVariant(values=(), plan=plan)])
    # What is refused for some shapes is refused before anything is planned for one of them.
    generic = plan_partition(_clone(model), context.keep, sizes)
    variants = [
        PlannedVariant(values=values, plan=_plan_one(model, context, dimensions, values))
        for values in _list_tuned(dimensions, context)
    ]
    symbols = [symbol for symbol, _ in dimensions]
    return PlannedShapes(variants=variants, symbols=symbols, generic=generic)


def _list_tuned(dimensions: Sequence[Dimension], context: BuildContext) -> list[tuple[int, ...]]:
    """The values of symbols that kernels are made for one by one; without bounds nobody says which."""
    return [] if context.is_open else [tuple(opt for _, opt in dimensions)]


def _plan_one(
    model: ir.Model, context: BuildContext, dimensions: Sequence[Dimension], values: Sequence[int]
) -> PartitionPlan:
    names = [symbol.name for symbol, _ in dimensions]
    return plan_partition(_clone(model), context.keep, dict(zip(names, values, strict=True)))


def _clone(model: ir.Model) -> ir.Model:
    """A copy of a model to be planned, which changes it; weights are shared."""
    import onnx_ir as ir

    return ir.Model(model.graph.clone(), ir_version=model.ir_version)
