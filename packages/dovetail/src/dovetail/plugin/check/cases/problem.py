"""What a plugin is asked to do: input shapes, types and shape inputs, and the symbols that stand for them.

The first case is the one that is tuned for. Dimension 0 of every input and every dimension in which two cases differ
are dynamic; the others are constants of the network, as they mostly are in real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.expr import Constant, DimsExprs, Expr, Symbol
from dovetail.types import DataType

__all__ = ["Case", "InputCase", "make_inputs"]

Case = tuple[tuple[int, ...], ...]
"""The shape of each input in one run."""


@dataclass(frozen=True, kw_only=True)
class InputCase:
    """The inputs of a plugin layer.

    Attributes:
        types: The type of each input.
        cases: The shapes that are run; the first is tuned for, all together span the profile.
        shape_inputs: The values of each shape input.
        symbolic: Whether dynamic dimensions are symbols; otherwise every dimension is a constant.
        all_symbolic: Whether every dimension is dynamic, even one that never varies.
    """

    types: tuple[DataType, ...]
    cases: tuple[Case, ...]
    shape_inputs: tuple[tuple[int, ...], ...] = ()
    symbolic: bool = True
    all_symbolic: bool = False

    @property
    def main(self) -> Case:
        """The case that is tuned for."""
        return self.cases[0]

    @property
    def full_cases(self) -> tuple[Case, ...]:
        """The cases in which every input has elements."""
        return tuple(case for case in self.cases if all(0 not in shape for shape in case))

    @property
    def empty_cases(self) -> tuple[Case, ...]:
        """The cases with an input that has no elements."""
        return tuple(case for case in self.cases if any(0 in shape for shape in case))

    @property
    def low(self) -> Case:
        """The smallest shapes of the profile."""
        return self._span(min)

    @property
    def high(self) -> Case:
        """The largest shapes of the profile."""
        return self._span(max)

    def _span(self, pick: Callable[[Iterable[int]], int]) -> Case:
        by_input = zip(*self.cases, strict=True)
        return tuple(tuple(pick(sizes) for sizes in zip(*shapes, strict=True)) for shapes in by_input)

    def is_dynamic(self, index: int, axis: int) -> bool:
        """Whether a dimension of an input is known only at run time."""
        if not self.symbolic:
            return False
        return self.all_symbolic or axis == 0 or len({case[index][axis] for case in self.cases}) > 1

    def network_dims(self, index: int) -> tuple[int, ...]:
        """The shape of an input as the network has it, -1 where it is dynamic."""
        return tuple(-1 if self.is_dynamic(index, axis) else size for axis, size in enumerate(self.main[index]))

    def input_exprs(self) -> list[DimsExprs]:
        """The shape of each input as expressions, new ones at each call."""
        return [
            DimsExprs([self._dimension(index, axis, size) for axis, size in enumerate(shape)])
            for index, shape in enumerate(self.main)
        ]

    def _dimension(self, index: int, axis: int, size: int) -> Expr:
        return Symbol(f"in{index}.{axis}") if self.is_dynamic(index, axis) else Constant(size)

    def shape_input_exprs(self) -> list[DimsExprs]:
        """The values of each shape input as expressions, new ones at each call."""
        return [
            DimsExprs([Symbol(f"value{i}.{k}") if self.symbolic else Constant(v) for k, v in enumerate(values)])
            for i, values in enumerate(self.shape_inputs)
        ]

    def symbol_values(self, case: Case) -> dict[str, int]:
        """What every symbol stands for in one case."""
        values = {f"in{i}.{axis}": size for i, shape in enumerate(case) for axis, size in enumerate(shape)}
        return values | {f"value{i}.{k}": v for i, items in enumerate(self.shape_inputs) for k, v in enumerate(items)}

    def describe(self) -> str:
        """The inputs in a few words."""
        if not self.main:
            return "no inputs"
        text = ", ".join(f"{dtype.name} {shape}" for dtype, shape in zip(self.types, self.main, strict=True))
        if self.shape_inputs:
            text += f" and shape inputs {', '.join(map(str, self.shape_inputs))}"
        return text if self.symbolic else f"{text}, every dimension constant"


def make_inputs(problem: InputCase, case: Case, *, seed: int) -> list[npt.NDArray[np.generic]]:
    """Arrays for one run: moderate numbers; integers are valid indices into every axis of the inputs."""
    sizes = [size for shape in case for size in shape if size > 0]
    bound = min([*sizes, 100]) if sizes else 2
    generator = np.random.default_rng([seed, 7])
    return [_values(generator, dtype, shape, bound) for dtype, shape in zip(problem.types, case, strict=True)]


def _values(
    generator: np.random.Generator, dtype: DataType, shape: tuple[int, ...], bound: int
) -> npt.NDArray[np.generic]:
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype in (DataType.INT32, DataType.INT64):
        return generator.integers(0, bound, shape).astype(dtype.numpy)
    if dtype is DataType.E8M0:
        return np.exp2(generator.integers(-3, 4, shape)).astype(dtype.numpy)
    if dtype.is_float:
        return generator.uniform(-2, 2, shape).astype(dtype.numpy)
    low = 0 if dtype is DataType.UINT8 else -7
    return generator.integers(low, 8, shape).astype(dtype.numpy)
