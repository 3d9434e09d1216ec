"""What was decided for each layer, for people and for the plan; and the error where a wish has no effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.layers import layer_name
from dovetail.build.precision.decide import FloatDecision
from dovetail.build.precision.options import PrecisionOptions
from dovetail.build.precision.rules import MOVING
from dovetail.errors import BuildError, UsageError
from dovetail.near_names import name_known, suggest
from dovetail.network.plugins import operator_of
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import PrecisionRecord

__all__ = ["check_names", "make_record", "record_floats", "require_effect"]

_SHOWN: Final = 5


def make_record(node: ir.Node, kind: str, reason: str = "") -> PrecisionRecord:
    """What was decided for one layer, in texts that a plan can store."""
    name, why = (text.replace("\0", "?")[:MAX_NAME_CHARS] for text in (layer_name(node), reason))
    return PrecisionRecord(layer=name, op=operator_of(node), type=kind, reason=why)


def record_floats(decisions: Mapping[int, FloatDecision], kind: str) -> list[PrecisionRecord]:
    """The records of layers in a narrow float type, and of those that stay."""
    return [make_record(each.node, kind if each.is_narrow else "fp32", each.reason) for each in decisions.values()]


def require_effect(kind: str, rows: Sequence[PrecisionRecord], *, is_for: str) -> None:
    """Check that some layer does work in the type that was asked for.

    Args:
        kind: The type as the rows spell it.
        rows: What was decided.
        is_for: The layers that the type is for, to be named where the network has none.

    Raises:
        BuildError: None does; the message has the reasons.
    """
    if any(row.type == kind and row.op not in MOVING for row in rows):
        return
    counts = Counter(row.reason for row in rows if row.reason and row.type != kind)
    reasons = "\n".join(f"  {count} layer(s): {reason}" for reason, count in counts.most_common(_SHOWN))
    raise BuildError(
        f"{kind} can have no effect: {'every layer stays as it is' if reasons else f'there is no {is_for}'}"
        + (f"\n{reasons}" if reasons else ""),
        where="precision",
        fix="leave it out, choose another provider, or keep fewer layers",
    )


def check_names(graph: ir.Graph, options: PrecisionOptions) -> None:
    """Check that each pattern, operator and tensor that was named is in the network.

    Raises:
        UsageError: One is not.
    """
    layers = list(dict.fromkeys(layer_name(node) for node in graph.all_nodes()))
    ops = sorted({operator_of(node) for node in graph.all_nodes()})
    for pattern in options.keep:
        if not any(fnmatchcase(name, pattern) for name in layers):
            raise _unknown("keep", f"no layer is called '{pattern}'", pattern, layers)
    for op in options.keep_ops:
        if op not in ops:
            raise _unknown("keep_ops", f"the network has no operator '{op}'", op, ops)
    floats = [v.name or "" for v in (*graph.inputs, *graph.outputs) if v.dtype == ir.DataType.FLOAT]
    for name in options.io_types:
        if name not in floats:
            raise _unknown("io_types", f"no input or output of fp32 is called '{name}'", name, floats)


def _unknown(option: str, what: str, name: str, known: Iterable[str]) -> UsageError:
    names = list(known)
    return UsageError(what, where=f"precision, {option}", expected=name_known(names), fix=suggest(name, names))
