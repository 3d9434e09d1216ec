"""Finding sources, reading them and judging them by every rule."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dovetail_tensorrt.lint.field_rules
import dovetail_tensorrt.lint.life_rules
import dovetail_tensorrt.lint.run_rules  # noqa: F401 - the three register their rules
from dovetail.errors import InputError, UsageError
from dovetail.files import read_bytes
from dovetail_tensorrt.lint.comments import ALL
from dovetail_tensorrt.lint.cpp_source import adopt_definitions, read_cpp
from dovetail_tensorrt.lint.facts import ClassFacts, FileFacts, Language, MethodFacts, inherit
from dovetail_tensorrt.lint.python_source import read_python
from dovetail_tensorrt.lint.rules import CLASS_RULES, FILE_RULES, RULES, LintRule, Place

__all__ = ["Finding", "LintResult", "lint_paths"]

_CPP: Final = frozenset((".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".inl"))
_MAX_SOURCE_BYTES: Final = 64 << 20
_PYTHON: Final = frozenset((".py", ".pyi"))
_PLUGIN_METHODS: Final = frozenset(("attach_to_context", "create_plugin", "enqueue", "supports_format_combination"))
"""Methods by which a class is known as a plugin or a creator, where its declaration was not read."""


@dataclass(frozen=True, order=True)
class Finding:
    """One place that a rule objects to."""

    path: str
    line: int
    rule: str
    what: str


@dataclass(frozen=True)
class LintResult:
    """All findings, the files that were read, and those that could not be."""

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    unread: tuple[str, ...] = ()

    @property
    def rules(self) -> list[LintRule]:
        """The rules that found something, once each."""
        return [RULES[rule_id] for rule_id in sorted({finding.rule for finding in self.findings})]


def lint_paths(paths: Sequence[str | Path], *, ignore: Collection[str] = ()) -> LintResult:
    """Judge Python and C++ sources by every rule; folders are searched.

    Args:
        paths: Files and folders.
        ignore: Rules to leave out.

    Raises:
        UsageError: A rule to leave out does not exist.
        InputError: A path does not exist, is no source, or a file that was named cannot be read.
    """
    left_out = {_check_rule(rule_id) for rule_id in ignore}
    named = [Path(path) for path in paths]
    files, unread = list(dict.fromkeys(file for path in named for file in _find_sources(path))), []
    reader = SourceReader()
    for file in files:
        try:
            reader.read(file)
        except InputError as error:
            if file in named:
                raise
            unread.append(str(error).partition("\n")[0])
    found = [finding for finding in reader.judge() if finding.rule not in left_out]
    unread += reader.find_unjudged()
    return LintResult(tuple(sorted(set(found))), tuple(map(str, files)), tuple(unread))


def _check_rule(rule_id: str) -> str:
    if rule_id.upper() not in RULES:
        raise UsageError(
            f"there is no rule '{rule_id}'",
            where="--ignore",
            expected=", ".join(sorted(RULES)),
            fix="see 'dovetail lint --list'",
        )
    return rule_id.upper()


def _find_sources(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(
            file
            for file in path.rglob("*")
            if file.suffix in _CPP | _PYTHON and file.is_file() and not _is_hidden(file.relative_to(path))
        )
    elif not path.exists():
        raise InputError("there is no such file or folder", where=f"'{path}'", fix="check the path")
    elif path.suffix not in _CPP | _PYTHON:
        raise InputError(
            "this is no source that can be judged",
            where=f"'{path}'",
            expected=f"a file with one of the suffixes {', '.join(sorted(_CPP | _PYTHON))}",
        )
    else:
        yield path


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


class SourceReader:
    """Reads files and puts the parts of C++ classes together: declarations of headers, definitions of sources."""

    def __init__(self) -> None:
        self._files: dict[Path, FileFacts] = {}
        self._cpp_classes: dict[str, ClassFacts] = {}
        self._outside: dict[str, list[MethodFacts]] = {}
        self._judged: set[Path] = set()

    def read(self, path: Path) -> None:
        """Read a file that is to be judged."""
        self._judged.add(path.resolve())
        self._load(path)

    def _load(self, path: Path) -> None:
        if path.resolve() in self._files:
            return
        source = _read_text(path)
        if path.suffix in _PYTHON:
            self._files[path.resolve()] = read_python(path, source)
            return
        facts, outside = read_cpp(path, source)
        self._files[path.resolve()] = facts
        self._cpp_classes |= facts.classes
        for name in _own_includes(source):
            if (path.parent / name).is_file():
                self._load(path.parent / name)
        for owner, methods in outside.items():
            self._outside.setdefault(owner, []).extend(methods)

    def judge(self) -> Iterator[Finding]:
        """What the rules find in the files that are to be judged, all of which are read."""
        adopt_definitions(self._cpp_classes, self._outside)
        inherit(self._cpp_classes)
        for python in [facts for facts in self._files.values() if facts.language is Language.PYTHON]:
            inherit(python.classes)
        for facts in self._files.values():
            for found in facts.classes.values():
                for rule, judge in CLASS_RULES:
                    yield from self._admit(rule, judge(found))
            for file_rule, judge_file in FILE_RULES:
                yield from self._admit(file_rule, judge_file(facts))

    def find_unjudged(self) -> Iterator[str]:
        """Plugin methods in C++ whose class was not read, one line for a class."""
        for owner, methods in self._outside.items():
            name = owner.rpartition("::")[2]
            if name not in self._cpp_classes and any(method.name in _PLUGIN_METHODS for method in methods):
                place = methods[0].path
                yield f"{place}: the methods of {name}, whose class is in none of the files; give its header too"

    def _admit(self, rule: LintRule, places: Iterable[Place]) -> Iterator[Finding]:
        for place in places:
            silenced = self._files[place.path.resolve()].silenced.get(place.line, frozenset())
            if place.path.resolve() in self._judged and silenced != ALL and rule.id not in silenced:
                yield Finding(str(place.path), place.line, rule.id, place.what)


def _own_includes(source: str) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*"([^"]+)"', source, re.MULTILINE)


def _read_text(path: Path) -> str:
    data = read_bytes(path, _MAX_SOURCE_BYTES, follow=True)
    if path.suffix not in _PYTHON:  # comments may be in any encoding, and names are not
        return data.decode("utf-8", errors="replace")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, UnicodeDecodeError):
        raise InputError(
            "the file is no UTF-8 text, and does not say what else", where=f"'{path}'", fix="# -*- coding: ... -*-"
        ) from None
