"""The strict set, for the safe registry: R57 to R60, of which R58 is judged always, only less strictly."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dovetail.formats import size_bytes
from dovetail.plugin.check.cases.problem import Case
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, call
from dovetail.plugin.check.host.memory import heap_growth_bytes, open_handles, traced_growth_bytes, traced_peak_bytes
from dovetail.plugin.check.lifecycle import Life, Prepared
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.state import changes, state_of
from dovetail.plugin.interfaces import APILanguage
from dovetail.rules import Blocked, Broken, NotApplicable

__all__: list[str] = []

_LARGE_BYTES: Final = 256 << 10
_MOST_RUN_BYTES: Final = 32 << 10
_GROWTH_RUNS: Final = 16
_MOST_GROWTH_BYTES: Final = 64
_LEAK_BYTES: Final = 1024


@rule(
    "R57",
    "enqueue allocates no memory that grows with the tensors",
    slug="strict-allocations",
    why="In a safe engine all memory is reserved before the first run.",
    fix="compute into the outputs (out=...) and use the workspace for what is in between",
    strict=True,
)
def judge_allocations(subject: CheckedPlugin) -> str:
    """Measure the peak of one run with large inputs, after a warm-up."""
    prepared, case = _prepare_large(subject)
    bench = prepared.bench(case)  # owns the memory whose addresses are passed
    arguments = bench.arguments()
    runtime = prepared.specimen.runtime
    call(runtime, "enqueue", *arguments)
    bench.wait()
    peak_bytes = traced_peak_bytes(lambda: call(runtime, "enqueue", *arguments))
    bench.wait()
    if peak_bytes > _MOST_RUN_BYTES:
        raise Broken(
            f"inputs {', '.join(map(str, case))}: enqueue allocated {peak_bytes} bytes, "
            f"expected at most {_MOST_RUN_BYTES}"
        )
    return f"{peak_bytes} bytes"


def _prepare_large(subject: CheckedPlugin) -> tuple[Prepared, Case]:
    """An object with inputs so large that a temporary array stands out from the objects that any call makes."""
    main = subject.main_cell.case
    nbytes = _count_bytes(subject.life, main)
    factor = -(-_LARGE_BYTES // max(nbytes, 1))
    larger: Case = tuple((shape[0] * factor, *shape[1:]) if shape else shape for shape in main)
    for case in (larger, main):
        if _count_bytes(subject.life, case) < _LARGE_BYTES // 4:
            continue
        life = subject.life.with_problem(replace(subject.life.problem, cases=(case,)))
        try:
            prepared = life.prepare()
            prepared.reshape(case)
            prepared.run(case)
        except (Blocked, CallbackRaised):
            continue
        return prepared, case
    raise NotApplicable("the inputs are too small to tell; give larger ones with --shapes")


def _count_bytes(life: Life, case: Case) -> int:
    return sum(size_bytes(shape, dtype) for shape, dtype in zip(case, life.problem.types, strict=True))


@rule(
    "R58",
    "Memory does not grow from run to run",
    slug="strict-growth",
    why="An engine runs for months; a few bytes a run fill any memory.",
    fix="keep nothing per run: no list that is appended to, no cache without a bound, no file or thread left open",
)
def judge_growth(subject: CheckedPlugin) -> str:
    """Compare what is held before and after many runs."""
    subject.require_finished()
    prepared, case = subject.life.prepare(), subject.main_cell.case
    prepared.reshape(case)
    bench = prepared.bench(case)  # owns the memory whose addresses are passed
    arguments = bench.arguments()
    runtime = prepared.specimen.runtime
    before = open_handles()

    def run() -> None:
        call(runtime, "enqueue", *arguments)
        bench.wait()

    limit_bytes = _MOST_GROWTH_BYTES if subject.strict else _LEAK_BYTES
    growth_bytes = traced_growth_bytes(run, times=_GROWTH_RUNS)
    if growth_bytes <= limit_bytes * _GROWTH_RUNS and getattr(runtime, "api_language", None) is APILanguage.CPP:
        # The heap is shared with the interpreter, so it cannot be judged as strictly.
        limit_bytes = _LEAK_BYTES
        growth_bytes = heap_growth_bytes(run, times=_GROWTH_RUNS)
    if growth_bytes > limit_bytes * _GROWTH_RUNS:
        raise Broken(f"{_GROWTH_RUNS} runs left {growth_bytes} bytes behind, {growth_bytes // _GROWTH_RUNS} a run")
    for name, count in open_handles().items():
        if count - before[name] >= _GROWTH_RUNS // 2:
            raise Broken(f"{_GROWTH_RUNS} runs left {count - before[name]} {name} open")
    _require_no_handles_by_shape(prepared, case)
    return f"{max(growth_bytes, 0)} bytes after {_GROWTH_RUNS} runs"


def _require_no_handles_by_shape(prepared: Prepared, case: Case) -> None:
    """Shapes change as often as batches do, so what is opened for them must be let go of too."""
    prepared.reshape(case)
    before = open_handles()
    for _ in range(_GROWTH_RUNS):
        prepared.reshape(case)
    for name, count in open_handles().items():
        if count - before[name] >= _GROWTH_RUNS // 2:
            raise Broken(f"{_GROWTH_RUNS} calls of on_shape_change left {count - before[name]} {name} open")


@rule(
    "R59",
    "enqueue changes no attribute of the object",
    slug="strict-state",
    why="A safe engine must give the same answer whatever ran before.",
    fix="set attributes in on_shape_change and only read them in enqueue",
    strict=True,
)
def judge_state(subject: CheckedPlugin) -> None:
    """Compare the object before and after a run."""
    prepared, case = subject.life.prepare(), subject.main_cell.case
    prepared.reshape(case)
    before = state_of(prepared.specimen)
    prepared.run(case)
    changed = changes(before, state_of(prepared.specimen))
    if changed:
        raise Broken(f"enqueue changed the object: {changed[0]}")


@rule(
    "R60",
    "destroy may be called again",
    slug="strict-destroy-twice",
    why="When an engine is torn down after a failure, an object may be reached by more than one owner.",
    fix="forget what was freed, so that a second call finds nothing to do",
    strict=True,
)
def judge_destroy_twice(subject: CheckedPlugin) -> None:
    """Destroy a new object twice."""
    specimen = subject.make()
    specimen.is_destroyed = True
    call(specimen.plugin, "destroy")
    try:
        call(specimen.plugin, "destroy")
    except CallbackRaised as raised:
        raise Broken(f"the second time {raised}") from None
