"""Single kernels of a provider, as plans have them loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.provider.interfaces import CompiledKernel, Provider, StoredKernel, TensorSpec

__all__ = ["load_kernel"]


def load_kernel(
    provider: Provider,
    op: str,
    opset: int,
    attributes: Mapping[str, Any],
    types: Sequence[str | None],
    *,
    domain: str = "",
    num_outputs: int = 1,
) -> CompiledKernel:
    """The kernel for a node with inputs of these types."""
    inputs = [None if name is None else TensorSpec(dtype=name) for name in types]
    return provider.load_kernel(
        StoredKernel(op=op, domain=domain, opset=opset, attributes=attributes, inputs=inputs, num_outputs=num_outputs)
    )
