"""Passes for single providers: after a first round each gets its share of the network as it likes it best.

The nodes that come out of them are new to the providers, so a second round follows; what the first gave away stays
where it is.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from dovetail.build.assign import Assigner
from dovetail.build.layers import ASSIGNED_KEY
from dovetail.loggers import Severity
from dovetail.passes import fusion_passes
from dovetail.passes.base import Pass, run_passes
from dovetail.passes.layout import LayoutPass
from dovetail.provider.interfaces import Provider, StepKind

__all__ = ["rewrite_for_providers"]


def rewrite_for_providers(assigner: Assigner, *, off: Collection[str] = ()) -> bool:
    """Change the assigner's model in place and say whether anything changed; shapes must be known.

    Args:
        assigner: Says who takes what.
        off: Names of passes to leave out.
    """
    is_changed = False
    assigner.tag_nodes(assigner.model.graph)
    owners = {node.metadata_props.get(ASSIGNED_KEY) for node in assigner.model.graph.all_nodes()}
    for provider in [provider for provider in assigner.providers if provider.id in owners]:
        result = run_passes(assigner.model, _passes_for(provider, assigner, off))
        is_changed = is_changed or bool(result.changed)
        for line in result.changed:
            assigner.logger.log(Severity.VERBOSE, f"provider '{provider.id}': {line}")
    return is_changed


def _passes_for(provider: Provider, assigner: Assigner, off: Collection[str]) -> list[Pass]:
    def accepts(op: str, domain: str, opset: int) -> bool:
        return provider.kernels.find(op, domain, opset) is not None

    def within(node: ir.Node) -> bool:
        return node.metadata_props.get(ASSIGNED_KEY) == provider.id

    passes: list[Pass] = []
    if provider.fuses and provider.step_kind == StepKind.NODE:
        passes += fusion_passes(keep=assigner.keep, accepts=accepts, within=within, serves=assigner.serves, off=off)
    if provider.preferred_layout == "NHWC" and "layout" not in off:
        passes.append(LayoutPass(accepts=accepts, within=within, keep=assigner.keep))
    return passes
