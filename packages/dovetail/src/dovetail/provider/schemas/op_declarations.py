"""What an operator looks like from one version of its domain on: types, attributes and number of inputs.

The schemas of ONNX and ONNX Runtime are read into this form (``op_schemas``); an operator of our own, or of a provider
from elsewhere, is declared in it beside its kernel, which carries the declaration. Nothing here needs onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AttributeDeclaration", "OpDeclaration"]


@dataclass(frozen=True, kw_only=True)
class AttributeDeclaration:
    """One attribute of an operator."""

    required: bool = False
    default: Any = None
    """The value when a node has none: a number, a text or a tuple of such; None when there is none."""


@dataclass(frozen=True, kw_only=True)
class OpDeclaration:
    """One version of an operator.

    >>> swap = OpDeclaration(op="Swap", domain="acme", min_inputs=1, max_inputs=2, types={"T": frozenset({"float32"})})
    >>> swap.since, swap.has_body
    (1, False)
    """

    op: str
    domain: str
    min_inputs: int
    max_inputs: int | None
    """None when the last input may be repeated without end."""
    since: int = 1
    """The version of the domain that it starts at; it ends where the next declaration of the same operator starts."""
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Constraint -> the types it allows, named as kernels name them."""
    attributes: Mapping[str, AttributeDeclaration] = field(default_factory=dict)
    deprecated: bool = False
    has_body: bool = False
    """Whether a function body defines it, so that it runs without a kernel."""
