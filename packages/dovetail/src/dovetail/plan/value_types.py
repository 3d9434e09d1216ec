"""The types of object values as a plan writes them: ``tensor(string)``, sequences and optionals of tensors, maps.

A plain tensor has no such type; its element type says it all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dovetail.element_types import dtype_from_onnx_type
from dovetail.errors import PlanCorruptError
from dovetail.plan._header import show

__all__ = ["ValueType", "parse_value_type"]

_FORM: Final = re.compile(r"(optional\()?(seq\()?(?:map\((int64|string),)?tensor\(([a-z0-9_]{1,32})\)(\)*)")
_IN_MAPS: Final = frozenset(("float", "double", "int64", "string"))


@dataclass(frozen=True)
class ValueType:
    """What an object value is: an array of strings, a map, a list, or an array or a list that may be None."""

    dtype: str
    """The NumPy name of the tensors inside, or of what the keys of a map lead to; ``object`` for strings."""
    is_sequence: bool = False
    is_optional: bool = False
    key: str = ""
    """The NumPy name of the keys of the map, or of the maps in the list; empty when there is none."""

    @property
    def is_string_tensor(self) -> bool:
        """Whether it is an array of strings, which has a shape."""
        return not self.is_sequence and not self.is_optional and not self.key


@lru_cache(maxsize=256)
def parse_value_type(text: str) -> ValueType:
    """Read a type.

    >>> parse_value_type("optional(seq(tensor(float)))")
    ValueType(dtype='float32', is_sequence=True, is_optional=True, key='')
    >>> parse_value_type("seq(map(string,tensor(float)))")
    ValueType(dtype='float32', is_sequence=True, is_optional=False, key='object')

    Raises:
        PlanCorruptError: It is none, or it is that of a plain tensor.
    """
    match = _FORM.fullmatch(text)
    if match is not None:
        optional, sequence, key, element, ends = match.groups()
        kind = ValueType(
            dtype_from_onnx_type(f"tensor({element})"),
            sequence is not None,
            optional is not None,
            "" if key is None else dtype_from_onnx_type(f"tensor({key})"),
        )
        is_object = not kind.is_string_tensor or element == "string"
        is_possible = not kind.key or (element in _IN_MAPS and not kind.is_optional)
        depth = kind.is_sequence + kind.is_optional + bool(kind.key)
        if is_object and is_possible and element != "object" and len(ends) == depth:
            return kind
    raise PlanCorruptError("there is no such type of value", got=show(text), fix="build the plan again")
