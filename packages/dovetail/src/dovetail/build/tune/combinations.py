"""Format enumeration: which combinations of types and layouts a plugin accepts, and what it refused.

Depth first over positions, as the contract says: at each position the proposals come in a fixed order, positions
above it hold nothing valid, and the walk ends at the plugin's limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dovetail.formats import formats_for
from dovetail.plugin.handle import PluginHandle
from dovetail.types import DataType, Dims, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat

__all__ = ["Combination", "Enumeration", "Layout", "Port", "enumerate_combinations"]


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory: type, format, and scale where the type is INT8."""

    dtype: DataType
    format: TensorFormat = TensorFormat.LINEAR
    scale: float = -1.0

    def __str__(self) -> str:
        scale = f"*{self.scale:.4g}" if self.scale != -1.0 else ""
        return f"{self.dtype.name}{scale}:{self.format.name}"


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input or output of a plugin: its bounds, and what may be proposed for it."""

    dims: tuple[int, ...]
    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]
    layouts: tuple[Layout, ...]
    room: tuple[int, ...] | None = None
    """The shape that an output needs memory for at the tuned shape, where that is more: the bounds of size tensors."""

    def tuned(self) -> Port:
        """The same port at the tuned shape alone."""
        return Port(dims=self.opt, min=self.opt, opt=self.opt, max=self.opt, layouts=self.layouts)

    def describe(self, layout: Layout) -> DynamicPluginTensorDesc:
        """The descriptor a plugin gets for this port in a layout."""
        desc = PluginTensorDesc(Dims(self.dims), layout.dtype, layout.format, layout.scale)
        return DynamicPluginTensorDesc(desc, Dims(self.min), Dims(self.opt), Dims(self.max))


def propose_layouts(types: Sequence[Layout], rank: int, *, linear_only: bool) -> tuple[Layout, ...]:
    """All layouts of these types, in the order they are proposed."""
    if linear_only:
        return tuple(types)
    return tuple(Layout(t.dtype, f, t.scale) for t in types for f in formats_for(t.dtype, rank))


Combination = tuple[Layout, ...]
"""One layout for each port: inputs, then outputs."""


@dataclass
class Enumeration:
    """What a plugin accepted, and every answer it gave."""

    accepted: list[Combination] = field(default_factory=list)
    answers: dict[tuple[int, Layout], tuple[bool, str | None]] = field(default_factory=dict)
    raised: dict[tuple[int, Layout], str] = field(default_factory=dict)
    """Questions that were answered with an exception, which counts as a refusal."""
    is_limited: bool = False

    def note(self, pos: int, layout: Layout, answer: bool, reason: str | None) -> None:
        """Keep an answer; a layout accepted once counts as accepted."""
        if reason is not None:
            self.raised.setdefault((pos, layout), reason)
        known = self.answers.get((pos, layout))
        if known is None or (answer and not known[0]):
            self.answers[pos, layout] = (answer, reason)

    def table(self, num_inputs: int) -> str:
        """Position, type, format, accepted or refused: for the error when nothing is left."""
        lines = ["  position    type    format   answer"]
        for (pos, layout), (answer, reason) in sorted(self.answers.items(), key=lambda item: item[0][0]):
            name = f"input {pos}" if pos < num_inputs else f"output {pos - num_inputs}"
            verdict = "accepted" if answer else "refused" + (f" ({reason})" if reason else "")
            lines.append(f"  {pos} {name:<9} {layout.dtype.name:<7} {layout.format.name:<8} {verdict}")
        return "\n".join(lines)


def enumerate_combinations(handle: PluginHandle, ports: Sequence[Port], num_inputs: int) -> Enumeration:
    """Ask the plugin for every combination, depth first, up to its limit."""
    result = Enumeration()
    _Walk(handle, ports, num_inputs, result).descend(())
    return result


class _Walk:
    def __init__(self, handle: PluginHandle, ports: Sequence[Port], num_inputs: int, result: Enumeration) -> None:
        self._handle, self._ports, self._num_inputs, self._result = handle, ports, num_inputs, result
        self._limit: int | None = None

    def descend(self, chosen: Combination) -> bool:
        """Extend a partial combination; False ends the whole walk."""
        pos = len(chosen)
        if pos == len(self._ports):
            return self._complete(chosen)
        for layout in self._ports[pos].layouts:
            answer, reason = self._handle.supports(pos, self._proposal(chosen, layout), self._num_inputs)
            self._result.note(pos, layout, answer, reason)
            if answer and not self.descend((*chosen, layout)):
                return False
        return True

    def _complete(self, chosen: Combination) -> bool:
        self._result.accepted.append(chosen)
        if self._limit is None:
            self._limit = max(self._handle.format_combination_limit, 1)
        self._result.is_limited = len(self._result.accepted) >= self._limit
        return not self._result.is_limited

    def _proposal(self, chosen: Combination, layout: Layout) -> list[DynamicPluginTensorDesc]:
        known = [port.describe(lay) for port, lay in zip(self._ports, (*chosen, layout), strict=False)]
        return known + [_nothing() for _ in range(len(self._ports) - len(known))]


def _nothing() -> DynamicPluginTensorDesc:
    """What lies beyond the position: no type, no format, no dims."""
    desc = PluginTensorDesc(Dims.invalid(), None, None)
    return DynamicPluginTensorDesc(desc, Dims.invalid(), Dims.invalid(), Dims.invalid())
