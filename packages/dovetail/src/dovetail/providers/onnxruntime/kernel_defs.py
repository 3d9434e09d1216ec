"""What the installed ONNX Runtime can run, read from its own kernel registry and schemas and not from a list of ours.

A kernel is found as ONNX Runtime finds it: a range without an end serves only the schema it starts at, because
nobody knows whether it serves a later one. ``onnxruntime`` is imported when something is asked; only
``supported_opset`` and ``max_opset`` need onnx, and both belong to building.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dovetail.element_types import dtype_from_onnx_type
from dovetail.errors import ProviderError
from dovetail.providers.onnxruntime.sessions import import_onnxruntime

__all__ = [
    "KernelDef",
    "OpsetChoice",
    "formal_types",
    "has_body",
    "max_opset",
    "read_definition",
    "read_kernel_defs",
    "schema_version",
    "supported_opset",
    "supports",
]

_EXECUTION_PROVIDER: Final = "CPUExecutionProvider"
_NO_END: Final = 2**31 - 1
_WITHOUT_KERNEL: Final = frozenset((("", "Constant"),))
"""What ONNX Runtime takes away when it loads a model, so that it has no kernel for it."""


@dataclass(frozen=True, kw_only=True)
class KernelDef:
    """One kernel of ONNX Runtime: an op over schema versions ``since`` to ``until``, with types by constraint."""

    op: str
    domain: str
    since: int
    until: int | None
    """The last schema version; None means the one of ``since`` alone, whichever opset a model has."""
    types: Mapping[str, frozenset[str]]
    """Constraint -> NumPy names, or ONNX's spelling for sequences, optionals and maps."""

    def covers(self, version: int) -> bool:
        """Whether it is for the schema of this ``since_version``."""
        return self.since == version or (self.until is not None and self.since <= version <= self.until)

    def takes(self, types: Mapping[str, str]) -> bool:
        """Whether every type given is among those of its constraint."""
        return all(dtype in self.types[name] for name, dtype in types.items() if name in self.types)


@dataclass(frozen=True, kw_only=True)
class OpsetChoice:
    """The opset to stamp a model with, or None and the ops whose schema changed since."""

    opset: int | None
    changed: tuple[str, ...] = ()


def read_kernel_defs() -> list[KernelDef]:
    """Every kernel of ONNX Runtime's CPU execution provider."""
    return list(_kernel_defs())


@cache
def _kernel_defs() -> tuple[KernelDef, ...]:
    found = _state().get_all_opkernel_def()
    return tuple(read_definition(definition) for definition in found if definition.provider == _EXECUTION_PROVIDER)


def read_definition(definition: Any) -> KernelDef:
    """A kernel as ONNX Runtime's own object tells it."""
    since, until = definition.version_range
    return KernelDef(
        op=definition.op_name,
        domain=definition.domain,
        since=since,
        until=None if until == _NO_END else until,
        types={
            name: frozenset(map(dtype_from_onnx_type, onnx_types))
            for name, onnx_types in definition.type_constraints.items()
        },
    )


@cache
def _defs_by_op() -> dict[tuple[str, str], list[KernelDef]]:
    by_op: dict[tuple[str, str], list[KernelDef]] = {}
    for definition in _kernel_defs():
        by_op.setdefault((definition.domain, definition.op), []).append(definition)
    return by_op


@cache
def _schema_versions() -> dict[tuple[str, str], list[int]]:
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in _state().get_all_operator_schema():
        bisect.insort(versions.setdefault((schema.domain, schema.name), []), schema.since_version)
    return versions


def _state() -> Any:
    return import_onnxruntime().capi.onnxruntime_pybind11_state


def schema_version(op: str, domain: str, opset: int) -> int | None:
    """The ``since_version`` of the schema ONNX Runtime itself uses for an op at an opset; None when it has none."""
    known = _schema_versions().get((_plain(domain), op), [])
    position = bisect.bisect_right(known, opset)
    return known[position - 1] if position else None


