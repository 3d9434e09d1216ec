"""Reads a table of TOML key by key; what does not fit is an error that names the file and the key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.near_names import name_known, suggest
from dovetail_serve.repository.problems import ModelConfigError

__all__ = ["TableReader"]


class TableReader:
    """One table; each key is asked for once, and what nobody asked for is unknown.

    >>> table = TableReader({"instances": 0}, "m/config.toml")
    >>> print(table.refuse("instances", "out of range", "1 to 64"))
    m/config.toml, 'instances': out of range; expected 1 to 64, got 0
    """

    def __init__(self, table: Mapping[str, Any], file: str, prefix: str = "") -> None:
        self._table = table
        self._file = file
        self._prefix = prefix
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def __iter__(self) -> Any:
        return iter(self._table)

    def refuse(
        self, key: str, what: str, expected: object = None, got: object = None, fix: str | None = None
    ) -> ModelConfigError:
        """The error for a key; what was given is shown unless something else is."""
        shown = _show(self._table[key]) if got is None and key in self._table else got
        return ModelConfigError(
            what, where=f"{self._file}, '{self._prefix}{key}'", expected=expected, got=shown or None, fix=fix
        )

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(key, "not a whole number", f"{least} to {most}")
        if not least <= value <= most:
            raise self.refuse(key, "out of range", f"{least} to {most}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, "neither true nor false", "true or false")
        return value

    def text(self, key: str, default: str, *, known: Sequence[str] = ()) -> str:
        """A text, one of some where they are known."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.refuse(key, "not a text", name_known(known) if known else "a text in quotes")
        if known and value not in known:
            raise self.refuse(key, "no such value", name_known(known), fix=suggest(value, known))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; none where the key is not there."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.refuse(key, "not a list of texts", 'such as ["onnxruntime", "cpu"]')
        return tuple(value)

    def integers(self, key: str, *, least: int, most: int) -> tuple[int, ...]:
        """A list of whole numbers within bounds."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(_is_integer(each, least, most) for each in value):
            raise self.refuse(key, "not a list of whole numbers", f"numbers from {least} to {most}, such as [1, 3]")
        return tuple(value)

    def table(self, key: str) -> TableReader:
        """A table in this one; an empty one where the key is not there."""
        value = self.get(key, {})
        if not isinstance(value, dict):
            raise self.refuse(key, "not a table", f"[{self._prefix}{key}]")
        return TableReader(value, self._file, f"{self._prefix}{key}.")

    def tables(self, key: str) -> list[TableReader]:
        """A list of tables."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.refuse(key, "not a list of tables", f"[[{self._prefix}{key}]]")
        return [TableReader(each, self._file, f"{self._prefix}{key}[{i}].") for i, each in enumerate(value)]

    def mapping(self, key: str, read: Callable[[TableReader, str], Any]) -> dict[str, Any]:
        """A table whose keys are names that the user chose, each read in the same way."""
        table = self.table(key)
        return {name: read(table, name) for name in table}

    def get(self, key: str, default: Any = None) -> Any:
        """What a key has, of any type."""
        self._asked.add(key)
        return self._table.get(key, default)

    def finish(self) -> None:
        """Refuse the keys that nobody asked for."""
        for key in self._table:
            if key not in self._asked:
                known = sorted(self._asked)
                raise self.refuse(key, "unknown key", name_known(known), got="", fix=suggest(key, known))


def _is_integer(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
