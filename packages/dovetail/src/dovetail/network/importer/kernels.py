"""Which nodes of a model somebody can run: an operator at its opset, as the kernel registries have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import onnx_ir as ir

from dovetail.network.onnx_schema import find_schema, opset_of
from dovetail.provider.loader import get_any_provider

__all__ = ["FindKernel", "Served", "find_kernel_for", "find_kernel_in"]

FindKernel = Callable[[str, str, int], bool]
"""Whether there is a kernel for an operator, of a domain, at a version of its operator set."""

_CONTROL: Final = frozenset(("If", "Loop"))
_SCAN_WITHOUT_BATCHES: Final = 9


def find_kernel_in(providers: Iterable[str] = ("cpu",)) -> FindKernel:
    """Looks a kernel up in the registries of providers.

    >>> find_kernel_in(("cpu",))("Relu", "", 14)
    True
    """
    registries = [get_any_provider(name).kernels for name in providers]

    def find(op: str, domain: str, opset: int) -> bool:
        return any(registry.find(op, domain, opset) is not None for registry in registries)

    return find


def find_kernel_for(providers: Iterable[str]) -> FindKernel:
    """Looks a kernel up for a build with these providers and ``cpu``, which runs what no other takes.

    Operators of ONNX must have a kernel of ``cpu``: any other provider may leave a node to it in the end. Operators of
    other domains may be another provider's alone.
    """
    host, any_of = find_kernel_in(("cpu",)), find_kernel_in(providers)

    def find(op: str, domain: str, opset: int) -> bool:
        return host(op, domain, opset) or (bool(domain) and any_of(op, domain, opset))

    return find


class Served:
    """Answers for one model, whose opsets may change between two questions."""

    def __init__(self, model: ir.Model, find: FindKernel) -> None:
        self._model = model
        self._find = find

    def has_kernel(self, node: ir.Node) -> bool:
        """Whether a node can run as it is; constants and control flow always can."""
        domain, opset = (
            "" if node.domain == "ai.onnx" else node.domain,
            opset_of(self._model.opset_imports, node.domain),
        )
        if opset is None:
            return False
        if domain == "" and (node.op_type in _CONTROL or node.op_type == "Constant"):
            return True
        if domain == "" and node.op_type == "Scan":
            return opset >= _SCAN_WITHOUT_BATCHES
        return self._find(node.op_type, domain, opset)

    def has_body(self, node: ir.Node) -> bool:
        """Whether the schema of a node's operator says how to compute it with other operators."""
        opset = opset_of(self._model.opset_imports, node.domain)
        schema = None if opset is None else find_schema(node.op_type, node.domain, opset)
        return schema is not None and (schema.has_function or getattr(schema, "has_context_dependent_function", False))
