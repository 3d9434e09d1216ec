"""The rules: what each looks for in a class or a file, why it matters, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from dovetail_tensorrt.lint.facts import ClassFacts, FileFacts, MethodFacts

__all__ = ["CLASS_RULES", "FILE_RULES", "RULES", "LintRule", "Place", "class_rule", "file_rule"]


class Place(NamedTuple):
    """Where a rule found something, and what."""

    path: Path
    line: int
    what: str

    @classmethod
    def in_method(cls, method: MethodFacts, line: int, what: str) -> Place:
        """A place in the file that defines a method."""
        return cls(method.path, line, what)


@dataclass(frozen=True)
class LintRule:
    """What a rule is called, why it is there, and what to do about a finding."""

    id: str
    title: str
    why: str
    fix: str


JudgeClass = Callable[[ClassFacts], Iterator[Place]]
JudgeFile = Callable[[FileFacts], Iterator[Place]]

RULES: Final[dict[str, LintRule]] = {}
CLASS_RULES: Final[list[tuple[LintRule, JudgeClass]]] = []
FILE_RULES: Final[list[tuple[LintRule, JudgeFile]]] = []


def class_rule(id: str, title: str, *, why: str, fix: str) -> Callable[[JudgeClass], JudgeClass]:  # noqa: A002
    """Make a function a rule about classes; it yields what it finds."""

    def register(judge: JudgeClass) -> JudgeClass:
        CLASS_RULES.append((_add(LintRule(id, title, why, fix)), judge))
        return judge

    return register


def file_rule(id: str, title: str, *, why: str, fix: str) -> Callable[[JudgeFile], JudgeFile]:  # noqa: A002
    """Make a function a rule about files; it yields what it finds."""

    def register(judge: JudgeFile) -> JudgeFile:
        FILE_RULES.append((_add(LintRule(id, title, why, fix)), judge))
        return judge

    return register


def _add(rule: LintRule) -> LintRule:
    if rule.id in RULES:
        raise AssertionError(f"two rules are called {rule.id}")
    RULES[rule.id] = rule
    return rule
