"""From a product of few rows to the text of a Triton kernel that goes once through its weights.

A program has some columns of the right operand, whole, in registers. It loads a weight before it waits for the kernel
in front of it, so that the memory is busy while that one ends; what is left then is one row of the left operand.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail_cuda.compile.products import ProductText, ProductTile, find_strides
from dovetail_cuda.compile.source import KernelText
from dovetail_cuda.compile.writer import ACCUMULATOR
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.expr import COLUMN, ROW

__all__ = ["VectorTile", "write_vectors"]


@dataclass(frozen=True, kw_only=True)
class VectorTile(ProductTile):
    """How such a product is cut: all rows, some columns, and loads of ``k`` elements."""

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        return f"vectors {self.n}x{self.k} w{self.num_warps}"


def write_vectors(region: ProductRegion, tile: VectorTile) -> KernelText:
    """The text of the kernel; its buffers are roles."""
    return _VectorText(region, tile, "ieee").write()


class _VectorText(ProductText):
    def _write_prefetch(self) -> list[str]:
        """Weights are nobody's result, so that they can be loaded before anything is waited for."""
        return self._write_right() if self._tile.prefetches else []

    def _write_sum(self) -> list[str]:
        tile, count = self._tile, self._region.m
        lines = [] if tile.prefetches else self._write_right()
        lines.append(f"{ACCUMULATOR} = tl.zeros(({tile.m}, {tile.n}), tl.float32)")
        for row in range(count):
            lines += self._write_row(row)
        return lines

    @property
    def _starts(self) -> range:
        return range(0, self._region.k, self._tile.k)

    @property
    def _lies_along(self) -> bool:
        """Whether what is summed lies together in memory, for one column after the other."""
        return self._region.right.is_swapped

    def _write_right(self) -> list[str]:
        tile, (down, across) = self._tile, find_strides(self._region.right)
        own, other = ("[:, None]", "[None, :]") if self._lies_along else ("[None, :]", "[:, None]")
        base = self._locate(("right", self._region.right))
        lines = [
            f"inner = tl.arange(0, {tile.k})",
            f"columns = n * {tile.n} + tl.arange(0, {tile.n})",
            f"right_place = {base} + columns{own} * {across} + inner{other} * {down}",
        ]
        for number, start in enumerate(self._starts):
            mask = self._mask(start, f"columns{own} < {self._region.n}", f"inner{other}")
            lines.append(f"right_{number} = tl.load(right_place + {start * down}{mask})")
        return lines

    def _mask(self, start: int, columns: str, inner: str) -> str:
        """The condition of a load, where not all lanes have an element."""
        left = self._region.k - start
        parts = [f"({columns})"] if columns and COLUMN in self._partial else []
        parts += [f"({inner} < {left})"] if left < self._tile.k else []
        return f", mask={' & '.join(parts)}, other=0.0" if parts else ""

    def _write_row(self, row: int) -> list[str]:
        """The sums of one row, added up over loads first and over lanes last."""
        step, along = find_strides(self._region.left)
        other, axis = ("[None, :]", 1) if self._lies_along else ("[:, None]", 0)
        left = f"{self._locate(('left', self._region.left))} + {row * step} + inner * {along}"
        lines = []
        for number, start in enumerate(self._starts):
            mask = self._mask(start, "", "inner")
            lines.append(f"left_{number} = tl.load({left} + {start * along}{mask}).to(tl.float32)")
        terms = " + ".join(f"right_{n}.to(tl.float32) * left_{n}{other}" for n in range(len(self._starts)))
        lines.append(f"sums = tl.sum({terms}, {axis})[None, :]")
        is_only = self._tile.m == 1
        lines.append(f"{ACCUMULATOR} = " + ("sums" if is_only else f"tl.where({ROW} == {row}, sums, {ACCUMULATOR})"))
        return lines
