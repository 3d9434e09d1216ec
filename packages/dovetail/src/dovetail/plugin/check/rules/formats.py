"""Rules about ``supports_format_combination``: R11 to R15."""

from __future__ import annotations

from typing import Final

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.proposals import FormatAnswer, FormatSearch
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.state import changes, state_of
from dovetail.rules import Blocked, Broken
from dovetail.types import DataType

__all__: list[str] = []

_PROPOSED_TYPES: Final = tuple(dtype for dtype in DataType if dtype is not DataType.E8M0)


@rule(
    "R11",
    "supports_format_combination gives the same answer to the same question and keeps nothing",
    slug="formats-pure",
    why="The builder asks the same question several times, in several passes and on clones.",
    fix="answer from pos, in_out and the parameters alone; set no attribute",
)
def judge_purity(subject: CheckedPlugin) -> str:
    """Enumerate twice, then ask everything once more in reverse order."""
    life, specimen = subject.life, subject.life.make_declared()
    _ = life.layer
    before = state_of(specimen)
    first = life.search_formats(specimen)
    second = life.search_formats(specimen)
    again = [life.ask_again(specimen, answer) for answer in reversed(first.answers)]
    for asked in (second.answers, again):
        _require_same(first, asked)
    if len(first.answers) != len(second.answers):
        raise Broken(f"a second enumeration asked {len(second.answers)} questions, the first {len(first.answers)}")
    changed = changes(before, state_of(specimen))
    if changed:
        raise Broken(f"supports_format_combination changed the object: {changed[0]}")
    return f"{len(first.answers)} questions asked three times"


def _require_same(first: FormatSearch, later: list[FormatAnswer]) -> None:
    known = {answer.choices: answer.accepted for answer in first.answers}
    for answer in later:
        if known.get(answer.choices, answer.accepted) != answer.accepted:
            words = ("no", "yes")
            raise Broken(
                f"{answer.describe()}: answered {words[known[answer.choices]]} first and {words[answer.accepted]} later"
            )


@rule(
    "R12",
    "supports_format_combination reads no position above pos",
    slug="formats-past-pos",
    why="Those positions hold nothing valid yet: what is read there decides by accident.",
    fix="compare in_out[pos] with positions below it; let the later position check against the earlier one",
)
def judge_reads(subject: CheckedPlugin) -> None:
    """Look at what was read of the descriptors above each position."""
    for answer in subject.life.search.answers:
        if answer.reads:
            raise Broken(f"{answer.describe()}: read {answer.reads[0]}, valid are positions 0 to {answer.pos}")


@rule(
    "R13",
    "supports_format_combination answers True or False",
    slug="formats-answer",
    why="A forgotten return is None, which hosts take for a failure and not for a no.",
    fix="return a bool on every path",
)
def judge_answers(subject: CheckedPlugin) -> None:
    """Look at the type of every answer."""
    for answer in subject.life.search.answers:
        if answer.raised is None and not answer.is_boolean:
            raise Broken(f"{answer.describe()}: returned {answer.returned!r}, expected a bool")


@rule(
    "R14",
    "At least one combination of formats is accepted",
    slug="formats-accepted",
    why="Without one the layer cannot be built, and most engines say no more than that.",
    fix="accept the types of the inputs at pos 0 and up; LINEAR is the format that every neighbour has",
)
def judge_acceptance(subject: CheckedPlugin) -> str:
    """Enumerate with the types of the inputs, and any types for the outputs."""
    found = subject.life.search
    if found.accepted:
        return f"{len(found.accepted)} accepted of {len(found.answers)} questions"
    if any(answer.reads for answer in found.answers):
        raise Blocked("positions above pos were read, see R12")
    if any(answer.raised for answer in found.answers):
        raise Blocked("supports_format_combination raised, see R18")
    if any(not answer.is_boolean for answer in found.answers):
        raise Blocked("supports_format_combination gave no bool, see R13")
    if _search_any_output_type(subject).accepted:
        return "accepted with other output types than declared"
    hint = _accepted_input_types(subject)
    raise Broken(f"nothing was accepted: {found.table()}{hint}")


@rule(
    "R15",
    "The declared output types are among those that supports_format_combination accepts",
    slug="formats-output-type",
    why="In a strongly typed network only the types of get_output_data_types are proposed for the outputs.",
    fix="make get_output_data_types and supports_format_combination agree",
)
def judge_output_type(subject: CheckedPlugin) -> None:
    """Enumerate with the declared types, and with any when those are refused."""
    if subject.life.search.accepted:
        return
    accepted = _search_any_output_type(subject).accepted
    if not accepted:
        raise Blocked("nothing is accepted with any output types, see R14")
    count = len(subject.life.problem.main)
    wanted = ", ".join(f"output {i} {dtype.name}" for i, (dtype, _) in enumerate(accepted[0][count:]))
    declared = ", ".join(dtype.name for dtype in subject.life.types)
    raise Broken(f"get_output_data_types declares {declared}, supports_format_combination accepts {wanted}")


def _search_any_output_type(subject: CheckedPlugin) -> FormatSearch:
    life = subject.life
    options = [[dtype] for dtype in life.problem.types] + [list(_PROPOSED_TYPES)] * len(life.types)
    return life.search_formats(subject.life.make_declared(), types=options)


def _accepted_input_types(subject: CheckedPlugin) -> str:
    life = subject.life
    options = [list(_PROPOSED_TYPES)] * (len(life.problem.main) + len(life.types))
    accepted = life.search_formats(subject.life.make_declared(), types=options).accepted
    if not accepted or not life.problem.main:
        return ""
    types = ", ".join(dtype.name for dtype, _ in accepted[0][: len(life.problem.main)])
    return f"; it is with inputs of type {types}"
