"""Format enumeration: which combinations of types and layouts a plugin accepts, and what it refused.

Depth first over positions, as the contract says: at each position the proposals come in a fixed order, positions
above it hold nothing valid, and the walk ends at the plugin's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from dovetail.expr import sizes_or_unknown
from dovetail.formats import formats_for
from dovetail.plugin.handle import PluginHandle
from dovetail.tensors import TensorSpec
from dovetail.types import Dims, DynamicPluginTensorDesc, PluginTensorDesc

__all__ = [
    "Combination",
    "Enumeration",
    "describe_tensor",
    "enumerate_combinations",
    "layout_text",
    "propose_layouts",
]

Combination = tuple[TensorSpec, ...]
"""One layout for each tensor of a plugin, inputs, then outputs: type, format, and scale where the type is INT8."""


def layout_text(layout: TensorSpec) -> str:
    """A layout as people read it.

    >>> layout_text(TensorSpec(dtype="int8", format="CHW4", scale=0.5))
    'INT8*0.5:CHW4'
    """
    scale = f"*{layout.scale:.4g}" if layout.scale != -1.0 else ""
    return f"{layout.data_type.name}{scale}:{layout.format}"


def describe_tensor(tensor: TensorSpec, layout: TensorSpec) -> DynamicPluginTensorDesc:
    """The descriptor that a plugin gets for a tensor in a layout, with the bounds of the profile."""
    dims = Dims(sizes_or_unknown(tensor.sizes or ()))
    desc = PluginTensorDesc(dims, layout.data_type, layout.tensor_format, layout.scale)
    if tensor.shapes is None:
        return DynamicPluginTensorDesc(desc, dims, dims, dims)
    shapes = tensor.shapes
    return DynamicPluginTensorDesc(desc, Dims(shapes.min), Dims(shapes.opt), Dims(sizes_or_unknown(shapes.max)))


def propose_layouts(types: Sequence[TensorSpec], rank: int, *, linear_only: bool) -> Combination:
    """All layouts of these types, in the order they are proposed."""
    if linear_only:
        return tuple(types)
    return tuple(
        msgspec.structs.replace(each, format=form.name) for each in types for form in formats_for(each.data_type, rank)
    )


@dataclass
class Enumeration:
    """What a plugin accepted, and every answer it gave."""

    accepted: list[Combination] = field(default_factory=list)
    answers: dict[tuple[int, TensorSpec], tuple[bool, str | None]] = field(default_factory=dict)
    raised: dict[tuple[int, TensorSpec], str] = field(default_factory=dict)
    """Questions that were answered with an exception, which counts as a refusal."""
    is_limited: bool = False

    def note(self, pos: int, layout: TensorSpec, answer: bool, reason: str | None) -> None:
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
            lines.append(f"  {pos} {name:<9} {layout.data_type.name:<7} {layout.format:<8} {verdict}")
        return "\n".join(lines)


def enumerate_combinations(
    handle: PluginHandle, tensors: Sequence[TensorSpec], proposals: Sequence[Combination], num_inputs: int
) -> Enumeration:
    """Ask the plugin for every combination, depth first, up to its limit.

    Args:
        handle: The plugin.
        tensors: Its inputs and outputs, with the shapes of the profile.
        proposals: The layouts to propose for each of them, in order.
        num_inputs: How many of them are inputs.
    """
    result = Enumeration()
    plain = [describe_tensor(tensor, layouts[0]) for tensor, layouts in zip(tensors, proposals, strict=True)]
    listed = handle.list_combinations(plain, num_inputs)
    answer = handle.supports if listed is None else _answer_from(listed)
    _Walk(handle, tensors, proposals, num_inputs, result, answer).descend(())
    return result


Answer = Callable[[int, Sequence[DynamicPluginTensorDesc], int], tuple[bool, str | None]]
"""Whether a proposal is accepted, and why not where the plugin says it."""


def _answer_from(listed: Sequence[Sequence[PluginTensorDesc]]) -> Answer:
    """The answers of a plugin that lists its combinations: yes to each beginning of one of them."""
    rows = [[(desc.type, desc.format) for desc in row] for row in listed]

    def answer(pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> tuple[bool, str | None]:
        proposed = [(each.desc.type, each.desc.format) for each in in_out[: pos + 1]]
        return any(row[: pos + 1] == proposed for row in rows), None

    return answer


class _Walk:
    def __init__(
        self,
        handle: PluginHandle,
        tensors: Sequence[TensorSpec],
        proposals: Sequence[Combination],
        num_inputs: int,
        result: Enumeration,
        answer: Answer,
    ) -> None:
        self._answer = answer
        self._handle, self._tensors, self._proposals = handle, tensors, proposals
        self._num_inputs, self._result = num_inputs, result
        self._limit: int | None = None

    def descend(self, chosen: Combination) -> bool:
        """Extend a partial combination; False ends the whole walk."""
        pos = len(chosen)
        if pos == len(self._tensors):
            return self._complete(chosen)
        for layout in self._proposals[pos]:
            answer, reason = self._answer(pos, self._proposal(chosen, layout), self._num_inputs)
            self._result.note(pos, layout, answer, reason)
            if answer and not self.descend((*chosen, layout)):
                return False
        return True

    def _complete(self, chosen: Combination) -> bool:
        self._result.accepted.append(chosen)
        if self._limit is None:
            self._limit = self._handle.format_combination_limit
        self._result.is_limited = len(self._result.accepted) >= self._limit
        return not self._result.is_limited

    def _proposal(self, chosen: Combination, layout: TensorSpec) -> list[DynamicPluginTensorDesc]:
        known = [describe_tensor(*pair) for pair in zip(self._tensors, (*chosen, layout), strict=False)]
        return known + [_nothing() for _ in range(len(self._tensors) - len(known))]


def _nothing() -> DynamicPluginTensorDesc:
    """What lies beyond the position: no type, no format, no dims."""
    desc = PluginTensorDesc(Dims.invalid(), None, None)
    return DynamicPluginTensorDesc(desc, Dims.invalid(), Dims.invalid(), Dims.invalid())
