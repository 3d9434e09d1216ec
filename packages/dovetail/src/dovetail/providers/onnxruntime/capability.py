"""What ONNX Runtime takes: nodes it has a kernel for, with types that can cross the border of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from dovetail.provider.interfaces import Claim, NodeView
from dovetail.provider.kernels import KernelRegistry
from dovetail.providers.onnxruntime.differences import find_difference
from dovetail.providers.onnxruntime.kernel_defs import (
    formal_types,
    has_body,
    max_opset,
    read_kernel_defs,
    supported_opset,
    supports,
)

__all__ = ["claim_node", "has_kernel", "read_registry", "runs_at", "runs_by_body"]

_WIDTHS: Final = (8, 16, 32, 64)
_NATIVE: Final = frozenset(
    (
        "float16",
        "float32",
        "float64",
        "bool",
        "object",
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in _WIDTHS),
    )
)
"""Types of arrays that ONNX Runtime and NumPy both have; others cannot cross a border."""
_IN_BODIES: Final = frozenset(("float16", "float32", "int32", "int64", "bool"))
_DOMAINS: Final = frozenset(("", "com.microsoft", "ai.onnx.ml"))


def claim_node(node: NodeView) -> Claim:
    """Whether ONNX Runtime can run a node, bodies included."""
    if node.domain not in _DOMAINS:
        return _refuse(f"ONNX Runtime has no domain '{node.domain}'")
    foreign = _find_foreign(node)
    if foreign is not None:
        return _refuse(f"{foreign} values cannot be handed to ONNX Runtime")
    opset = runs_at(node.op, node.domain, node.opset)
    if opset is None:
        return _refuse(f"ONNX Runtime knows {node.op} only as it was before opset {node.opset}")
    if not has_kernel(node, opset) and not runs_by_body(node, opset):
        types = ", ".join(name or "-" for name in node.input_types)
        return _refuse(f"ONNX Runtime has no kernel for {node.op} at opset {node.opset} with ({types})")
    difference = find_difference(node)
    if difference is not None:
        return _refuse(difference)
    for body in node.bodies:
        for inner in body:
            claim = claim_node(inner)
            if not claim.taken:
                return _refuse(f"in its body, '{inner.name}': {claim.reason}")
    return Claim(taken=True)


def _refuse(reason: str) -> Claim:
    return Claim(taken=False, reason=reason)


def _find_foreign(node: NodeView) -> str | None:
    """A type on a side of a node, which could lie on a border, that cannot cross it; weights are inside.

    Sequences of maps come out of a session as lists of dicts. No map goes in: what makes one of a dict takes only
    single precision, and no empty one.
    """
    constants = node.constants
    inputs = [name for i, name in enumerate(node.input_types) if name is not None and i not in constants]
    outputs = [name for name in node.output_types if name is not None]
    bad = [name for name in inputs if name not in _NATIVE and not name.startswith("seq(tensor(")]
    bad += [name for name in outputs if name not in _NATIVE and not name.startswith("seq(")]
    return bad[0] if bad else None


@cache
def runs_at(op: str, domain: str, opset: int) -> int | None:
    """An opset ONNX Runtime accepts at which the op is what it is in the model; None when it changed since."""
    if opset <= max_opset(domain):
        return opset
    return supported_opset([(op, opset)], domain).opset


def has_kernel(node: NodeView, opset: int) -> bool:
    """Whether ONNX Runtime has a kernel for a node at an opset, with casts around it where it puts them itself."""
    types = _constraint_types(node, opset)
    if supports(node.op, node.domain, opset, types):
        return True
    # ONNX Runtime itself puts casts around what it has only in single precision.
    widened = {name: "float32" if dtype == "float16" else dtype for name, dtype in types.items()}
    return widened != types and supports(node.op, node.domain, opset, widened)


def runs_by_body(node: NodeView, opset: int) -> bool:
    """Whether ONNX Runtime runs the ops that define an op; not all of those have kernels for other floats."""
    types = [name for name in (*node.input_types, *node.output_types) if name is not None]
    return has_body(node.op, node.domain, opset) and all(name in _IN_BODIES for name in types)


def _constraint_types(node: NodeView, opset: int) -> dict[str, str]:
    inputs, outputs = formal_types(node.op, node.domain, opset)
    types: dict[str, str] = {}
    for formals, names in ((inputs, node.input_types), (outputs, node.output_types)):
        for position, name in enumerate(names):
            constraint = formals[min(position, len(formals) - 1)] if formals else None
            if constraint is not None and name is not None:
                types.setdefault(constraint, name)
    return types


@cache
def read_registry() -> KernelRegistry:
    """ONNX Runtime's kernels as a registry, for coverage reports; they cannot be called one by one."""
    registry = KernelRegistry("onnxruntime")
    for (op, domain, since, until), types in sorted(_merge_types().items(), key=lambda item: str(item[0])):
        registry.register(op, since=since, until=until, domain=domain, types=types)(_run_alone)
    return registry


def _merge_types() -> Mapping[tuple[str, str, int, int | None], Mapping[str, Sequence[str]]]:
    """One row an op and range; ONNX Runtime has one a type."""
    merged: dict[tuple[str, str, int, int | None], dict[str, set[str]]] = {}
    for known in read_kernel_defs():
        row = merged.setdefault((known.op, known.domain, known.since, known.until), {})
        for name, types in known.types.items():
            row.setdefault(name, set()).update(types)
    return {key: {name: sorted(types) for name, types in row.items()} for key, row in merged.items()}


def _run_alone(*arrays: Any) -> Any:
    raise NotImplementedError("ONNX Runtime runs partitions, not single kernels")
