"""The descriptors of a layer: what the build callbacks and the runtime callbacks are told about each tensor."""

from __future__ import annotations

from typing import Final

from dovetail.expr import Constant
from dovetail.plugin.check.cases.problem import Case, InputCase
from dovetail.plugin.check.host.proposals import Choice
from dovetail.plugin.check.layer import DeclaredLayer
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat

__all__ = ["Combination", "Descriptors"]

Combination = tuple[TensorFormat, ...]
"""The format of each input, then of each output."""

_INT8_SCALE: Final = 0.1


class Descriptors:
    """Makes descriptors, new ones at each call: a plugin may do with them what it likes.

    Args:
        problem: The inputs.
        layer: What the plugin declared of its outputs.
        is_on_device: Whether the addresses of runs are those of a device.
    """

    def __init__(self, problem: InputCase, layer: DeclaredLayer, *, is_on_device: bool = False) -> None:
        self._problem, self._layer, self._is_on_device = problem, layer, is_on_device
        self._types = (*problem.types, *layer.types)
        self._made: dict[tuple[int, Choice], DynamicPluginTensorDesc] = {}
        self._known: dict[Case, list[tuple[int, ...]]] = {}
        self._largest: dict[Case, list[tuple[int, ...]]] = {}

    def describe(self, position: int, choice: Choice) -> DynamicPluginTensorDesc:
        """The descriptor of a position for the build callbacks, with this type and format."""
        key = (position, choice)
        if key not in self._made:
            index = position - len(self._problem.main)
            self._made[key] = self._input(position, choice) if index < 0 else self._output(index, choice)
        return self._made[key].copy()

    def _input(self, index: int, choice: Choice) -> DynamicPluginTensorDesc:
        problem = self._problem
        desc = PluginTensorDesc(problem.network_dims(index), *choice, _scale_of(choice[0]))
        return DynamicPluginTensorDesc(desc, problem.low[index], problem.main[index], problem.high[index])

    def _output(self, index: int, choice: Choice) -> DynamicPluginTensorDesc:
        problem, layer = self._problem, self._layer
        low, main, high = (problem.symbol_values(case) for case in (problem.low, problem.main, problem.high))
        dims = [expr.value if isinstance(expr, Constant) else -1 for expr in layer.shapes[index]]
        return DynamicPluginTensorDesc(
            PluginTensorDesc(dims, *choice, _scale_of(choice[0])),
            [max(size, 0) for size in layer.known_shapes(low)[index]],
            layer.tuned_shapes(main)[index],
            layer.largest_shapes(high)[index],
        )

    def for_build(self, formats: Combination) -> tuple[list[DynamicPluginTensorDesc], list[DynamicPluginTensorDesc]]:
        """Inputs and outputs as the build callbacks see them."""
        choices = zip(self._types, formats, strict=True)
        descs = [self.describe(position, choice) for position, choice in enumerate(choices)]
        count = len(self._problem.main)
        return descs[:count], descs[count:]

    def for_run(self, formats: Combination, case: Case) -> tuple[list[PluginTensorDesc], list[PluginTensorDesc]]:
        """Inputs and outputs as the runtime callbacks see them."""
        if case not in self._known:
            self._known[case] = self._layer.known_shapes(self._problem.symbol_values(case))
        rows = zip((*case, *self._known[case]), self._types, formats, strict=True)
        descs = [PluginTensorDesc(shape, dtype, layout, _scale_of(dtype)) for shape, dtype, layout in rows]
        for desc in descs:
            desc.is_on_device = self._is_on_device
        return descs[: len(case)], descs[len(case) :]

    def largest_shapes(self, case: Case) -> list[tuple[int, ...]]:
        """The output shapes that memory is sized for."""
        if case not in self._largest:
            self._largest[case] = self._layer.largest_shapes(self._problem.symbol_values(case))
        return self._largest[case]


def _scale_of(dtype: DataType) -> float:
    return _INT8_SCALE if dtype is DataType.INT8 else -1.0
