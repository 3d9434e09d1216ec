"""The schemas of ONNX and of ONNX Runtime's own domains, read as declarations; onnx is imported when one is asked for.

Only building and checking ask. ONNX comes first; what only ONNX Runtime has comes from the committed table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from dovetail.element_types import dtype_from_onnx_type
from dovetail.provider.schemas.op_declarations import AttributeDeclaration, OpDeclaration

__all__ = ["onnx_operator_set", "read_schemas", "schema_domains", "schema_ops"]

_NO_LIMIT: Final = 2**31 - 1


@cache
def read_schemas(op: str, domain: str) -> tuple[OpDeclaration, ...]:
    """Every version of an operator, oldest first; nothing when there is no such operator.

    >>> [schema.since for schema in read_schemas("Relu", "")]
    [1, 6, 13, 14]
    """
    versions = _index().get(domain, {}).get(op, {})
    return tuple(_declare(versions[since]) for since in sorted(versions))


@cache
def onnx_operator_set() -> dict[tuple[str, str], tuple[OpDeclaration, ...]]:
    """Every operator of ONNX itself by domain and name, oldest version first."""
    from onnx import defs

    names = sorted({(schema.domain, schema.name) for schema in defs.get_all_schemas()})
    return {(domain, op): read_schemas(op, domain) for domain, op in names}


def schema_ops(domain: str) -> list[str]:
    """The operators of a domain, sorted."""
    return sorted(_index().get(domain, ()))


def schema_domains() -> list[str]:
    """The domains that have schemas, sorted; ONNX's own is the empty name."""
    return sorted(_index())


@cache
def _index() -> dict[str, dict[str, dict[int, Any]]]:
    from onnx import defs

    from dovetail.provider.schemas.contrib_schemas import contrib_schemas

    index: dict[str, dict[str, dict[int, Any]]] = {}
    schemas: Iterable[Any] = (*defs.get_all_schemas_with_history(), *contrib_schemas())
    for schema in schemas:
        index.setdefault(schema.domain, {}).setdefault(schema.name, {}).setdefault(schema.since_version, schema)
    return index


def _declare(schema: Any) -> OpDeclaration:
    return OpDeclaration(
        op=schema.name,
        domain=schema.domain,
        since=schema.since_version,
        min_inputs=schema.min_input,
        max_inputs=None if schema.max_input >= _NO_LIMIT else schema.max_input,
        types={
            constraint.type_param_str: frozenset(map(dtype_from_onnx_type, constraint.allowed_type_strs))
            for constraint in schema.type_constraints
        },
        attributes={
            name: AttributeDeclaration(required=attribute.required, default=_read_default(attribute))
            for name, attribute in schema.attributes.items()
        },
        deprecated=schema.deprecated,
        has_body=schema.has_function or getattr(schema, "has_context_dependent_function", False),
    )


def _read_default(attribute: Any) -> Any:
    from onnx import helper

    proto = attribute.default_value
    if not proto.type:
        return None
    value = helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value
