"""``dovetail parity``: the counts on top, the differences below, and three kinds of files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main


def _ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["parity", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_counts_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    document = _ask(capsys, "cpu", "onnx")
    total, rows = document["total"], document["ops"]
    assert total["both"] + total["only_a"] == total["a"]
    assert total["both"] + total["only_b"] == total["b"] == total["b_of_onnx"]
    assert total["a_of_onnx"] / total["onnx"] > 0.9
    assert sum(counts["both"] for counts in document["domains"]) == total["both"]
    assert sum(row["status"] == "only_a" for row in rows) == total["only_a"]
    relu = next(row for row in rows if row["op"] == "Relu")
    assert (relu["status"], relu["a"]["versions"]) == ("versions", [6, 13, 14])


def test_text_has_counts_on_top_and_differences_below(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "cpu", "onnx", "--domain", "ai.onnx"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "domain"
    assert "both" in lines[0]
    assert "versions differ" in lines[0]
    assert lines[1].startswith("ai.onnx ")
    relu = next(line for line in lines if line.startswith("Relu "))
    assert relu.split()[1:3] == ["6..14", "1..14"]


def test_one_operator_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "cpu", "onnx", "--op", "Relu"]) == 0
    shown = capsys.readouterr().out
    assert "ai.onnx::Relu" in shown
    assert "cpu and onnx" in shown
    assert main(["parity", "cpu", "cpu", "--op", "Gradient"]) == 0
    assert "neither cpu nor cpu has it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "name", "near"), [("--op", "Rleu", "'Relu'"), ("--domain", "ai.onx", "'ai.onnx'"), ("--op", "", "")]
)
def test_a_misspelt_operator_or_domain_is_an_error(
    option: str, name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parity", "cpu", "onnx", option, name]) == 1
    shown = capsys.readouterr().err
    assert "there is no" in shown
    assert near in shown


def test_a_provider_and_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "cpu", "cpu", "--domain", "ai.onnx"]) == 0
    assert "no operator is covered differently" in capsys.readouterr().out


def test_onnxruntime_is_read_from_its_own_registry(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the provider needs it")
    document = _ask(capsys, "cpu", "onnxruntime")
    rows = {(row["domain"], row["op"]): row for row in document["ops"]}
    assert rows["ai.onnx", "Relu"]["b"]["versions"][-1] == 14
    assert 28 not in rows["ai.onnx", "Cast"]["b"]["versions"]  # an open range is for the schema it starts at
    assert rows["com.microsoft", "FusedMatMul"]["status"] in ("same", "types")


@pytest.mark.parametrize("suffix", [".csv", ".json", ".md"])
def test_exports_hold_every_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    path = tmp_path / "reports" / f"parity{suffix}"
    document = _ask(capsys, "cpu", "onnx", "--domain", "ai.onnx", "--export", str(path))
    text = path.read_text(encoding="utf-8")
    ops = [row["op"] for row in document["ops"]]
    if suffix == ".csv":
        rows = list(csv.DictReader(text.splitlines()))
        assert [row["op"] for row in rows] == ops
        assert next(row for row in rows if row["op"] == "Relu")["versions_a"] == "6 13 14"
    elif suffix == ".json":
        assert json.loads(text) == document
    else:
        assert sum(line.startswith("| ai.onnx | ") for line in text.splitlines()) == len(ops)


def test_what_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["parity", "cpu", "nobody"]) == 1
    assert "there is no provider 'nobody'" in capsys.readouterr().err
    assert main(["parity", "cpu", "onnx", "--export", str(tmp_path / "x.xlsx")]) == 1
    assert ".csv or .json or .md" in capsys.readouterr().err
    assert main(["parity", "cpu"]) == 1
