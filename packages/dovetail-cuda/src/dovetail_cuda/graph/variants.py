"""Which shapes a partition is planned for: those to be fast for, each by itself, and all others together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.loggers import Severity
from dovetail_cuda.graph.plan import PartitionPlan, PlannedShapes, PlannedVariant
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.symbols import Dimension, find_dimensions, make_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from dovetail.provider.interfaces import BuildContext
    from dovetail_cuda.run.variants import SymbolRecord

__all__ = ["plan_shapes"]


def plan_shapes(model: ir.Model, context: BuildContext, tuned: Sequence[Mapping[str, int]] = ()) -> PlannedShapes:
    """Plan a partition for the shapes of a profile.

    Args:
        model: The partition.
        context: Has the profile.
        tuned: Further shapes to be fast for, by names of dimensions; what is not named is as the profile has it.

    Raises:
        ProviderError: Something in it is not for this back end.
    """
    dimensions = find_dimensions(model, context.shapes, is_open=context.is_open)
    sizes = make_sizes(dimensions)
    if not dimensions:
        plan = plan_partition(model, context.keep, aliases=context.aliases)
        return PlannedShapes(variants=[PlannedVariant(values=(), plan=plan)])
    # What is refused for some shapes is refused before anything is planned for one of them.
    generic = plan_partition(_clone(model), context.keep, sizes, context.aliases)
    variants = [
        PlannedVariant(values=values, plan=_plan_one(model, context, dimensions, values))
        for values in _list_tuned(dimensions, context, tuned)
    ]
    symbols = [symbol for symbol, _ in dimensions]
    return PlannedShapes(variants=variants, symbols=symbols, generic=generic)


def _list_tuned(
    dimensions: Sequence[Dimension], context: BuildContext, tuned: Sequence[Mapping[str, int]]
) -> list[tuple[int, ...]]:
    """The values of symbols that kernels are made for one by one; without a profile only those that were named."""
    found = {} if context.is_open else {tuple(opt for _, opt in dimensions): None}
    for sizes in tuned:
        values = tuple(sizes.get(symbol.name, opt) for symbol, opt in dimensions)
        if all(_is_inside(symbol, value) for (symbol, _), value in zip(dimensions, values, strict=True)):
            found[values] = None
        else:
            shown = ", ".join(f"{symbol.name}={value}" for (symbol, _), value in zip(dimensions, values, strict=True))
            context.logger.log(Severity.WARNING, f"tuned_shapes: {shown} is outside of profile {context.profile}")
    return list(found)


def _is_inside(symbol: SymbolRecord, value: int) -> bool:
    return symbol.low <= value and (symbol.high is None or value <= symbol.high)


def _plan_one(
    model: ir.Model, context: BuildContext, dimensions: Sequence[Dimension], values: Sequence[int]
) -> PartitionPlan:
    names = [symbol.name for symbol, _ in dimensions]
    return plan_partition(_clone(model), context.keep, dict(zip(names, values, strict=True)), context.aliases)


def _clone(model: ir.Model) -> ir.Model:
    """A copy of a model to be planned, which changes it; weights are shared."""
    import onnx_ir as ir

    return ir.Model(model.graph.clone(), ir_version=model.ir_version)
