"""The node tests of onnx inside ONNX Runtime: which of them run on Dovetail alone, and what becomes of the others.

``python -m tests.conformance.ort_ep.sweep --route kernels -k test_resize`` prints counts and what did not run whole. A
process makes the cases and forks one after another that runs some of them, so that a crash costs one case.

ONNX Runtime is asked for as much as it has: opsets under development are allowed, and a model that is newer than any it
knows is stamped with the newest that it does, so that it refuses what it lacks and not a number.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx

from tests.conformance.onnx_backend.harness import Case, Skip, compare, load_cases, load_skips

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = [
    "NEWEST_IR",
    "NEWEST_OPSET",
    "ROUTES",
    "Outcome",
    "allow_newest",
    "find_skip",
    "node_cases",
    "stamp",
    "try_case",
]

ROUTES: Final[Mapping[str, Mapping[str, str]]] = {"compile": {}, "kernels": {"route": "kernels"}}
"""Name -> options of the execution provider."""
NEWEST_IR: Final = 13
NEWEST_OPSET: Final = 27
_CASES_A_PROCESS: Final = 150
_FALLBACK: Final = "fallback to CPU EP has been explicitly disabled"
_NICE: Final = 10


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case.

    ``whole``: Dovetail alone ran it, and the results are right. ``refused``: ONNX Runtime says the same without us.
    ``left``: nodes are left to ONNX Runtime, and with its own kernels, where it has some, the results are right.
    ``empty``: ONNX Runtime left no node. ``skipped``: not for a comparison, as in onnx's suite for Dovetail itself.
    ``wrong``, ``failed`` and ``crashed`` are faults.
    """

    name: str
    kind: str
    detail: str = ""


def node_cases() -> list[Case]:
    """The node tests of the installed onnx."""
    return [case for case in load_cases() if case.kind == "node"]


@cache
def _skips() -> list[Skip]:
    return [skip for skip in load_skips() if not skip.run]


def find_skip(case: Case) -> Skip | None:
    """Why a case is not run: its results are random or the operator is out of scope."""
    return next((skip for skip in _skips() if skip.covers(case.name, "cpu")), None)


# models


def allow_newest() -> None:
    """Have ONNX Runtime, which is yet to be imported, take opsets that are under development."""
    os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"


