"""The values of a program while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.plan.manifest import SymbolRecord

__all__ = ["Frame", "Shape", "Workspace"]

Shape = tuple[int, ...]


class Workspace(NamedTuple):
    """Scratch memory of one step, which others use before and after it."""

    address: int = 0
    size_bytes: int = 0


class Frame:
    """The values of a program by number, for runs over inputs of the same shapes.

    The last slot is always None, so that an absent input (-1) needs no special case. A value in ``fixed`` is the same
    object in every run, so a step may take it when it is bound. Every other value is put into its slot in each run, by
    the caller or by the step that makes it, and is gone after the run: a frame keeps no memory of callers alive.
    """

    __slots__ = (
        *("announcers", "capturable", "closers", "fixed", "is_loose", "placers", "shapes", "symbols", "values"),
        *("interruptible", "told", "workspaces"),
    )

    def __init__(
        self,
        values: list[Any],
        shapes: Sequence[Shape | None],
        *,
        fixed: frozenset[int],
        symbols: Mapping[str, SymbolRecord],
        is_loose: bool = False,
        workspaces: Mapping[Any, Workspace] | None = None,
    ) -> None:
        self.values = values
        self.shapes = shapes
        """Logical shapes, None where only the run tells."""
        self.fixed = fixed
        self.symbols = symbols
        self.is_loose = is_loose
        """Whether steps may give other shapes than the plan says, as they do where a dimension of an input is 0."""
        self.workspaces = workspaces or {}
        """By step, for those that have scratch memory; steps of bodies too."""
        self.told: dict[str, int] = {}
        """Sizes that plugins of this run wrote, by symbol."""
        self.capturable: set[Any] = set()
        """Steps whose work can be recorded once and replayed, for as long as their values stay where they are; each
        adds itself when it is bound."""
        self.announcers: list[Callable[[], None]] = []
        """Each tells one plugin the shapes of this frame; steps add theirs when they are bound."""
        self.placers: list[Callable[[], None]] = []
        """Each has a step take the addresses of callers' values, when these were put into the frame."""
        self.interruptible: list[Callable[[], Callable[[], None]]] = []
        """Each gives what ends a step that is under way, from another thread."""
        self.closers: list[Callable[[], None]] = []
        """Each gives back what a step took for this frame."""

    def shape_of(self, index: int) -> Shape | None:
        """The logical shape of a value; None where only the run tells, and for one that is absent."""
        return None if index < 0 else self.shapes[index]

    def read_symbol(self, name: str) -> int:
        """The value of a symbol now: from the logical shape where it is known, else from the value itself."""
        if name in self.told:
            return self.told[name]
        symbol = self.symbols[name]
        if symbol.source == "dim":
            shape = self.shapes[symbol.value]
            return int((self.values[symbol.value].shape if shape is None else shape)[symbol.index])
        return int(self.values[symbol.value].reshape(-1)[symbol.index])
