"""One check, in a watched child where the system allows it and in this process otherwise."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from dovetail import errors
from dovetail.errors import DovetailError, InternalError
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import LIBRARY_FOLDERS, record_in
from dovetail.plugin.check.isolation.child import CAN_ISOLATE, ChildAnswer, Fate, Send, frames_of, run_in_child
from dovetail.plugin.check.isolation.journal import Journal
from dovetail.plugin.check.report import Report
from dovetail.plugin.check.rules.catalogue import registered_rules
from dovetail.plugin.check.runner import judge_all
from dovetail.plugin.native.call_memory import use_call_memory
from dovetail.rules import RuleOutcome, Status

__all__ = ["MakeSubject", "check_apart"]

_NAME_INPUTS: Final = "give them with --shapes and --types"

MakeSubject = Callable[[], tuple[CheckedPlugin, str]]
"""Makes what is to be checked, and says what it is called."""

_RETURNS_RULE: Final = "R61"
_OWN_FOLDER: Final = str(Path(__file__).resolve().parents[1])
_NOT_COPIED: Final = (
    "checked in this process, which cannot be copied on this system: a plugin that hangs or crashes takes it along"
)


def check_apart(make_subject: MakeSubject, *, isolate: bool, timeout_s: float) -> Report:
    """Check in a child that is ended when a callback takes longer than ``timeout_s``; else in this process."""
    if isolate and CAN_ISOLATE:
        journal = Journal()
        answer = run_in_child(lambda send: _check_and_send(make_subject, journal, send), journal, timeout_s=timeout_s)
        return _report_from(answer)
    subject, name = make_subject()
    _open_device(subject)
    outcomes: dict[str, RuleOutcome] = {}
    with use_call_memory(subject.new_call_memory):
        notes = judge_all(subject, lambda outcome: outcomes.update({outcome.rule.id: outcome}))
    return Report(subject=name, outcomes=tuple(outcomes.values()), notes=(*notes, *([_NOT_COPIED] if isolate else [])))


def _check_and_send(make_subject: MakeSubject, journal: Journal, send: Send) -> None:
    record_in(journal)
    try:
        subject, name = make_subject()
        send({"subject": name})
        subject.open_fresh_processes()
        _open_device(subject)
        with use_call_memory(subject.new_call_memory):
            notes = judge_all(subject, lambda outcome: send(_encode(outcome)))
    except DovetailError as error:
        send({"error": _encode_error(error)})
    except Exception:  # noqa: BLE001 - a fault of the checker itself, which the caller is to see whole
        send({"fault": traceback.format_exc()})
    else:
        send({"notes": list(notes)})
    send({"done": True})


def _open_device(subject: CheckedPlugin) -> None:
    """Open the device in the process that uses it, when it was copied for the last time: few devices survive that."""
    if subject.offered_device is not None:
        subject.offered_device.open()


def _encode(outcome: RuleOutcome) -> dict[str, Any]:
    return {"rule": outcome.rule.id, "status": outcome.status, "message": outcome.message, "fix": outcome.fix}


def _encode_error(error: DovetailError) -> dict[str, Any]:
    texts = {name: getattr(error, name) for name in ("what", "where", "expected", "got", "fix")}
    return {"kind": type(error).__name__} | {key: None if text is None else str(text) for key, text in texts.items()}


def _report_from(answer: ChildAnswer) -> Report:
    facts: dict[str, Any] = {}
    for message in answer.messages:
        facts |= message if "rule" not in message else {}
    if "error" in facts:
        details = dict(facts["error"])
        raise getattr(errors, details.pop("kind"))(details.pop("what"), **details)
    if "fault" in facts:
        raise InternalError(f"the checker failed:\n{facts['fault']}")
    told = {message["rule"]: message for message in answer.messages if "rule" in message}
    notes = [*facts.get("notes", ()), *_note_printed(answer.printed)]
    outcomes = tuple(_outcomes(told, answer.fate))
    return Report(subject=facts.get("subject", "the plugin"), outcomes=outcomes, notes=tuple(notes))


def _outcomes(told: dict[str, dict[str, Any]], fate: Fate | None) -> Iterable[RuleOutcome]:
    for rule in registered_rules():
        message = told.get(rule.id)
        if fate is not None and rule.id == _RETURNS_RULE:
            fix = rule.fix if fate.rule_id else f"{rule.fix}; if it takes only certain inputs, {_NAME_INPUTS}"
            yield RuleOutcome(rule=rule, status=Status.FAILED, message=_describe(fate), fix=fix)
        elif message is not None:
            status = Status(message["status"])
            yield RuleOutcome(rule=rule, status=status, message=message["message"], fix=message["fix"])
        else:
            text = f"not judged: the process ended before, see {_RETURNS_RULE}"
            yield RuleOutcome(rule=rule, status=Status.NOT_APPLICABLE, message=text)


def _describe(fate: Fate) -> str:
    method = "importing or creating the plugin" if fate.entry is None else fate.entry.method
    if fate.entry is not None and not fate.entry.is_running:
        method = f"the plugin, after {method} had returned,"
    place = _find_place(fate)
    text = f"{method} {fate.how}{f' ({place})' if place else ''}"
    if fate.situation:
        text += f"; {fate.situation}"
    titles = {rule.id: rule.title for rule in registered_rules()}
    during = f"{fate.rule_id} ({titles[fate.rule_id]})" if fate.rule_id else "no rule yet: inputs were being looked for"
    return f"{text}; judged then: {during}"


def _find_place(fate: Fate) -> str | None:
    """The innermost frame that the author of the plugin wrote, if the plugin was running."""
    for file, line, _ in frames_of(fate.stack):
        if file.startswith(_OWN_FOLDER):
            return None
        if not file.startswith(LIBRARY_FOLDERS) and not file.startswith("<"):
            here = Path.cwd()
            path = Path(file)
            return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"
    return None


def _note_printed(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.strip()]
    return [f"the plugin printed {len(lines)} lines, the first: {lines[0][:200]}"] if lines else []
