"""What is taken is tried before it is: nodes of which an import says that they cannot be built stay with ONNX Runtime.

A provider says by operator, version and types what it runs. An import finds out what else a node asks for that cannot
be built, in a tenth of the time of a build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Final

import onnx_ir as ir

import dovetail
from dovetail.build.assign.borders import extract_model, find_border
from dovetail.build.assign.faults import find_faults
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.kernels import FindKernel
from onnxruntime_ep_dovetail.abi.objects import forget_frames
from onnxruntime_ep_dovetail.claim.groups import Claims, find_groups, inner_nodes

__all__ = ["find_buildable"]

Report = Callable[[str], None]

_MAX_TRIES: Final = 100
"""How many parts of one group are imported in search of the nodes at fault."""
_QUIET: Final = dovetail.Logger(dovetail.Logger.INTERNAL_ERROR)


def find_buildable(
    model: ir.Model,
    supports: Sequence[dovetail.Support],
    wanted: Set[ir.Node],
    *,
    override: Sequence[str],
    kernels: FindKernel,
    report: Report,
) -> Claims:
    """The groups of ``find_groups`` without nodes that cannot be built.

    A layer of a plugin stays: nobody else runs it, and what is wrong with it is heard when it is built.

    Args:
        model: The model of the graph.
        supports: Every node of the graph, in topological order.
        wanted: The nodes to take.
        override: Operators that are plugins although ONNX has them.
        kernels: Says which operators have a kernel.
        report: Told which nodes are left and why.
    """
    plugins = {support.node for support in supports if support.is_plugin}
    attempt = partial(_attempt, model, override, kernels)
    taken = set(wanted)
    while True:
        claims = find_groups(supports, taken)
        found = {node: why for group in claims.groups for node, why in _find_faults(group, plugins, attempt).items()}
        if not found:
            return claims
        for node, why in found.items():
            report(f"node '{node.name or ''}' ({node.op_type}) stays with ONNX Runtime: {why}")
        taken -= found.keys()


Attempt = Callable[[Sequence[ir.Node]], str | None]


def _find_faults(group: Sequence[ir.Node], plugins: Set[ir.Node], attempt: Attempt) -> Mapping[ir.Node, str]:
    error = attempt(group)
    if error is None:
        return {}
    search = find_faults(group, error, attempt, max_tries=_MAX_TRIES)
    return {
        node: fault.error
        for fault in search.faults
        for node in fault.nodes
        if plugins.isdisjoint((node, *inner_nodes(node)))
    }


def _attempt(model: ir.Model, override: Sequence[str], kernels: FindKernel, nodes: Sequence[ir.Node]) -> str | None:
    """What an import says against nodes; None when it says nothing, or when nobody reads what they make."""
    border = find_border(nodes)
    if not border.outputs:
        return None
    try:
        part = extract_model(model, nodes, border, name="trial")
        import_model(part, logger=_QUIET, override=override, kernels=kernels)
    except dovetail.DovetailError as error:
        forget_frames(error)  # they hold the session and its graph
        return error.what
    return None
