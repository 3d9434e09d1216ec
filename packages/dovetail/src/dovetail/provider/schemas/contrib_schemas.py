"""Schemas of the operators that ONNX Runtime adds to ONNX: a reader of the table that ``tools/export_schemas`` writes.

The members are named as those of ``onnx.defs.OpSchema`` are, so that what reads one reads the other. Ask ONNX first:
its own domain appears here only with the operators, and the versions of operators, that ONNX does not have.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

import onnx

__all__ = [
    "ContribAttribute",
    "ContribConstraint",
    "ContribParameter",
    "ContribSchema",
    "contrib_schemas",
    "find_contrib_schema",
    "onnxruntime_version",
]

# Any: the types that onnx ships do not say that these are enumerations.
_OPTION: Final[Any] = onnx.defs.OpSchema.FormalParameterOption
_ATTRIBUTE_TYPE: Final[Any] = onnx.defs.OpSchema.AttrType


@dataclass(frozen=True, kw_only=True)
class ContribParameter:
    """One input or output of an operator."""

    name: str
    type_str: str
    """The name of a type constraint, or a type."""
    option: onnx.defs.OpSchema.FormalParameterOption
    is_homogeneous: bool
    min_arity: int
    types: frozenset[str]
    """The types it may have, such as ``tensor(float)``."""


@dataclass(frozen=True, kw_only=True)
class ContribConstraint:
    """A named set of types that several parameters share."""

    type_param_str: str
    allowed_type_strs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ContribAttribute:
    """One attribute of an operator."""

    name: str
    type: onnx.defs.OpSchema.AttrType
    required: bool
    default: int | float | str | tuple[Any, ...] | None = None
    """The value when a node has none; None when the schema gives none."""

    @property
    def default_value(self) -> onnx.AttributeProto:
        """The default as ONNX's schemas hold it; empty when there is none."""
        if self.default is None:
            return onnx.AttributeProto()
        kind = onnx.AttributeProto.AttributeType.Value(_ATTRIBUTE_TYPE(self.type).name)
        return onnx.helper.make_attribute(self.name, self.default, attr_type=kind)


@dataclass(frozen=True, kw_only=True)
class ContribSchema:
    """What a node of one operator looks like, from one version of its domain on."""

    name: str
    domain: str
    since_version: int
    deprecated: bool
    inputs: tuple[ContribParameter, ...]
    outputs: tuple[ContribParameter, ...]
    min_input: int
    max_input: int
    min_output: int
    max_output: int
    type_constraints: tuple[ContribConstraint, ...]
    attributes: Mapping[str, ContribAttribute] = field(hash=False)
    has_function: bool = False
    """Always False: the table holds no function bodies."""


def find_contrib_schema(op: str, domain: str, opset: int) -> ContribSchema | None:
    """The schema of an operator at a version of its domain, or None when the table has none.

    >>> find_contrib_schema("FusedMatMul", "com.microsoft", 1).inputs[0].name
    'A'
    >>> find_contrib_schema("Add", "", 13) is None
    True
    """
    key = ("" if domain == "ai.onnx" else domain, op)
    versions = _rows().get(key)
    if versions is None:
        return None
    since = sorted(versions)
    place = bisect_right(since, opset)
    return _schema_of(*key, since[place - 1]) if place else None


def contrib_schemas() -> Iterator[ContribSchema]:
    """Every schema of the table, by domain, operator and version."""
    for (domain, op), versions in _rows().items():
        for since in versions:
            yield _schema_of(domain, op, since)


def onnxruntime_version() -> str:
    """The version of ONNX Runtime that the table was exported from."""
    return str(_table()["onnxruntime"])


@cache
def _table() -> dict[str, Any]:
    text = resources.files("dovetail.provider.schemas").joinpath("contrib_schemas.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


@cache
def _rows() -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
    rows: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for row in _table()["schemas"]:
        rows.setdefault((row["domain"], row["op"]), {})[row["since_version"]] = row
    return rows


@cache
def _schema_of(domain: str, op: str, since: int) -> ContribSchema:
    row = _rows()[domain, op][since]
    constraints: dict[str, list[str]] = row["type_constraints"]
    min_input, max_input, min_output, max_output = row["arity"]
    return ContribSchema(
        name=op,
        domain=row["domain"],
        since_version=since,
        deprecated=row["deprecated"],
        inputs=tuple(_parameter(formal, constraints) for formal in row["inputs"]),
        outputs=tuple(_parameter(formal, constraints) for formal in row["outputs"]),
        min_input=min_input,
        max_input=max_input,
        min_output=min_output,
        max_output=max_output,
        type_constraints=tuple(
            ContribConstraint(type_param_str=name, allowed_type_strs=tuple(types))
            for name, types in constraints.items()
        ),
        attributes={name: _attribute(name, attribute) for name, attribute in row["attributes"].items()},
    )


def _parameter(formal: dict[str, Any], constraints: dict[str, list[str]]) -> ContribParameter:
    types = frozenset(constraints.get(formal["type_str"], [formal["type_str"]]))
    return ContribParameter(**{**formal, "option": _OPTION[formal["option"]]}, types=types)


def _attribute(name: str, row: dict[str, Any]) -> ContribAttribute:
    default = row.get("default")
    return ContribAttribute(
        name=name,
        type=_ATTRIBUTE_TYPE[row["type"]],
        required=row["required"],
        default=tuple(default) if isinstance(default, list) else default,
    )
