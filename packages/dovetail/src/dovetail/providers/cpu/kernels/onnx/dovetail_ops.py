"""Operators of our own domain: what the network API can say and ONNX cannot."""

from __future__ import annotations

import numpy as np

from dovetail.errors import InputError
from dovetail.provider.schemas.op_declarations import AttributeDeclaration, OpDeclaration
from dovetail.providers.cpu._numeric import BOOL, Array
from dovetail.providers.cpu.registry import kernel

__all__ = ["assert_all"]


@kernel(
    "Assert",
    since=1,
    domain="dovetail",
    types={"T": BOOL},
    declaration=OpDeclaration(
        op="Assert",
        domain="dovetail",
        min_inputs=1,
        max_inputs=1,
        types={"T": frozenset(BOOL)},
        attributes={"message": AttributeDeclaration(default="")},
    ),
)
def assert_all(condition: Array, *, message: str = "") -> tuple[()]:
    """Fail unless every element holds; it has no output."""
    if not np.all(condition):
        raise InputError(f"an assertion of the network does not hold: {message}", expected="all true")
    return ()
