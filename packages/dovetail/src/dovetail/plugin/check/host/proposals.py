"""Asking a plugin for formats as the builder does: depth first, with the positions above ``pos`` out of bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dovetail.plugin.check.host.calls import CallbackRaised, call
from dovetail.plugin.check.host.hostile import ForbiddenDesc
from dovetail.types import DataType, DynamicPluginTensorDesc, TensorFormat

__all__ = ["Choice", "FormatAnswer", "FormatSearch", "ask", "search"]

Choice = tuple[DataType, TensorFormat]
"""Type and format of one position."""

_MOST_QUESTIONS: Final = 5000


@dataclass(frozen=True, kw_only=True)
class FormatAnswer:
    """One question and what came back.

    Attributes:
        choices: Type and format at positions 0 to ``pos``.
        returned: What the plugin returned, or None when it raised.
        reads: What was read above ``pos``.
        raised: The exception, when there was one.
        mutation: What the plugin changed in the descriptors it was shown.
    """

    choices: tuple[Choice, ...]
    returned: Any
    reads: tuple[str, ...]
    raised: CallbackRaised | None
    mutation: str | None

    @property
    def pos(self) -> int:
        """The position that was asked for."""
        return len(self.choices) - 1

    @property
    def accepted(self) -> bool:
        """Whether the answer counts as yes: an exception is a no."""
        return self.raised is None and self.is_boolean and bool(self.returned)

    @property
    def is_boolean(self) -> bool:
        """Whether a yes or a no came back at all."""
        return isinstance(self.returned, bool | np.bool_ | int)

    def describe(self) -> str:
        """The question in words."""
        dtype, layout = self.choices[-1]
        text = f"pos {self.pos} {dtype.name} {layout.name}"
        below = ", ".join(f"{d.name} {f.name}" for d, f in self.choices[:-1])
        return f"{text} after {below}" if below else text


@dataclass
class FormatSearch:
    """All questions of one enumeration and the combinations that were accepted."""

    answers: list[FormatAnswer] = field(default_factory=list)
    accepted: list[tuple[Choice, ...]] = field(default_factory=list)

    def table(self) -> str:
        """What was accepted at each position, for the message that nothing was."""
        rows: dict[tuple[int, DataType], dict[TensorFormat, bool]] = {}
        for answer in self.answers:
            dtype, layout = answer.choices[-1]
            row = rows.setdefault((answer.pos, dtype), {})
            row[layout] = row.get(layout, False) or answer.accepted
        return "; ".join(
            f"pos {pos} {dtype.name}: " + ", ".join(f"{f.name} {'yes' if ok else 'no'}" for f, ok in row.items())
            for (pos, dtype), row in sorted(rows.items())
        )


DescOf = Callable[[int, Choice], DynamicPluginTensorDesc]
"""The descriptor of a position when it has this type and format."""


def ask(build: Any, choices: Sequence[Choice], describe: DescOf, num_inputs: int, num_positions: int) -> FormatAnswer:
    """Ask whether the last of these choices fits the ones below it."""
    pos = len(choices) - 1
    reads: list[str] = []
    shown = [describe(index, choice) for index, choice in enumerate(choices)]
    before = repr(shown)
    hidden = [ForbiddenDesc(index, reads) for index in range(pos + 1, num_positions)]
    returned, raised = None, None
    try:
        returned = call(build, "supports_format_combination", pos, [*shown, *hidden], num_inputs)
    except CallbackRaised as error:
        raised = error
    after = repr(shown)
    mutation = None if before == after else f"supports_format_combination changed in_out: {before} -> {after}"
    return FormatAnswer(choices=tuple(choices), returned=returned, reads=tuple(reads), raised=raised, mutation=mutation)


def search(
    build: Any, options: Sequence[Sequence[Choice]], describe: DescOf, num_inputs: int, *, limit: int
) -> FormatSearch:
    """Enumerate combinations depth first until ``limit`` are accepted."""
    found = FormatSearch()
    stack: list[tuple[Choice, ...]] = [(choice,) for choice in reversed(options[0])]
    while stack and len(found.accepted) < limit and len(found.answers) < _MOST_QUESTIONS:
        choices = stack.pop()
        answer = ask(build, choices, describe, num_inputs, len(options))
        found.answers.append(answer)
        if not answer.accepted:
            continue
        if len(choices) == len(options):
            found.accepted.append(choices)
        else:
            stack.extend((*choices, choice) for choice in reversed(options[len(choices)]))
    return found
