"""docs/cuda-operators.md says what the registries say, and leaves no operator of ONNX Runtime undecided."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dovetail.provider.loader import get_provider
from dovetail_cuda.lower.registry import load_registry
from tests.cuda.categories import CATEGORIES

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/cuda-operators.md").read_text(encoding="utf-8")
CONTRIB = "com.microsoft"


def _read_rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading."""
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def _list_ops(provider: str, domain: str) -> set[str]:
    kernels = load_registry() if provider == "cuda" else get_provider("cpu").kernels
    return {kernel.op for kernel in kernels if kernel.domain == domain}


def test_every_operator_is_decided_as_the_registries_have_it() -> None:
    rows = _read_rows(CONTRIB)
    cuda, cpu = (_list_ops(provider, CONTRIB) for provider in ("cuda", "cpu"))
    decided = {name: decision for name, decision, _ in rows}
    assert len(decided) == len(rows)
    assert {name for name, decision in decided.items() if decision == "here"} == cuda
    assert {name for name, decision in decided.items() if decision == "cpu"} == cpu - cuda
    assert set(decided.values()) == {"here", "cpu", "left", "out"}
    assert all(reason for _, _, reason in rows)


def test_no_operator_of_onnxruntime_is_missing() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime, whose schemas the table lists, is not here")
    version = re.search(r"ONNX Runtime (\d+\.\d+\.\d+)", TEXT)
    assert version is not None
    if onnxruntime.__version__ != version[1]:
        pytest.skip(f"the table lists the operators of ONNX Runtime {version[1]}, not of {onnxruntime.__version__}")
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = {schema.name for schema in state.get_all_operator_schema() if schema.domain == CONTRIB}
    assert {name for name, *_ in _read_rows(CONTRIB)} == schemas


def test_sequences_are_where_the_table_says() -> None:
    (row,) = [row for row in _read_rows("What ONNX Runtime's CUDA plugin leaves out") if "SequenceAt" in row[0]]
    names = set(row[0].split(", "))
    assert row[1] == "here, else cpu"
    assert names <= _list_ops("cpu", "")
    assert not names & _list_ops("cuda", ""), "what is here is here without them"


def test_every_category_has_its_models_and_its_tests() -> None:
    rows = _read_rows("Categories of tests")
    named = {category: operators for category, operators, _ in rows}
    assert set(CATEGORIES) <= set(named)
    for category, models in CATEGORIES.items():
        assert set(named[category].split(", ")) == {name.partition(" of a ")[0] for name in models}, category
    for _, _, tests in rows:
        for path in re.findall(r"`(tests/[^`]+)`", tests):
            assert (ROOT / path).is_file(), path
