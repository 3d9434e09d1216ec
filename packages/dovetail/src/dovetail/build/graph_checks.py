"""What is refused before time is spent on a plan that cannot be built or loaded."""

from __future__ import annotations

import onnx_ir as ir

from dovetail.errors import ModelError, UsageError
from dovetail.network.value_types import has_no_shape
from dovetail.plan.limits import MAX_NAME_CHARS

__all__ = ["check_graph", "check_profiled"]


def check_graph(graph: ir.Graph) -> None:
    """Check that a network has outputs, and names that a plan may have."""
    if not graph.outputs:
        raise ModelError("the network has no outputs", fix="mark at least one tensor with mark_output")
    names = [value.name for value in (*graph.inputs, *graph.outputs)]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise ModelError(
            f"a tensor is both input and output, or two have one name: {', '.join(doubled)}",
            fix="add an identity layer and mark its output",
        )
    _check_names(graph)


def _check_names(graph: ir.Graph) -> None:
    names = [value.name for value in graph.inputs]
    names += [name for node in graph.all_nodes() for name in (node.name, *(v.name for v in node.outputs))]
    bad = [name for name in names if name and ("\0" in name or len(name) > MAX_NAME_CHARS)]
    if bad:
        raise ModelError(
            f"a name has a NUL character or over {MAX_NAME_CHARS} characters",
            got=ascii(bad[0][:60]),
            fix="rename it",
        )


def check_profiled(graph: ir.Graph) -> None:
    """Check that every input has one shape, as a build needs that has neither profiles nor is open."""
    shaped = [value for value in graph.inputs if not has_no_shape(value)]
    dynamic = [value.name for value in shaped if value.shape is None or not value.shape.is_static()]
    if dynamic:
        raise UsageError(
            f"input(s) {', '.join(map(str, dynamic))} have dynamic dimensions and there is no optimization profile",
            fix="add one: profile = builder.create_optimization_profile(); profile.set_shape(...); "
            "config.add_optimization_profile(profile)",
        )
