"""What a session's options make of a graph: which nodes are taken, and in which groups."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from typing import Final

import onnx_ir as ir

import dovetail
from dovetail.network.importer.kernels import find_kernel_for
from onnxruntime_ep_dovetail.abi import OrtRuntime
from onnxruntime_ep_dovetail.claim.budget import find_over_budget
from onnxruntime_ep_dovetail.claim.costs import extra_us
from onnxruntime_ep_dovetail.claim.groups import Claims, inner_nodes, join_groups, reads_of
from onnxruntime_ep_dovetail.claim.lacking import find_lacking
from onnxruntime_ep_dovetail.claim.trial import Report, find_buildable
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.graph.read import ReadGraph
from onnxruntime_ep_dovetail.session.options import AVAILABLE, EpOptions

__all__ = ["choose_groups", "takes_all"]

_HANDS_OVER_READS_OF_BODIES: Final = 27
"""The version of ONNX Runtime from which on a partition gets what only bodies inside of it read."""


def takes_all(backend: Backend, options: EpOptions) -> bool:
    """Whether everything that runs here is taken: when asked for, and by default on a device."""
    return options.claim == "all" or (options.claim == "auto" and backend.is_device)


def choose_groups(
    read: ReadGraph,
    backend: Backend,
    options: EpOptions,
    runtime: OrtRuntime,
    *,
    given: Set[ir.Node] = frozenset(),
    report: Report = lambda _: None,
) -> Claims:
    """The groups of nodes that are taken of a graph.

    Args:
        read: The graph.
        backend: Where they would run.
        options: Of the session.
        runtime: The ONNX Runtime that has the graph.
        given: Nodes that rules of the session give to this back end: they are taken if they can be.
        report: Told of nodes that were meant to be taken and are not.
    """
    model = read.model
    allowed = [
        _leave(support, reason) if (reason := _find_obstacle(support.node, read, options, runtime)) else support
        for support in _find_support(model, backend, options)
    ]
    allowed = _stay_within_budget(allowed, backend, options)
    taken = [support for support in allowed if support.provider is not None]
    build = partial(
        find_buildable,
        model,
        allowed,
        override=options.override,
        kernels=find_kernel_for(backend.provider_names(options)),
        report=report,
    )
    if takes_all(backend, options):
        return build({support.node for support in taken})
    lacking = find_lacking([support.node for support in taken if not support.is_plugin], model.opset_imports, runtime)
    wanted = _plugins(taken) | lacking
    asked = given & {support.node for support in taken}
    return build(wanted | asked) if asked else join_groups(allowed, wanted, extra_us)


def _stay_within_budget(
    supports: Sequence[dovetail.Support], backend: Backend, options: EpOptions
) -> list[dovetail.Support]:
    limit_bytes = options.budget_bytes
    if limit_bytes == AVAILABLE:
        limit_bytes = backend.provider.budget_bytes or backend.provider.free_bytes
    late = set() if limit_bytes is None else find_over_budget(supports, limit_bytes)
    reason = f"the session's budget of {limit_bytes} bytes is used up"
    return [_leave(support, reason) if support.node in late else support for support in supports]


def _plugins(supports: Sequence[dovetail.Support]) -> set[ir.Node]:
    return {support.node for support in supports if support.is_plugin}


def _leave(support: dovetail.Support, reason: str) -> dovetail.Support:
    return dovetail.Support(node=support.node, provider=None, reason=reason)


def _find_obstacle(node: ir.Node, read: ReadGraph, options: EpOptions, runtime: OrtRuntime) -> str:
    """Why a node that runs here is not taken nevertheless; empty when nothing is in the way."""
    nodes = (node, *inner_nodes(node))
    gap = next((read.gaps[one] for one in nodes if one in read.gaps), "")
    if gap:
        return gap
    excluded = set(options.exclude) & {one.op_type for one in nodes}
    if excluded:
        return f"the session's options exclude {', '.join(sorted(excluded))}"
    if runtime.version < _HANDS_OVER_READS_OF_BODIES and _reads_of_bodies(node):
        return f"its body reads values that ONNX Runtime hands over from 1.{_HANDS_OVER_READS_OF_BODIES} on"
    return ""


def _reads_of_bodies(node: ir.Node) -> set[ir.Value]:
    """What only the bodies of a node read from around it, without weights."""
    return {value for value in reads_of(node) if value not in node.inputs and value.const_value is None}


def _find_support(model: ir.Model, backend: Backend, options: EpOptions) -> list[dovetail.Support]:
    return dovetail.find_support(
        model,
        providers=backend.provider_names(options),
        options=options.provider_options,
        override=options.override,
    )
