"""Bad bytes become one error that names what is wrong; names from files reach no terminal as they are."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.build.calibrate.calibration_cache import decode_cache
from dovetail.build.tune.cache import TimingCache
from dovetail.decoding import judging, walk_json
from dovetail.errors import DovetailError, InternalError, ModelError, PlanCorruptError, ResourceError
from dovetail.loggers import Logger, Severity
from dovetail.plan.container import PlanFile, plan_bytes
from dovetail.plan.manifest import decode_manifest
from dovetail.plugin.carried.payload import decode_payload

BAD = {
    "half a character": b'{"a": "\xff"}',
    "half a pair": b'{"a": "\\ud800"}',
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "long number": b'{"format_version": ' + b"9" * 10_000 + b"}",
    "long exponent": b'{"format_version": 1e999999}',
    "nothing": b"",
    "zeros": bytes(100),
    "null": b"null",
    "list": b"[]",
    "cut": b'{"format_version": [1',
}
READERS: dict[str, Callable[[bytes], object]] = {
    "manifest": decode_manifest,
    "manifest in a plan": lambda text: decode_manifest(PlanFile.from_bytes(plan_bytes(text, [])).manifest),
    "header": lambda text: PlanFile.from_bytes(len(text).to_bytes(8, "little") + text),
    "timing cache": lambda text: TimingCache(text or b" "),
    "calibration cache": decode_cache,
    "library": lambda text: decode_payload(text, where="library 'x'"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("bad", BAD)
def test_bad_text_is_an_error_that_names_it(reader: str, bad: str) -> None:
    if reader == "manifest in a plan" and bad == "half a character":
        pytest.skip("no writer of ours makes such a plan")
    with pytest.raises(DovetailError) as caught:
        READERS[reader](BAD[bad])
    assert not isinstance(caught.value, InternalError)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "raised",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        RecursionError("deep"),
        AssertionError(),
        IndexError("list index out of range"),
        KeyError("k\x1b[2J"),
        OverflowError("int too large"),
        ZeroDivisionError("division"),
        msgspec.DecodeError("malformed"),
        InternalError("a step is wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_is_raised_over_bad_content_is_named(raised: Exception) -> None:
    def fail() -> None:
        with judging(lambda reason: PlanCorruptError(f"bad: {reason}")):
            raise raised

    with pytest.raises(PlanCorruptError, match=r"^bad: .") as caught:
        fail()
    assert caught.value.__cause__ is raised
    assert "\x1b" not in str(caught.value)


def test_memory_that_runs_out_is_no_damage() -> None:
    def fail() -> None:
        with judging(PlanCorruptError):
            raise MemoryError

    with pytest.raises(ResourceError, match="memory ran out"):
        fail()


def test_errors_of_dovetail_and_interrupts_pass() -> None:
    for error in (ModelError("x"), KeyboardInterrupt()):
        with pytest.raises(type(error)), judging(PlanCorruptError):
            raise error


def test_every_object_is_shown_with_keys_that_occur_twice() -> None:
    seen: list[list[str]] = []
    text = json.dumps({"a": [{"b": 1}]}).encode().replace(b'"b": 1', b'"b": 1, "b": 2')
    walk_json(text, lambda pairs: seen.append([key for key, _ in pairs]), PlanCorruptError)
    assert seen == [["b", "b"], ["a"]]


@given(st.text())
def test_no_message_makes_a_terminal_do_anything(name: str) -> None:
    error = ModelError(f"node {name}", where=name, expected=name, got=name, fix=name)
    shown = str(error)
    assert not {character for character in shown if ord(character) < 32} - {"\n"}
    assert "\n" not in (error.where or "")
    assert not {"\x7f", "\x9b", "\u202e", "\u2066"} & set(shown)
    shown.encode()


def test_logged_names_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    Logger().log(Severity.WARNING, "layer \x1b[2J\u202e\ud800")
    assert r"layer \x1b[2J\u202e\ud800" in capsys.readouterr().err
