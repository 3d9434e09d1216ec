"""Lines and tables: aligned where output is read by programs, drawn where a person looks."""

from __future__ import annotations

import io
import json
import sys

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


def test_a_terminal_gets_a_drawing(terminal: _Terminal) -> None:
    pytest.importorskip("rich")
    shown = _draw(terminal)
    assert "\x1b[1m" in shown
    assert "─" in shown
    assert "a[red]b[/red]" in shown  # what a name says is no markup


def test_no_color(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = _draw(terminal)
    assert "\x1b[3" not in shown
    assert "─" in shown


def test_a_terminal_without_rich_gets_columns(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert "─" not in _draw(terminal)


def test_a_dumb_terminal_gets_columns(terminal: _Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "─" not in _draw(terminal)


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
