"""The check runs in a watched copy of the process: what hangs, crashes or prints there ends as a finding or a note."""

from __future__ import annotations

import ctypes
import inspect
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import UsageError
from dovetail.plugin.arrays import as_array
from dovetail.plugin.check import check_creator, check_path, check_plugin
from dovetail.plugin.check.isolation import check as isolated_check
from dovetail.plugin.check.isolation.journal import Journal
from tests.null.plugin.check.good import Scale, creator_of

INPUTS: dict[str, Any] = {"fields": {"alpha": 0.5}, "shapes": ["2x4", "1x4"], "types": ["FLOAT"]}


def _line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


class HangsInSecondTactic(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        while self.tactic == 2:
            time.sleep(0.01)
        super().enqueue(*arguments)


def test_a_hang_names_the_callback_the_line_and_the_inputs() -> None:
    start = time.monotonic()
    report = check_creator(creator_of(HangsInSecondTactic), timeout_s=0.5, **INPUTS)
    assert time.monotonic() - start < 20
    assert report.failed_ids == {"R61"}
    message = report.outcome("R61").message
    assert "enqueue did not return within 0.5 s" in message
    assert f"test_isolation.py:{_line_of(HangsInSecondTactic, 'time.sleep')}" in message
    assert "inputs (2, 4) of FLOAT, formats LINEAR LINEAR, tactic 2" in message


class CrashesInClone(Scale):
    def clone(self) -> Any:
        return ctypes.string_at(8)


def test_a_crash_names_the_rule_that_was_judged_and_keeps_what_was_judged_before() -> None:
    report = check_creator(creator_of(CrashesInClone), **INPUTS)
    assert report.failed_ids == {"R61"}
    message = report.outcome("R61").message
    assert "clone ended the process with SIGSEGV" in message
    assert f"test_isolation.py:{_line_of(CrashesInClone, 'string_at')}" in message
    assert "judged then: R24 (clone gives a new object" in message
    assert report.outcome("R23").status == "passed"
    assert report.outcome("R30").message == "not judged: the process ended before, see R61"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("status", [0, 3])
def test_leaving_the_process_is_seen_whatever_the_status(status: int) -> None:
    class Leaves(Scale):
        def configure_plugin(self, in_: Any, out: Any) -> Any:
            os._exit(status)

    message = check_creator(creator_of(Leaves), **INPUTS).outcome("R61").message
    assert f"configure_plugin ended the process with exit code {status}" in message


class WritesFarAway(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        ctypes.memset(outputs[0] - (64 << 20), 1, 64 << 20)


def test_a_write_that_no_guard_holds_is_a_finding() -> None:
    report = check_creator(creator_of(WritesFarAway), **INPUTS)
    assert report.failed_ids == {"R61"}
    assert "ended the process with SIG" in report.outcome("R61").message


def test_what_a_plugin_prints_is_noted_and_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    class Prints(Scale):
        def on_shape_change(self, in_: Any, out: Any) -> Any:
            os.write(1, b"hello\n")

    report = check_creator(creator_of(Prints), **INPUTS)
    assert report.ok, report.render()
    assert any(note.startswith("the plugin printed ") and note.endswith("the first: hello") for note in report.notes)
    assert "hello" not in capfd.readouterr().out


def test_an_object_that_exists_only_here_is_checked_in_the_copy() -> None:
    seen: list[int] = []

    class Here(Scale):
        def on_shape_change(self, in_: Any, out: Any) -> Any:
            seen.append(os.getpid())

    assert check_plugin(Here, shapes=["2x4"]).ok
    assert seen == []
    report = check_plugin(Here, shapes=["2x4"], isolate=False)
    assert report.ok
    assert set(seen) == {os.getpid()}
    assert report.outcome("R65").message.startswith("this process cannot be copied")
    assert not any("checked in this process" in note for note in report.notes)


def test_a_system_that_cannot_copy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_check, "CAN_ISOLATE", False)
    report = check_creator(creator_of(Scale), **INPUTS)
    assert report.ok, report.render()
    assert report.notes[-1].startswith("checked in this process, which cannot be copied")


def test_errors_of_the_caller_come_back_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file") as caught:
        check_path(str(tmp_path / "none.py"))
    assert caught.value.fix == "check the path"


def test_a_file_that_ends_the_process_when_imported(tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text("import os\nos._exit(5)\n")
    message = check_path(str(tmp_path / "leaves.py")).outcome("R61").message
    assert message.startswith("importing or creating the plugin ended the process with exit code 5")


def test_a_journal_outlives_who_wrote_it() -> None:
    journal = Journal()
    pid = os.fork()
    if not pid:
        journal.rule_id, journal.situation = "R40", "inputs (2, 4)"
        journal.enter("enqueue")
        os._exit(0)
    os.waitpid(pid, 0)
    assert (journal.rule_id, journal.situation) == ("R40", "inputs (2, 4)")
    assert [entry.method for entry in journal.running()] == ["enqueue"]


class ReadsTypesLater(Scale):
    """Keeps the types in get_output_data_types and uses them when asked for formats."""

    def get_output_data_types(self, input_types: Any) -> Any:
        self.types = [*input_types, input_types[0]]
        return [input_types[0]]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.type == self.types[pos] and in_out[pos].desc.format == 0)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        as_array(outputs[0], output_desc[0])[...] = as_array(inputs[0], input_desc[0])


def test_what_was_told_before_is_there_when_formats_are_asked_for() -> None:
    report = check_creator(creator_of(ReadsTypesLater))
    assert report.ok, report.render()
