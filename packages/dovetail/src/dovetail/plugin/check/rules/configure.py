"""Rules about the build callbacks and what they tell the tuner: R16 to R23."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, call, read
from dovetail.plugin.check.host.hostile import FILL_A, FILL_B, Fill
from dovetail.plugin.check.host.runs import Run, disagreement, unwritten
from dovetail.plugin.check.lifecycle import WORKSPACE_LIMIT, Life
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.interfaces import IPluginV3OneBuildV2
from dovetail.rules import Broken, NotApplicable
from dovetail.types import volume

__all__: list[str] = []

_BUILD_CALLBACKS: Final = frozenset(
    {
        "get_output_data_types",
        "get_output_shapes",
        "supports_format_combination",
        "configure_plugin",
        "get_valid_tactics",
        "get_workspace_size",
        "get_aliased_input",
    }
)


@rule(
    "R16",
    "The attributes of the build capability have the types of the contract",
    slug="build-attributes",
    why="The limit bounds the enumeration, the other two go into the timing cache key and the plan as text.",
    fix="leave the attributes out for the defaults (100, None, None), or set an int above 0 and str",
)
def judge_attributes(subject: CheckedPlugin) -> None:
    """Read the three attributes of a new object."""
    build = subject.make().build
    limit = read(build, "format_combination_limit")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise Broken(f"format_combination_limit is {limit!r}, expected a positive int")
    for attribute in ("timing_cache_id", "metadata_string"):
        value = read(build, attribute)
        if value is not None and not isinstance(value, str):
            raise Broken(f"{attribute} is {value!r}, expected a str or None")


@rule(
    "R17",
    "get_aliased_input gives an output an input of its own that it fits in",
    slug="aliased-input",
    why="The output is given the memory of that input; two outputs in one memory overwrite each other.",
    fix="return -1, or the index of an input whose type and size the output has and that no other output uses",
)
def judge_aliases(subject: CheckedPlugin) -> str:
    """Ask for every output, twice."""
    life, build = subject.life, subject.life.make_declared().build
    if not isinstance(build, IPluginV3OneBuildV2):
        raise NotApplicable("the build capability is not IPluginV3OneBuildV2")
    _ = life.layer, life.aliases
    found = [call(build, "get_aliased_input", index) for index in range(life.num_outputs)]
    if [call(build, "get_aliased_input", index) for index in range(life.num_outputs)] != found:
        raise Broken(f"get_aliased_input gave {found} first and something else later")
    taken: dict[int, int] = {}
    for index, alias in enumerate(found):
        _require_alias(life, index, alias, taken)
    if all(alias == -1 for alias in found):
        raise NotApplicable("no output is aliased")
    _require_same_apart(subject)
    return ", ".join(f"output {index} shares input {alias}" for alias, index in taken.items())


def _require_same_apart(subject: CheckedPlugin) -> None:
    """Where the plugin also runs with outputs in memory of their own, it must give the same there."""
    first, second = _run_apart(subject, FILL_A), _run_apart(subject, FILL_B)
    if first is None or second is None or unwritten(first, second) or first.written_inputs:
        return  # it works in place and nowhere else
    found = disagreement(subject.main_cell.first, first)
    if found:
        raise Broken(f"in place {found} in memory of its own", fix="read each input element before overwriting it")


def _run_apart(subject: CheckedPlugin, fill: Fill) -> Run | None:
    """A run with outputs in memory of their own; None where the plugin refuses it, as no engine asks for that."""
    case, statuses = subject.main_cell.case, subject.log.statuses
    prepared = subject.life.prepare()
    prepared.reshape(case)
    known = len(statuses)
    try:
        run = prepared.run_bench(prepared.bench(case, fill=fill, is_aliased=False), case)
    except CallbackRaised:
        return None
    is_refused = len(statuses) > known
    del statuses[known:]
    return None if is_refused else run


def _require_alias(life: Life, index: int, alias: Any, taken: dict[int, int]) -> None:
    count = len(life.problem.main)
    if isinstance(alias, bool) or not isinstance(alias, int) or not -1 <= alias < count:
        raise Broken(f"get_aliased_input({index}) returned {alias!r}, expected -1 to {count - 1}")
    if alias == -1:
        return
    if alias in taken:
        raise Broken(f"get_aliased_input gives input {alias} to output {taken[alias]} and to output {index}")
    taken[alias] = index
    if life.layer.types[index] != life.problem.types[alias]:
        raise Broken(
            f"output {index} is {life.layer.types[index].name} and shares input {alias}, "
            f"which is {life.problem.types[alias].name}"
        )
    for case in life.problem.cases:
        shape = life.layer.largest_shapes(life.problem.symbol_values(case))[index]
        if volume(shape) > volume(case[alias]):
            raise Broken(f"output {index} of shape {shape} does not fit in input {alias} of shape {case[alias]}")


@rule(
    "R18",
    "No build callback raises",
    slug="build-raises",
    why="A raise ends the build; in supports_format_combination it is taken for a no, in get_workspace_size for 0.",
    fix="mend the callback; if it refuses the inputs that were tried, give others with --shapes",
)
def judge_build_raises(subject: CheckedPlugin) -> None:
    """Take the plugin through its build life and look at what was raised."""
    _ = subject.life
    raised = subject.log.first_raise(_BUILD_CALLBACKS)
    if raised is not None:
        raise Broken(f"{raised}, with {raised.situation or f'inputs {subject.describe_inputs()}'}")


@rule(
    "R19",
    "configure_plugin, set_tactic, on_shape_change and enqueue return None or 0",
    slug="status-codes",
    why="A number that is not zero is a failure status and ends the build or the run.",
    fix="return nothing when all is well, and raise an exception that says why when it is not",
)
def judge_statuses(subject: CheckedPlugin) -> None:
    """Take the plugin through its life and look at what was returned."""
    _ = subject.life.combinations
    if subject.log.statuses:
        raise Broken(subject.log.statuses[0])


@rule(
    "R20",
    "get_valid_tactics gives unique positive integers, the same when asked again",
    slug="tactics-valid",
    why="A tactic is known by its number alone: in the timing cache, in the plan and in set_tactic.",
    fix="return a list of different ints above 0; 0 means the default and is not listed",
)
def judge_tactics(subject: CheckedPlugin) -> str:
    """Configure each combination and ask twice."""
    life = subject.life
    texts = []
    for formats in life.tactics:
        attached = life.attach(subject.life.make_declared())
        life.configure(attached, formats)
        first = _read_tactics(call(attached.build, "get_valid_tactics"))
        second = _read_tactics(call(attached.build, "get_valid_tactics"))
        if first != second:
            raise Broken(f"get_valid_tactics gave {first} first and {second} later for the same combination")
        texts.append(str(first))
    return f"tactics {', '.join(dict.fromkeys(texts))}"


def _read_tactics(returned: Any) -> list[int]:
    if not isinstance(returned, list | tuple | np.ndarray):
        raise Broken(f"get_valid_tactics returned {returned!r}, expected a list of ints")
    tactics = list(returned)
    for tactic in tactics:
        if isinstance(tactic, bool) or not isinstance(tactic, int | np.integer) or tactic < 1:
            raise Broken(f"get_valid_tactics returned {tactics}: {tactic!r} is not a positive int")
    if len(set(tactics)) != len(tactics):
        raise Broken(f"get_valid_tactics returned {tactics}: a number is there twice")
    return [int(tactic) for tactic in tactics]


@rule(
    "R21",
    "get_workspace_size gives a number of bytes, the same when asked again",
    slug="workspace-size",
    why="The engine reserves that much once for all shapes of the profile.",
    fix="return an int computed from the max dims of the descriptors; 0 when no scratch memory is needed",
)
def judge_workspace_size(subject: CheckedPlugin) -> str:
    """Configure each combination and ask twice."""
    life = subject.life
    found: dict[int, None] = {}
    for formats in life.combinations:
        attached = life.attach(subject.life.make_declared())
        life.configure(attached, formats)
        sizes = [call(attached.build, "get_workspace_size", *life.descriptors.for_build(formats)) for _ in range(2)]
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
                raise Broken(f"get_workspace_size returned {size!r}, expected an int of at least 0")
            if size > WORKSPACE_LIMIT:
                raise Broken(f"get_workspace_size returned {size} bytes, expected at most {WORKSPACE_LIMIT}")
        if sizes[0] != sizes[1]:
            raise Broken(f"get_workspace_size gave {sizes[0]} first and {sizes[1]} later for the same descriptors")
        found[int(sizes[0])] = None
    return ", ".join(f"{size} bytes" for size in found)


@rule(
    "R22",
    "timing_cache_id depends on the parameters of the plugin alone",
    slug="timing-cache-id",
    why="The engine looks a timing up with the ID of one object and stores it with that of another.",
    fix="compute the ID from what the creator passed; formats, shapes and tactic are in the key already",
)
def judge_timing_cache_id(subject: CheckedPlugin) -> str:
    """Read it on a new object, then along the life of attached ones with different combinations and tactics."""
    expected = read(subject.make().build, "timing_cache_id")
    if expected is None:
        raise NotApplicable("the plugin does not use the timing cache")
    if not isinstance(expected, str):
        raise NotApplicable("timing_cache_id is no str, see R16")
    life = subject.life
    for formats, tactics in life.tactics.items():
        prepared = life.prepare(formats=formats, tactic=tactics[-1])
        _require_id(prepared.specimen.build, expected, "configure_plugin and set_tactic")
        prepared.reshape(life.problem.main)
        prepared.run(life.problem.main)
        _require_id(prepared.specimen.build, expected, "on_shape_change and enqueue")
    return repr(expected)


def _require_id(build: Any, expected: Any, after: str) -> None:
    got = read(build, "timing_cache_id")
    if got != expected:
        raise Broken(f"timing_cache_id is {got!r} after {after}, it was {expected!r} on a new object")


@rule(
    "R23",
    "Callbacks leave the lists and descriptors they are given as they are",
    slug="arguments-unchanged",
    why="The engine hands the same ones to the next callback or keeps them for the next run.",
    fix="copy a descriptor before changing it",
)
def judge_arguments(subject: CheckedPlugin) -> None:
    """Take the plugin through its life and compare every argument before and after."""
    _ = subject.life.combinations
    if subject.log.mutations:
        raise Broken(subject.log.mutations[0])
