"""Rules about runs: what ``enqueue`` may not do, and what the builder should be told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dovetail_tensorrt.lint.allocations import allocates, synchronizes
from dovetail_tensorrt.lint.facts import ClassFacts, Language, MethodFacts, snake_case
from dovetail_tensorrt.lint.rules import Place, class_rule

__all__: list[str] = []

_RUNS: Final = ("enqueue", "execute_async")
_TACTICS: Final = ("get_nb_tactics", "get_valid_tactics")
_NO_TACTICS: Final = ("0", "[]", "()", "list()", "None")
_BY_TYPE: Final = re.compile(r"type|format|dtype|DataType|half|float|fp16|fp32|int8", re.IGNORECASE)


def _find_runs(facts: ClassFacts) -> Iterator[MethodFacts]:
    """``enqueue`` and the methods that it calls."""
    if facts.is_plugin:
        for name in _RUNS:
            yield from facts.find_reached(name)


def _name(method: MethodFacts) -> str:
    return method.name if method.name in _RUNS else f"{method.name}, which enqueue calls,"


@class_rule(
    "L01",
    "allocation in enqueue",
    why="every run pays for it, memory is not shared with other layers, and a captured graph cannot hold it",
    fix="ask for scratch memory in get_workspace_size; make what lives longer in on_shape_change or the constructor",
)
def find_allocations(facts: ClassFacts) -> Iterator[Place]:
    """Allocations and handles made in a run."""
    for method in _find_runs(facts):
        for call in method.calls:
            if allocates(call, facts.language):
                yield Place.in_method(method, call.line, f"{_name(method)} calls {call.callee}")


@class_rule(
    "L02",
    "waiting for the device in enqueue",
    why="it stops the host in every run, and fails while a graph is captured",
    fix="put all work on the stream that enqueue gets, and leave the waiting to the caller; copy with cudaMemcpyAsync",
)
def find_waits(facts: ClassFacts) -> Iterator[Place]:
    """Synchronisation in a run."""
    for method in _find_runs(facts):
        for call in method.calls:
            if synchronizes(call, facts.language):
                yield Place.in_method(method, call.line, f"{_name(method)} calls {call.callee}")


@class_rule(
    "L10",
    "aliasing by accident: enqueue writes to an input",
    why="inputs are read-only unless an output is declared to share their memory; others may still read them",
    fix="derive from IPluginV3OneBuildV2, declare it in get_aliased_input and switch ALIASED_PLUGIN_IO_10_03 on",
)
def find_input_writes(facts: ClassFacts) -> Iterator[Place]:
    """Writes to what was made of an input."""
    if not facts.is_plugin or "get_aliased_input" in facts.declared:
        return
    method = facts.methods.get("enqueue")
    if method is not None and "inputs" in method.params:
        yield from _find_cast_inputs(method) if facts.language is Language.CPP else _find_written_views(method)


def _find_cast_inputs(method: MethodFacts) -> Iterator[Place]:
    for call in method.calls:
        if call.callee == "const_cast" and any(re.match(r"inputs\b", arg) for arg in call.args):
            yield Place.in_method(method, call.line, f"const_cast makes {call.args[0]} writable")


def _find_written_views(method: MethodFacts) -> Iterator[Place]:
    views = {store.target for store in method.stores if re.search(r"\(inputs\[|\(as_array, inputs\b", store.value)}
    for write in method.writes:
        if write.target in views:
            yield Place.in_method(method, write.line, f"'{write.target}' is an input, and is written to")


@class_rule(
    "L08",
    "several kernels and no tactics",
    why="the builder can time each kernel for the shapes at hand; a choice in the code is a guess",
    fix="advertise one tactic for each kernel in get_valid_tactics, and choose by what set_tactic said",
)
def find_missing_tactics(facts: ClassFacts) -> Iterator[Place]:
    """Choices between kernels that do not depend on a type."""
    if not facts.is_v3 or _advertises(facts) is not False:
        return
    for method in facts.find_reached("enqueue"):
        for branch in method.branches:
            kinds = {kernels for kernels in branch.kernels if kernels}
            if len(kinds) > 1 and not _BY_TYPE.search(branch.condition):
                names = ", ".join(sorted({name for kernels in kinds for name in kernels}))
                yield Place.in_method(method, branch.line, f"'{branch.condition}' chooses between {names}")


def _advertises(facts: ClassFacts) -> bool | None:
    """Whether a class offers tactics; None where it only declares that, and its definition was not read."""
    found = [facts.methods[name] for name in _TACTICS if name in facts.methods]
    if not found:
        return None if set(_TACTICS) & facts.declared else False
    return any(returned.value not in _NO_TACTICS for returned in found[0].returns)


@class_rule(
    "L09",
    "tactics and no timing cache ID",
    why="without one every build times every tactic again",
    fix="set timing_cache_id (getTimingCacheID) to a text of the parameters that change how long a run takes, or to ''",
)
def find_missing_cache_id(facts: ClassFacts) -> Iterator[Place]:
    """Classes that advertise tactics and are not cached."""
    is_cached = bool({"timing_cache_id", "get_timing_cache_id"} & facts.declared)
    if facts.is_v3 and _advertises(facts) and not is_cached:
        yield Place(facts.path, facts.line, f"{facts.name} advertises tactics")


@class_rule(
    "L16",
    "an exception leaves a plugin method",
    why="every method of the interfaces is noexcept: a throw that is not caught there ends the process",
    fix="catch it in the method, log it, and return the value that stands for failure",
)
def find_throws(facts: ClassFacts) -> Iterator[Place]:
    """Throws in methods of the interfaces, in C++."""
    if facts.language is not Language.CPP or not (facts.is_plugin or facts.is_creator):
        return
    for method in facts.methods.values():
        if method.name not in (snake_case(facts.name), "destroy") and "noexcept" in method.text.partition("{")[0]:
            yield from (Place.in_method(method, line, f"{method.name} throws") for line in method.throws)
