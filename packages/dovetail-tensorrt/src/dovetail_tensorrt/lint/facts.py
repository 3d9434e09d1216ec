"""What a source file says about its plugins, in one form for Python and C++.

Names of methods are those of the Python interface (``attach_to_context``), whatever the language; a destructor is
called ``destroy``. Expressions are text without white space that means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

__all__ = [
    "BranchFacts",
    "CallFacts",
    "ClassFacts",
    "FileFacts",
    "Language",
    "MethodFacts",
    "ReturnFacts",
    "StoreFacts",
    "WriteFacts",
    "inherit",
    "snake_case",
]


class Language(Enum):
    """What a file is written in."""

    PYTHON = "Python"
    CPP = "C++"


@dataclass(frozen=True)
class CallFacts:
    """One call: what is called, with what, and where."""

    callee: str
    args: tuple[str, ...]
    line: int
    is_launch: bool = False
    """Whether it starts a kernel."""

    @property
    def name(self) -> str:
        """The last part of what is called: ``empty`` of ``torch.empty``."""
        return re.split(r"\.|::|->", self.callee)[-1]


@dataclass(frozen=True)
class StoreFacts:
    """One assignment, a declaration with a value included."""

    target: str
    value: str
    line: int
    is_local: bool = False
    type: str = ""
    """The declared type of a local variable in C++."""


@dataclass(frozen=True)
class WriteFacts:
    """A write to an element of something: ``x[...] = y``."""

    target: str
    line: int


@dataclass(frozen=True)
class ReturnFacts:
    """What is returned."""

    value: str
    line: int


@dataclass(frozen=True)
class BranchFacts:
    """A choice: what it depends on, and the kernels that each of its branches starts."""

    condition: str
    kernels: tuple[tuple[str, ...], ...]
    line: int


@dataclass(frozen=True)
class MethodFacts:
    """One method with its body."""

    name: str
    path: Path
    line: int
    params: tuple[str, ...] = ()
    calls: tuple[CallFacts, ...] = ()
    stores: tuple[StoreFacts, ...] = ()
    writes: tuple[WriteFacts, ...] = ()
    returns: tuple[ReturnFacts, ...] = ()
    branches: tuple[BranchFacts, ...] = ()
    throws: tuple[int, ...] = ()
    """Lines with a throw that no try of the method catches."""
    text: str = ""


@dataclass
class ClassFacts:
    """One class; methods that are declared and defined elsewhere are added when their definition is read."""

    name: str
    path: Path
    line: int
    language: Language
    bases: tuple[str, ...]
    methods: dict[str, MethodFacts] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    """Methods and attributes that the class has, with or without a body here."""
    members: dict[str, str] = field(default_factory=dict)
    """Data members of a class in C++, with their types."""

    @property
    def is_v3(self) -> bool:
        """Whether it is a V3 plugin or one of its capabilities."""
        return any(base.startswith("IPluginV3") for base in self.bases)

    @property
    def is_v2(self) -> bool:
        """Whether it is a V2 plugin."""
        return any(base.startswith("IPluginV2") and not base.endswith("Layer") for base in self.bases)

    @property
    def is_plugin(self) -> bool:
        """Whether it is a plugin of any kind."""
        return self.is_v3 or self.is_v2

    @property
    def is_creator(self) -> bool:
        """Whether it is a creator."""
        return any(base.startswith("IPluginCreator") for base in self.bases)

    def add_method(self, method: MethodFacts) -> None:
        """Add a method; overloads of one name, as constructors have them, are kept beside the first."""
        key, number = method.name, 1
        while key in self.methods:
            key, number = f"{method.name}#{number}", number + 1
        self.methods[key] = method
        self.declared.add(method.name)

    def find_reached(self, name: str) -> Iterator[MethodFacts]:
        """A method and the methods of the class that it calls, each once."""
        pending, seen = [name], set[str]()
        while pending:
            method = self.methods.get(pending.pop())
            if method is None or method.name in seen:
                continue
            seen.add(method.name)
            yield method
            pending += [snake_case(call.name) for call in method.calls if _is_own(call.callee)]

    def calls_itself(self, name: str) -> bool:
        """Whether any method of the class calls this one."""
        return any(snake_case(call.name) == name for method in self.methods.values() for call in method.calls)

    def mentions(self, word: str) -> bool:
        """Whether a word stands in any method, or is declared."""
        return word in self.declared or any(_has_word(method.text, word) for method in self.methods.values())


def _is_own(callee: str) -> bool:
    return bool(re.fullmatch(r"(self\.|cls\.|this->)?\w+", callee))


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def inherit(classes: Mapping[str, ClassFacts]) -> None:
    """Give classes the bases of their bases, and what these declare, as far as the bases were read too."""
    for facts in classes.values():
        pending, seen = list(facts.bases), dict.fromkeys(facts.bases)
        while pending:
            base = classes.get(pending.pop())
            if base is not None and base is not facts:
                facts.declared |= base.declared
                pending += [name for name in base.bases if name not in seen]
                seen |= dict.fromkeys(base.bases)
        facts.bases = tuple(seen)


@dataclass(frozen=True)
class FileFacts:
    """One file: its classes, what it calls outside of them and in them, and which findings its comments silence."""

    path: Path
    language: Language
    classes: Mapping[str, ClassFacts]
    calls: Sequence[CallFacts]
    modules: frozenset[str]
    """The modules it imports, or the files it includes."""
    silenced: Mapping[int, frozenset[str]]
    functions: Mapping[str, int] = field(default_factory=dict)
    """Functions outside of classes, with their lines."""


_WORDS: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z]|\d|\b|_|$)|[A-Z]?[a-z0-9]+|[A-Z]+")


def snake_case(name: str) -> str:
    """The name of a C++ method as Python has it.

    >>> snake_case("attachToContext"), snake_case("getTimingCacheID"), snake_case("get_valid_tactics")
    ('attach_to_context', 'get_timing_cache_id', 'get_valid_tactics')
    """
    if "_" in name or name.islower():
        return name
    return "_".join(word.lower() for word in _WORDS.findall(name))