def supports(op: str, domain: str, opset: int, types: Mapping[str, str]) -> bool:
    """Whether ONNX Runtime has a kernel for an op at an opset with these types.

    Ops it knows only by their function body have no kernel and give False.

    Args:
        op: The operator.
        domain: Its domain.
        opset: The opset version of the domain, one that ONNX Runtime takes (see ``max_opset``): what a newer one
            changed it does not know.
        types: Constraint of the ONNX schema -> the type, named as in ``KernelDef.types``. One left out is not asked.
    """
    domain = _plain(domain)
    version = schema_version(op, domain, opset)
    if version is None:
        return False
    if (domain, op) in _WITHOUT_KERNEL:
        return True
    return any(known.covers(version) and known.takes(types) for known in _defs_by_op().get((domain, op), ()))


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


@cache
def max_opset(domain: str = "") -> int:
    """The newest opset with which ONNX Runtime takes a model; its schemas go further than what it lets in."""
    from onnx import TensorProto, helper

    domain = _plain(domain)
    newest = max((versions[-1] for (of, _), versions in _schema_versions().items() if of == domain), default=0)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", info[:1], info[1:])
    for opset in range(newest, 0, -1):
        opsets = {"": 14, domain: opset}
        imports = [helper.make_opsetid(name, version) for name, version in opsets.items()]
        if _loads(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()):
            return opset
    raise ProviderError(f"ONNX Runtime takes no model of domain '{domain or 'ai.onnx'}'")


def _loads(model: bytes) -> bool:
    from dovetail.providers.onnxruntime.sessions import Level, SessionSettings, Use, create_session

    try:
        create_session(model, Level.NONE, SessionSettings(), Use.OPTIMISE, where="a probe")
    except ProviderError:
        return False
    return True


def supported_opset(ops: Iterable[tuple[str, int]], domain: str = "") -> OpsetChoice:
    """The highest opset ONNX Runtime takes at which each op has the schema it has in the model.

    Args:
        ops: Names of operators, each with the opset of the model it comes from (or its ``since_version``).
        domain: The domain of all of them.

    Returns:
        The opset, at most the newest given; or None and, sorted, the ops whose schema at the newest opset that ONNX
        Runtime takes is another.
    """
    domain = _plain(domain)
    limit = max_opset(domain)
    given = sorted(set(ops))
    wanted = [(op, _since(op, domain, opset)) for op, opset in given]
    newest = min(max((opset for _, opset in given), default=limit), limit)
    for opset in range(newest, 0, -1):
        if not _changed(wanted, domain, opset):
            return OpsetChoice(opset=opset)
    return OpsetChoice(opset=None, changed=tuple(dict.fromkeys(_changed(wanted, domain, newest))))


def _changed(wanted: Sequence[tuple[str, int | None]], domain: str, opset: int) -> list[str]:
    return [op for op, since in wanted if since is None or _since(op, domain, opset) != since]


def _since(op: str, domain: str, opset: int) -> int | None:
    """The schema version of an op; ONNX's own schemas decide, ONNX Runtime's where ONNX has none of that domain."""
    from onnx import defs

    try:
        version: int = defs.get_schema(op, opset, domain).since_version
    except defs.SchemaError:
        return schema_version(op, domain, opset)
    return version


@cache
def has_body(op: str, domain: str, opset: int) -> bool:
    """Whether ONNX defines an op by others, which ONNX Runtime puts in its place where it has no kernel for it."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


@cache
def formal_types(op: str, domain: str, opset: int) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """For each input and output of an op the constraint its type is under; None where the schema fixes the type."""
    domain = _plain(domain)
    version = schema_version(op, domain, opset)
    schema = _schemas().get((domain, op, version))
    if schema is None:
        return (), ()
    names = {constraint.type_param_str for constraint in schema.type_constraints}
    inputs, outputs = (
        tuple(formal.typeStr if formal.typeStr in names else None for formal in formals)
        for formals in (schema.inputs, schema.outputs)
    )
    return inputs, outputs


@cache
def _schemas() -> dict[tuple[str, str, int | None], Any]:
    return {(s.domain, s.name, s.since_version): s for s in _state().get_all_operator_schema()}
