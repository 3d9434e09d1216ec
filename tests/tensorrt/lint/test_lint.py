"""Files and folders, headers, comments, answers and exit codes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli.answers import show_answer
from dovetail.errors import InputError, UsageError
from dovetail_tensorrt.lint import RULES, command, lint_paths
from dovetail_tensorrt.lint.cpp_source import read_cpp
from dovetail_tensorrt.migrate.module import migrate_source
from tests.tensorrt.v2_files import FILES

ROOT = Path(__file__).parents[3]
BAD = "int32_t P::enqueue(void const* const* inputs) noexcept\n{\n  cudaMalloc(&x, 4);\n  return 0;\n}\n"


def call(*words: str) -> Any:
    parser = argparse.ArgumentParser()
    command.declare(parser)
    args = parser.parse_args(list(words))
    return args.run(args)


def test_there_is_no_false_alarm_on_the_examples() -> None:
    result = lint_paths([ROOT / "examples"])
    assert result.findings == ()
    assert len(result.files) > 10


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_migrated_plugins_have_no_findings(file: Any, tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(migrate_source(file.path.read_text()).code)
    assert lint_paths([path]).findings == ()
    assert {finding.rule for finding in lint_paths([file.path]).findings} == {"L11"}


def test_a_class_is_known_from_the_header_that_a_source_includes(tmp_path: Path) -> None:
    (tmp_path / "p.h").write_text("#pragma once\nclass P : public IPluginV3OneRuntime { int32_t enqueue(); };\n")
    (tmp_path / "p.cpp").write_text(f'#include "p.h"\n{BAD}')
    found = lint_paths([tmp_path / "p.cpp"]).findings
    assert [(Path(finding.path).name, finding.line, finding.rule) for finding in found] == [("p.cpp", 4, "L01")]
    assert lint_paths([tmp_path]).findings == found
    (tmp_path / "q.cpp").write_text(BAD)
    assert lint_paths([tmp_path / "q.cpp"]).findings == ()


def test_comments_silence_findings(tmp_path: Path) -> None:
    head = "class P : public IPluginV3OneRuntime { int32_t enqueue(); };\n"
    for comment, is_silent in (("ignore[L01]", True), ("ignore", True), ("ignore[L02]", False)):
        path = tmp_path / "p.cpp"
        path.write_text(head + BAD.replace("&x, 4);", f"&x, 4);  // dovetail: {comment}"))
        assert (lint_paths([path]).findings == ()) is is_silent


def test_the_command_shows_file_line_rule_and_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.cpp"
    path.write_text("class P : public IPluginV3OneRuntime { int32_t enqueue(); };\n" + BAD)
    answer = call(str(path))
    assert answer.exit_code == 2
    show_answer(answer, as_json=False)
    text = capsys.readouterr().out
    assert f"{path}:4: L01 allocation in enqueue: enqueue calls cudaMalloc\n" in text
    assert "  fix: ask for scratch memory in get_workspace_size" in text
    show_answer(answer, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["findings"][0]["rule"] == "L01"
    assert document["findings"][0]["line"] == 4
    assert document["findings"][0]["fix"].startswith("ask for scratch memory")
    assert call(str(path), "--ignore", "l01").exit_code == 0


def test_the_rules_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(call("--list"), as_json=True)
    assert [rule["id"] for rule in json.loads(capsys.readouterr().out)["rules"]] == sorted(RULES)
    show_answer(call("--list"), as_json=False)
    assert "L17" in capsys.readouterr().out


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing to judge"):
        call()
    with pytest.raises(UsageError, match="there is no rule 'L99'"):
        call(str(tmp_path), "--ignore", "L99")
    with pytest.raises(InputError, match="there is no such file or folder"):
        call(str(tmp_path / "none"))
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InputError, match="this is no source that can be judged"):
        call(str(tmp_path / "a.txt"))
    (tmp_path / "a.py").write_text("def f(:\n")
    with pytest.raises(InputError, match=r"a.py:1: this is no Python"):
        call(str(tmp_path / "a.py"))
    (tmp_path / "b.py").write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match="no UTF-8 text"):
        call(str(tmp_path / "b.py"))
    answer = call(str(tmp_path))
    assert len(answer.document["unread"]) == 2
    assert answer.exit_code == 0


def test_a_class_whose_header_is_not_among_the_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "include").mkdir()
    source, header = tmp_path / "src" / "wait.cpp", tmp_path / "include" / "wait.h"
    source.write_text(
        '#include "lib/wait.h"\nint32_t Wait::enqueue(void* workspace, cudaStream_t stream) noexcept\n'
        "{\n    cudaStreamSynchronize(stream);\n    return 0;\n}\nint32_t Other::count() const\n{\n    return 1;\n}\n"
    )
    header.write_text(
        "class Wait : public IPluginV3OneRuntime\n{\n    int32_t enqueue(void*, cudaStream_t) noexcept;\n};\n"
    )
    alone = call(str(source))
    assert alone.document["findings"] == []
    assert alone.document["unread"] == [
        f"{source}: the methods of Wait, whose class is in none of the files; give its header too"
    ]
    for words in ((str(source), str(header)), (str(header), str(source))):
        both = call(*words)
        assert [finding["rule"] for finding in both.document["findings"]] == ["L02"], words
        assert both.document["unread"] == []


def test_comments_may_be_in_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_bytes("class A : public IPluginV2IOExt {}; // 中文\n".encode("gbk"))
    (tmp_path / "b.py").write_bytes("# -*- coding: latin-1 -*-\n# ü\nx = 1\n".encode("latin-1"))
    answer = call(str(tmp_path))
    assert [finding["rule"] for finding in answer.document["findings"]] == ["L11"]
    assert answer.document["unread"] == []


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("class P:IPluginV3{}()<>;=*&\"'/\n enqueue(){new x;}#include"), max_size=200))
def test_any_text_can_be_read_as_cpp(text: str) -> None:
    read_cpp(Path("x.cpp"), text)


def test_a_whole_cpp_plugin_that_keeps_the_rules_has_no_findings() -> None:
    folder = Path(__file__).parent / "sources"
    assert lint_paths([folder]).findings == ()
    facts, outside = read_cpp(folder / "pad_plugin.cu", (folder / "pad_plugin.cu").read_text())
    assert {method.name for method in outside["PadPlugin"]} >= {"clone", "enqueue", "destroy", "on_shape_change"}
    run = next(method for method in outside["PadPlugin"] if method.name == "enqueue")
    assert [call.callee for call in run.calls if call.is_launch] == ["padTiles", "padRows"]
    assert facts.functions.keys() >= {"padRows"}


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("cudaMemcpyAsync(workspace", "cudaMalloc(&workspace, 4); cudaMemcpyAsync(workspace", "L01"),
        ("return cudaPeekAtLastError()", "cudaStreamSynchronize(stream);\n    return cudaPeekAtLastError()", "L02"),
        ("return twin.release();", "cudaMalloc(&twin->mTable, 4); return twin.release();", "L03"),
        ("    return clone();", "    return this;", "L04"),
        ("twin->mTactic = mTactic;", "", "L12"),
        ("static_cast<float const*>(inputs[0])", "static_cast<float*>(const_cast<void*>(inputs[0]))", "L10"),
        ("    initialize();\n", "", "L07"),
        ("    mTactic = tactic;\n    return 0;", '    throw std::runtime_error("no");', "L16"),
        ("size = *static_cast<int32_t const*>(field.data);", "mSize = static_cast<int32_t const*>(field.data);", "L06"),
    ],
)
def test_one_fault_in_a_whole_cpp_plugin_is_found(old: str, new: str, rule: str, tmp_path: Path) -> None:
    folder = Path(__file__).parent / "sources"
    source = (folder / "pad_plugin.cu").read_text()
    assert old in source
    (tmp_path / "pad_plugin.h").write_text((folder / "pad_plugin.h").read_text())
    (tmp_path / "pad_plugin.cu").write_text(source.replace(old, new))
    found = lint_paths([tmp_path / "pad_plugin.cu"]).findings
    assert [finding.rule for finding in found] == [rule], found
