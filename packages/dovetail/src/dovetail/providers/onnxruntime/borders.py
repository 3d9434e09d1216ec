"""Whether a session takes and gives what the plan says: a stored partition may be any model.

ONNX Runtime checks each array in each run too. What is found here is found before anything runs, and types above all:
results are written into memory whose size the plan has worked out for its own type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.errors import PlanCorruptError
from dovetail.provider.interfaces import StoredPartition, TensorSpec

__all__ = ["check_border"]


def check_border(session: Any, stored: StoredPartition, where: str) -> None:
    """Compare the inputs and outputs of a session with those of the plan.

    Raises:
        PlanCorruptError: Names, types or sizes are others.
    """
    try:
        _check("inputs", session.get_inputs(), stored.inputs, stored.input_specs, where)
        _check("outputs", session.get_outputs(), stored.outputs, stored.output_specs, where)
    except UnicodeDecodeError:
        raise PlanCorruptError("a compiled partition has names that are no text", where=where) from None


def _check(side: str, found: Sequence[Any], names: Sequence[str], specs: Sequence[TensorSpec], where: str) -> None:
    ports = {port.name: port for port in found}
    if ports.keys() != set(names):
        raise _mismatch(f"a compiled partition has other {side} than the plan says", where, names, list(ports))
    for name, spec in zip(names, specs, strict=True):
        port = ports[name]
        if port.type != spec.onnx_type:
            raise _mismatch(f"one of its {side} has another type than the plan says", where, spec.onnx_type, port.type)
        if not _fits(port.shape, spec.sizes):
            raise _mismatch(f"one of its {side} has another shape than the plan says", where, spec.sizes, port.shape)


def _fits(shape: Sequence[Any], sizes: Sequence[int | None] | None) -> bool:
    """Whether an array could have both shapes; the shape of what has none, and of a single number, is empty."""
    if not shape or sizes is None:
        return True
    pairs = zip(shape, sizes, strict=False)
    return len(shape) == len(sizes) and all(a == b or not isinstance(a, int) or b is None for a, b in pairs)


def _mismatch(what: str, where: str, expected: object, got: object) -> PlanCorruptError:
    return PlanCorruptError(
        what, where=where, expected=ascii(expected)[:200], got=ascii(got)[:200], fix="build the plan again"
    )