def stamp(model: onnx.ModelProto, *, ir_version: int = NEWEST_IR, opset: int = NEWEST_OPSET) -> bytes:
    """The model with no newer version in it than these."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, ir_version)
    for entry in copy.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(entry.version, opset)
    return copy.SerializeToString()


# one case


def try_case(case: Case, options: Mapping[str, str]) -> Outcome:
    """Run one case in this process, in which the library is registered."""
    model, data_sets = case.load()
    data = stamp(model)
    try:
        session = _make_session(data, options, fallback=False)
    except Exception as error:  # noqa: BLE001 - what it says decides what it is
        return _explain(case, data, options, str(error))
    from tests.support.ort_ep import EP, assigned

    found = assigned(session)
    if not found:
        return Outcome(name=case.name, kind="empty")
    if found.keys() != {EP}:
        return Outcome(name=case.name, kind="failed", detail=f"some of it runs elsewhere: {found}")
    return _judge(case, session, data_sets, "whole")


def _make_session(data: bytes, options: Mapping[str, str], *, fallback: bool) -> ort.InferenceSession:
    import onnxruntime as ort

    from tests.support.ort_ep import dovetail_session, session_options

    settings = session_options(fallback=fallback)
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    # Otherwise ONNX Runtime computes some cases while it makes the session, and merges nodes of others.
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return dovetail_session(data, options=settings, claim="all", **options)


def _explain(case: Case, data: bytes, options: Mapping[str, str], said: str) -> Outcome:
    """Why there is no session: ONNX Runtime has none of its own either, or something is left to it."""
    alone = _try_alone(data)
    if alone == said:
        return Outcome(name=case.name, kind="refused", detail=said)
    if _FALLBACK not in said:
        return Outcome(name=case.name, kind="failed", detail=said)
    if alone is not None:
        return Outcome(name=case.name, kind="left", detail=alone)
    return _judge(case, _make_session(data, options, fallback=True), case.load()[1], "left")


def _try_alone(data: bytes) -> str | None:
    """What ONNX Runtime says against a model without us; None when it takes it."""
    from tests.support.ort_ep import reference_session

    try:
        reference_session(data)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is ONNX Runtime's word
        return str(error)
    return None


def _judge(case: Case, session: ort.InferenceSession, data_sets: Sequence[Any], kind: str) -> Outcome:
    try:
        for inputs, expected in data_sets:
            compare(expected, _run(session, inputs), case)
    except AssertionError as error:
        return Outcome(name=case.name, kind="wrong", detail=str(error))
    return Outcome(name=case.name, kind=kind)


# values


def _run(session: ort.InferenceSession, inputs: Sequence[Any]) -> list[Any]:
    ports = (*session.get_inputs(), *session.get_outputs())
    names = [port.name for port in session.get_inputs()]
    if all(port.type.startswith("tensor(") and port.type != "tensor(string)" for port in ports):
        feeds = {name: _to_value(array) for name, array in zip(names, inputs, strict=True)}
        return [_to_array(value) for value in session.run_with_ort_values(None, feeds)]
    arrays = [np.asarray(value) if isinstance(value, np.generic) else value for value in inputs]
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


def _to_value(array: Any) -> ort.OrtValue:
    """A value of any type of numbers, those that NumPy has not and those below a byte included."""
    import ctypes

    import onnxruntime as ort

    tensor = onnx.numpy_helper.from_array(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(tensor.dims), tensor.data_type)
    ctypes.memmove(value.data_ptr(), tensor.raw_data, len(tensor.raw_data))
    return value


def _to_array(value: ort.OrtValue) -> Any:
    import ctypes

    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()) if value.tensor_size_in_bytes() else b""
    return onnx.numpy_helper.to_array(
        onnx.TensorProto(dims=list(value.shape()), data_type=value.element_type(), raw_data=data)
    )


# many cases


def run_cases(cases: Sequence[Case], options: Mapping[str, str]) -> Iterator[Outcome]:
    """The outcomes of cases, in order, each made in one of several processes."""
    wanted = [case for case in cases if find_skip(case) is None]
    yield from (Outcome(name=case.name, kind="skipped") for case in cases if find_skip(case) is not None)
    while wanted:
        count = 0
        for outcome in _run_apart(wanted[:_CASES_A_PROCESS], options):
            count += 1
            yield outcome
        wanted = wanted[count:]


def _run_apart(cases: Sequence[Case], options: Mapping[str, str]) -> Iterator[Outcome]:
    """The outcomes of cases up to the first that ends the process."""
    source, target = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        _work(cases, options, target)
    os.close(target)
    count = 0
    with os.fdopen(source, encoding="utf-8") as lines:
        for line in lines:
            count += 1
            yield Outcome(**json.loads(line))
    _, status = os.waitpid(child, 0)
    if count < len(cases):
        yield Outcome(name=cases[count].name, kind="crashed", detail=f"status {os.waitstatus_to_exitcode(status)}")


def _work(cases: Sequence[Case], options: Mapping[str, str], target: int) -> None:
    """Run cases and write what becomes of them; ends the process."""
    try:
        _prepare()
        with os.fdopen(target, "w", encoding="utf-8") as lines:
            for case in cases:
                print(json.dumps(asdict(_try_any(case, options))), file=lines, flush=True)
    except BaseException:  # noqa: BLE001 - the process is a copy of another, whose work it must not go on with
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _prepare() -> None:
    os.nice(_NICE)
    allow_newest()
    from tests.support.ort_ep import register

    register()


def _try_any(case: Case, options: Mapping[str, str]) -> Outcome:
    try:
        return try_case(case, options)
    except Exception:  # noqa: BLE001 - whatever it is, it is what becomes of the case
        return Outcome(name=case.name, kind="failed", detail=traceback.format_exc())


# the command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run cases and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--route", choices=ROUTES, default="compile")
    parser.add_argument("-k", default="*", help="pattern of names, such as 'test_sequence_*'")
    parser.add_argument("--option", action="append", default=[], help="one more of the execution provider: key=value")
    parser.add_argument("--json", action="store_true", help="print every outcome as a line of JSON")
    chosen = parser.parse_args(arguments)
    pattern = chosen.k if "*" in chosen.k else f"*{chosen.k}*"
    options = {**ROUTES[chosen.route], **dict(one.split("=", 1) for one in chosen.option)}
    cases = [case for case in node_cases() if fnmatch.fnmatchcase(case.name, pattern)]
    counts: Counter[str] = Counter()
    for outcome in run_cases(cases, options):
        counts[outcome.kind] += 1
        if chosen.json:
            print(json.dumps(asdict(outcome)), flush=True)
        elif outcome.kind != "whole":
            print(f"{outcome.kind:8} {outcome.name}: {' '.join(outcome.detail.split())[-200:]}", flush=True)
    if not chosen.json:
        print(dict(counts))
    return int(not counts.keys() <= {"whole", "refused", "left", "empty", "skipped"})


if __name__ == "__main__":
    sys.exit(main())
