"""The page: one file, nothing from elsewhere, and nothing in it that a plan wrote can run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli import main
from dovetail.report.page import make_page
from tests.support.report_models import HOSTILE, build_plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plan(tmp_path_factory.mktemp("page"), "cpu.plan", "--providers", "cpu")


def _report(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["report", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def _data(page: str) -> dict[str, Any]:
    (packed,) = re.findall(r'<script id="data" type="text/plain">([A-Za-z0-9+/=]*)</script>', page)
    document: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return document


def test_a_page_is_written(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "report.html"
    code, out, _ = _report(str(plan), "-o", str(target), capsys=capsys)
    assert code == 0
    assert "not timed: --profile" in out
    page = target.read_text(encoding="utf-8")
    (engine,) = _data(page)["engines"]
    assert HOSTILE in {node["name"] for node in engine["programs"][0]["nodes"]}
    assert HOSTILE not in page
    assert "window.attacked" not in page


def test_the_policy_names_the_only_script_and_style(plan: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    assert main(["report", str(plan), "-o", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_a_page_names_no_other_place() -> None:
    page = make_page([])
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of a format, which is not fetched"
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", page)


def test_equal_reports_are_equal_bytes(plan: Path, tmp_path: Path) -> None:
    pages = [tmp_path / "a.html", tmp_path / "b.html"]
    for page in pages:
        assert main(["report", str(plan), "-o", str(page)]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_the_document_for_scripts(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _report(str(plan), str(plan), "-o", str(tmp_path / "r.html"), "--json", capsys=capsys)
    document = json.loads(out)
    assert code == 0
    assert [engine["schema"] for engine in document["engines"]] == ["dovetail.report/1"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{plan}", "{plan}", "{plan}"], "a report compares two plans at most"),
        (["missing.plan"], "there is no such file"),
        (["{plan}", "--times", "{plan}", "--times", "{plan}"], "there is one file of times for each plan"),
        (["{plan}", "--times", "{plan}"], "this is no answer of a benchmark"),
        (["{model}"], "error"),
    ],
)
def test_mistakes_have_one_message(
    plan: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(plan=plan, model=plan.with_name("mixed.onnx")) for word in words]
    code, out, err = _report(*given, "-o", str(tmp_path / "r.html"), capsys=capsys)
    assert code != 0
    assert message in err
    assert "Traceback" not in err + out
    assert not (tmp_path / "r.html").exists()


def test_a_report_that_measures(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(plan), "--plugins", str(plan.with_name("layers.py")), "--profile", "--duration", "0.05", "--json"]
    code, out, err = _report(*words, "-o", str(tmp_path / "r.html"), capsys=capsys)
    assert code == 0, err
    (engine,) = json.loads(out)["engines"]
    assert engine["bench"]["peaks"]["cpu"]["flops"] > 1e8
    assert engine["bench"]["peaks"]["cpu"]["bytes"] > 1e8
    assert all(node["time_us"] > 0 for node in engine["programs"][0]["nodes"] if "parent" not in node)
