"""Lines and tables: aligned where output is read by programs, drawn where a person looks."""

from __future__ import annotations

import io
import json

import pytest

from dovetail.cli.answers import dump_document
from dovetail.cli.screen import Screen
from dovetail.escapes import escape

ROWS = [("a[red]b[/red]", 1), ("long name", 1000)]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return _Terminal()


def _draw(stream: io.StringIO) -> str:
    screen = Screen(stream)
    screen.title("Title")
    screen.table(("name", "count"), ROWS, right=(1,))
    return stream.getvalue()


def test_a_pipe_gets_aligned_columns() -> None:
    assert _draw(io.StringIO()) == ("Title\nname           count\na[red]b[/red]      1\nlong name       1000\n")


def test_a_terminal_gets_headings_in_bold(terminal: _Terminal) -> None:
    shown = _draw(terminal)
    assert shown.startswith("\x1b[1mTitle\x1b[0m\n\x1b[1mname           count\x1b[0m\n")
    assert "\na[red]b[/red]      1\n" in shown  # what a name says is no markup


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_escapes_where_they_are_not_wanted(
    name: str, value: str, terminal: _Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert _draw(terminal) == _draw(io.StringIO())


def test_an_empty_no_color_says_nothing(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b[1m" in _draw(terminal)


LONG = [f"model/encoder/layer_{n}/attention/self/query/a_long_name_of_an_operation" for n in range(12)]


@pytest.mark.parametrize("columns", ["", "80", "120"])
def test_tables_keep_to_the_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    rows = [(name, "Conv", 1234.5, "no kernel takes it, as the weights are not constant " * 2) for name in LONG]
    Screen(stream).table(("layer", "op", "time", "why"), rows, right=(2,), prose=(3,))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= int(columns or 80)
    assert sum("1234.5" in line for line in lines) == len(rows)
    cut = [line.split()[0] for line in lines[1:] if "1234.5" in line]
    assert len(set(cut)) == len(rows)  # names that differ in the middle only can still be told apart
    assert all(name.startswith("model") and name.endswith("operation") for name in cut if columns == "120")


def test_facts_are_wrapped_at_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    Screen(stream).facts([("note", "a sentence that is longer than a line has room for")])
    assert stream.getvalue() == "note  a sentence that is longer than a\n      line has room for\n"


def test_wide_characters_take_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    Screen(stream).table(("name", "n"), [("日本語の名前はとても長いことがあります", 1)], right=(1,))
    line = stream.getvalue().splitlines()[1]
    assert line.endswith("  1")
    assert "..." in line
    assert sum(2 if ord(char) > 0x2E7F else 1 for char in line) == 30


def test_facts_are_aligned() -> None:
    stream = io.StringIO()
    Screen(stream).facts([("a", 1), ("long", "x\x1by")])
    assert stream.getvalue() == "a     1\nlong  x\\x1by\n"


def test_a_title_is_set_off_from_what_is_above() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.title("one")
    screen.title("two")
    assert stream.getvalue() == "one\n\ntwo\n"


@pytest.mark.parametrize("text", ["plain", "größe", "日本", "two\nlines"])
def test_escape_leaves_text_alone(text: str) -> None:
    assert escape(text) == text


def test_escape_escapes_what_a_terminal_obeys() -> None:
    assert escape("\x1b]0;t\x07\r\x9b\u202e") == "\\x1b]0;t\\x07\\r\\x9b\\u202e"


def test_documents_are_json() -> None:
    text = dump_document({"a": float("nan"), "b": (1, float("-inf")), "c": {"d": 1.5}})
    assert json.loads(text) == {"a": "nan", "b": [1, "-inf"], "c": {"d": 1.5}}
