"""Expressions in C++ that point into memory of field collections, found without types from their text.

A pointer, a view, a field and a collection borrow that memory; a value that is read through them, and a container of
such values, do not.
"""

from __future__ import annotations

import re
from typing import Final

from dovetail_tensorrt.lint.facts import MethodFacts, StoreFacts

__all__ = ["Borrowing", "split_arguments"]

_PARAMETER: Final = re.compile(r"\bPluginField(?:Collection)?\s*(?:const\s*)?[*&]\s*(?:const\s*)?(\w+)\s*[,)]")
_STORED_BYTES: Final = re.compile(r"\b(?:void\s+const|const\s+void)\s*\*\s*(\w+)\s*,\s*(?:std::)?size_t")
_RANGE: Final = re.compile(r"for\s*\(\s*(?:const\s+)?(?:auto|PluginField)\b[^:;()]*?\b(\w+)\s*:\s*([^)]*)\)")
_CAST: Final = re.compile(r"^(?:static_cast|reinterpret_cast|const_cast|dynamic_cast|std::bit_cast)\s*<[^()]*>\s*")
_C_CAST: Final = re.compile(
    r"^\(\s*(?:const\s+)?[\w:]+(?:\s*<[^()]*>)?(?:\s+const)?\s*\*+\s*(?:const\s*)?\)\s*(?=[\w(])"
)
_VIEW: Final = re.compile(
    r"^(?:\w+::)*(?:basic_)?(?:string_view|span|Span|array_view|ArrayRef|StringRef|Weights|PluginField)\b"
    r"\s*(?:<[^()]*>)?\s*(?=[({])"
)
_PASSING: Final = re.compile(r"^(?:std::)?(?:move|forward|as_const|addressof|launder)\s*(?:<[^()]*>)?\s*(?=\()")
_OWNING: Final = re.compile(r"\b(?:string|vector|array|deque|map|set|unordered_map|basic_string)\b(?!_view)")
_VIEWING: Final = re.compile(r"\b(?:string_view|span|Span|Weights|PluginField|PluginFieldCollection|ArrayRef)\b")
_CHAIN: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\]|\.\w+|->\w+)*")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


def split_arguments(text: str, separator: str = ",") -> list[str]:
    """Split a text at a separator that is outside of brackets.

    >>> split_arguments("f(a, b), c")
    ['f(a, b)', 'c']
    """
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if not depth and text.startswith(separator, index):
            parts.append(text[start:index].strip())
            start = index + len(separator)
    return [part for part in (*parts, text[start:].strip()) if part]


def _unwrap(text: str) -> str:
    """Remove brackets around a complete expression."""
    text = text.strip()
    while text[:1] in ("(", "{") and _end_of_bracket(text) == len(text):
        text = text[1:-1].strip()
    return text


def _end_of_bracket(text: str) -> int:
    depth = 0
    for index, char in enumerate(text):
        depth += (char in _CLOSING) - (char in _CLOSING.values())
        if not depth:
            return index + 1
    return -1


class Borrowing:
    """The names in a method that borrow memory of a field collection.

    Args:
        method: The method; its parameters of field types borrow.
    """

    def __init__(self, method: MethodFacts) -> None:
        head = method.text.partition("{")[0]
        self._fields = set(_PARAMETER.findall(head))
        is_stored = method.name == "deserialize_plugin"
        self._names: set[str] = set(_STORED_BYTES.findall(head)) if is_stored else set()
        self.is_used = bool(self._fields or self._names)
        for _ in range(2):  # a loop may use a variable that is assigned later in the text
            self._fields |= {name for name, source in _RANGE.findall(method.text) if self._is_field(_unwrap(source))}
            for store in method.stores if self.is_used else ():
                if store.is_local or re.fullmatch(r"\w+", store.target):
                    self._add(store)

    def _add(self, store: StoreFacts) -> None:
        value, kind = _unwrap(store.value), store.type
        if _OWNING.search(kind) and not re.search(r"<[^>]*(?:\*|string_view)[^>]*>", kind):
            return
        if store.is_local and self._is_field(value):
            self._fields.add(store.target)
        elif self.borrows(store.value) or (_VIEWING.search(kind) and self._any(value)):
            self._names.add(store.target)
        elif store.is_local and store.value.lstrip().startswith("{") and self._any(value):
            self._names.add(store.target)  # an aggregate with a pointer in it

    def _any(self, arguments: str) -> bool:
        return any(self.borrows(part) for part in split_arguments(arguments))

    def borrows(self, value: str) -> bool:
        """Return whether an expression points into the memory of a field collection."""
        text = _unwrap(value)
        if value.lstrip().startswith("{") and len(split_arguments(text)) > 1:
            return self._any(text)
        for pattern in (_CAST, _C_CAST, _PASSING):
            found = pattern.match(text)
            if found and (pattern is _C_CAST or _end_of_bracket(text[found.end() :]) == len(text) - found.end()):
                return self.borrows(text[found.end() :])
        view = _VIEW.match(text)
        if view and _end_of_bracket(text[view.end() :]) == len(text) - view.end():
            return self._any(_unwrap(text[view.end() :]))
        branches = split_arguments(text, "?")
        if len(branches) == 2:
            return any(self.borrows(part) for part in split_arguments(branches[1], " : "))
        for operator in (" + ", " - "):
            operands = split_arguments(text, operator)
            if len(operands) > 1:
                return self.borrows(operands[0])
        if text.startswith("&"):
            inner = _unwrap(text[1:])
            return self._is_field(inner) or (inner.endswith("]") and self.borrows(inner[: inner.rindex("[")]))
        return text in self._names or self._is_field(text) or self._is_part(text)

    def _is_field(self, text: str) -> bool:
        """Return whether an expression is a field, a collection, or a pointer to one."""
        text = _unwrap(text.removeprefix("*").strip())
        if text in self._fields:
            return True
        chain = _CHAIN.fullmatch(text)
        return bool(chain and re.search(r"(?:->|\.)fields(?:\[[^\]]*\])?$", text)) or (
            text.endswith("]") and text[: text.rindex("[")] in self._fields
        )

    def _is_part(self, text: str) -> bool:
        """Return whether an expression is the data or the name of a field."""
        if not _CHAIN.fullmatch(text):
            return False
        owner, _, part = re.sub(r"->", ".", text).rpartition(".")
        if part == "data":
            return True
        return part == "name" and (owner in self._fields or re.search(r"fields\[[^\]]*\]$", owner) is not None)
