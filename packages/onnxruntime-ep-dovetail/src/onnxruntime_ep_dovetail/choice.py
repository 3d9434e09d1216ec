"""What a session's options make of a graph: which nodes are taken, and in which groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

import dovetail
from dovetail.build.layers import body_graphs
from onnxruntime_ep_dovetail.abi import Runtime
from onnxruntime_ep_dovetail.backends import Backend
from onnxruntime_ep_dovetail.claims import Claims, find_groups, join_groups
from onnxruntime_ep_dovetail.costs import extra_us
from onnxruntime_ep_dovetail.host_kernels import find_lacking
from onnxruntime_ep_dovetail.options import EpOptions

__all__ = ["choose_groups", "takes_all"]


def takes_all(backend: Backend, options: EpOptions) -> bool:
    """Whether everything that runs here is taken: when asked for, and by default on a device."""
    return options.claim == "all" or (options.claim == "auto" and backend.is_device)


def choose_groups(model: ir.Model, backend: Backend, options: EpOptions, runtime: Runtime) -> Claims:
    """The groups of nodes that are taken of a graph."""
    allowed = [
        support if not set(options.exclude) & set(_operators(support.node)) else _leave(support)
        for support in _find_support(model, backend, options)
    ]
    taken = [support for support in allowed if support.provider is not None]
    if takes_all(backend, options):
        return find_groups(allowed, {support.node for support in taken})
    lacking = find_lacking([support.node for support in taken if not support.is_plugin], model.opset_imports, runtime)
    return join_groups(allowed, _plugins(taken) | lacking, extra_us)


def _plugins(supports: Sequence[dovetail.Support]) -> set[ir.Node]:
    return {support.node for support in supports if support.is_plugin}


def _leave(support: dovetail.Support) -> dovetail.Support:
    return dovetail.Support(node=support.node, provider=None, reason="the session's options exclude it")


def _operators(node: ir.Node) -> Iterator[str]:
    """The operators of a node and of everything in its bodies."""
    yield node.op_type
    for graph in body_graphs(node):
        yield from (inner.op_type for inner in graph.all_nodes())


def _find_support(model: ir.Model, backend: Backend, options: EpOptions) -> list[dovetail.Support]:
    return dovetail.find_support(
        model,
        providers=backend.provider_names(options),
        options=options.provider_options,
        override=options.override,
    )
