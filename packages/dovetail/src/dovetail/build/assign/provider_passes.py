"""Passes for single providers: after a first round each gets its share of the network as it likes it best.

The nodes that come out of them are new to the providers, so a second round follows; what the first gave away stays
where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import onnx_ir as ir

from dovetail.build.assign.assigner import Assigner
from dovetail.build.assign.channels_last import make_channels_last
from dovetail.build.assign.layers import ASSIGNED_KEY, layer_name
from dovetail.errors import ProviderError
from dovetail.loggers import Severity
from dovetail.passes import fusion_passes
from dovetail.passes.base import Pass, PassResult, run_passes
from dovetail.passes.layout import LayoutPass
from dovetail.plan.manifest import PassRecord
from dovetail.provider.calls import call, first_line
from dovetail.provider.interfaces import Provider, RewriteContext

__all__ = ["pass_records", "rewrite_for_providers"]


def rewrite_for_providers(assigner: Assigner, *, off: Collection[str] = ()) -> list[PassRecord]:
    """Change the assigner's model in place and say which passes changed something; shapes must be known.

    Args:
        assigner: Says who takes what.
        off: Names of passes to leave out.
    """
    records: list[PassRecord] = []
    assigner.tag_nodes(assigner.model.graph)
    owners = {node.metadata_props.get(ASSIGNED_KEY) for node in assigner.model.graph.all_nodes()}
    for provider in [provider for provider in assigner.providers if provider.id in owners]:
        for result in (
            run_passes(assigner.model, _passes_for(provider, assigner, off)),
            _rewrite(provider, assigner, off),
        ):
            records += pass_records(result.counts, provider.id)
            for line in result.changed:
                assigner.logger.log(Severity.VERBOSE, f"provider '{provider.id}': {line}")
    return records


def pass_records(counts: Mapping[str, int], provider: str = "") -> list[PassRecord]:
    """What a plan stores of passes that changed something."""
    return [PassRecord(name=name, changes=count, provider=provider) for name, count in counts.items()]


def _rewrite(provider: Provider, assigner: Assigner, off: Collection[str]) -> PassResult:
    """Run the provider's own pass; it is not ours, so the model is checked after it."""
    own = _ProviderPass(provider, RewriteContext(is_own=_owned_by(provider), keep=frozenset(assigner.keep)))
    if own.name in off or type(provider).rewrite is Provider.rewrite:
        return PassResult(model=assigner.model)
    try:
        return run_passes(assigner.model, [own], check=True)
    except ProviderError:
        raise
    except Exception as error:
        raise ProviderError(
            f"rewrite left a model that is not whole: {first_line(error)}",
            where=f"provider '{provider.id}'",
            fix="tell its authors, or leave the pass out with config.passes_off (--off rewrite)",
        ) from error


class _ProviderPass(Pass):
    """What a provider changes in the nodes that it was given."""

    name = "rewrite"

    def __init__(self, provider: Provider, context: RewriteContext) -> None:
        self._provider = provider
        self._context = context

    def call(self, model: ir.Model) -> PassResult:
        provider = self._provider
        lines = call(provider.id, "rewrite", provider.rewrite, model, self._context)
        if not isinstance(lines, list | tuple):
            raise ProviderError(
                "rewrite gave no lines",
                where=f"provider '{provider.id}'",
                expected="a list of texts, one for each change",
                got=type(lines).__name__,
            )
        return PassResult(model=model, changed=[str(line) for line in lines])


def _owned_by(provider: Provider) -> Callable[[ir.Node], bool]:
    return lambda node: node.metadata_props.get(ASSIGNED_KEY) == provider.id


def _passes_for(provider: Provider, assigner: Assigner, off: Collection[str]) -> list[Pass]:
    def accepts(op: str, domain: str, opset: int) -> bool:
        return provider.kernels.find(op, domain, opset) is not None

    within = _owned_by(provider)
    passes: list[Pass] = []
    if provider.fuses:
        passes += fusion_passes(keep=assigner.keep, accepts=accepts, within=within, serves=assigner.serves, off=off)
    if provider.preferred_layout == "NHWC" and "layout" not in off:
        passes.append(
            LayoutPass(accepts=accepts, takes=_ask_last(provider, assigner), within=within, keep=assigner.keep)
        )
    return passes


def _ask_last(provider: Provider, assigner: Assigner) -> Callable[[ir.Node], bool]:
    """Whether the second round would give a node to the provider again; who refuses it is told why."""

    def takes(node: ir.Node) -> bool:
        claim = assigner.ask(make_channels_last(node, provider.id, assigner.model.opset_imports))
        if not claim.taken:
            text = f"provider '{provider.id}': the channels of '{layer_name(node)}' stay where they are: {claim.reason}"
            assigner.logger.log(Severity.VERBOSE, text)
        return claim.taken

    return takes
