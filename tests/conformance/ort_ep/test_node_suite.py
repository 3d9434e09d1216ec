"""onnx's node tests inside ONNX Runtime: each runs on Dovetail alone and right, or is listed with why it does not."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx.parser
import pytest

from tests.conformance.ort_ep.sweep import NEWEST_IR, NEWEST_OPSET, ROUTES, Outcome, stamp

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "inside-onnxruntime.md"
LEAST_WHOLE = 0.88


@dataclass(frozen=True, kw_only=True)
class Line:
    """Cases that do not run on Dovetail alone, what becomes of them instead, and why."""

    test: str
    kind: str
    reason: str
    but_not: str = ""
    routes: Sequence[str] = tuple(ROUTES)

    def covers(self, name: str, route: str) -> bool:
        """Whether a case is meant."""
        is_other = bool(self.but_not) and fnmatch.fnmatchcase(name, self.but_not)
        return route in self.routes and fnmatch.fnmatchcase(name, self.test) and not is_other


def load_lines() -> list[Line]:
    return [Line(**line) for line in tomllib.loads((HERE / "left_out.toml").read_text(encoding="utf-8"))["line"]]


def load_counts() -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = json.loads((HERE / "counts.json").read_text(encoding="utf-8"))
    return counts


def sweep(route: str) -> list[Outcome]:
    words = [sys.executable, "-m", "tests.conformance.ort_ep.sweep", "--route", route, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=1400, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def _find_fault(outcome: Outcome, lines: Sequence[Line]) -> str:
    """What of an outcome is not as the list has it; empty when nothing is."""
    line = next(iter(lines), None)
    said = f"{outcome.name} is {outcome.kind}"
    if len(lines) > 1:
        return f"{outcome.name}: several lines mean it"
    if outcome.kind in ("whole", "skipped"):
        return "" if line is None else f"{said}; take it out of the line '{line.test}' of left_out.toml"
    if line is None or line.kind != outcome.kind:
        return f"{said}, and not listed so: {outcome.detail}"
    return ""


# One test a route, because a sweep is a process of its own and other tests would start it anew in each worker.
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("route", ROUTES)
def test_every_case_runs_on_dovetail_alone_or_is_listed(route: str) -> None:
    outcomes, lines = sweep(route), load_lines()
    faults = [_find_fault(one, [line for line in lines if line.covers(one.name, route)]) for one in outcomes]
    assert not any(faults), "\n".join(filter(None, faults))
    idle = [
        line.test for line in lines if route in line.routes and not any(line.covers(o.name, route) for o in outcomes)
    ]
    assert not idle, f"lines that mean no case: {idle}"
    counts = Counter(outcome.kind for outcome in outcomes)
    assert dict(counts) == load_counts()[route]
    assert counts["whole"] / counts.total() >= LEAST_WHOLE


def test_the_page_shows_the_counts() -> None:
    shown = [int(number.replace(",", "")) for number in re.findall(r"\b\d,\d{3}\b", PAGE.read_text(encoding="utf-8"))]
    counts = load_counts()
    assert shown == [sum(counts["compile"].values()), counts["compile"]["whole"], counts["kernels"]["whole"]]


def test_every_line_has_a_reason() -> None:
    assert [line.test for line in load_lines() if not line.reason] == []


@pytest.mark.parametrize(("ir_version", "opset"), [(NEWEST_IR + 1, NEWEST_OPSET), (NEWEST_IR, NEWEST_OPSET + 1)])
def test_models_are_stamped_with_the_newest_versions_that_onnx_runtime_takes(ir_version: int, opset: int) -> None:
    model = onnx.parser.parse_model("""<ir_version: 99, opset_import: ["": 99]>
        graph (float[2] x) => (float[2] y) { y = Identity(x) }""")
    program = "import sys, onnxruntime as o; o.InferenceSession(sys.stdin.buffer.read())"

    def is_taken(data: bytes) -> bool:
        settings = os.environ | {"ALLOW_RELEASED_ONNX_OPSET_ONLY": "0"}
        done = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, env=settings)
        return not done.returncode

    assert is_taken(stamp(model))
    assert not is_taken(stamp(model, ir_version=ir_version, opset=opset)), "raise the version in sweep.py"
