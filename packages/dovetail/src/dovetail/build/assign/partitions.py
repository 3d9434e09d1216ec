"""Compiling partitions: each once, and when a provider refuses one, a search for the nodes that it cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.borders import Border, extract_model, find_border
from dovetail.build.assign.faults import Fault, find_faults
from dovetail.build.assign.layers import NodeLayer
from dovetail.build.services import BuildServices
from dovetail.build.shapes import ProfileShapes, unite_shapes
from dovetail.errors import DovetailError, ProviderError
from dovetail.provider.interfaces import BuiltPartition, Provider, ShapeRange

__all__ = ["BuiltGroup", "LayerFault", "PartitionCompiler", "describe_fault"]

_MAX_TRIES: Final = 64
"""How many parts of partitions are compiled for one provider in search of faults: some for each of a few nodes."""

LayerFault = Fault[NodeLayer, DovetailError]


@dataclass(frozen=True, kw_only=True)
class BuiltGroup:
    """A partition as a provider compiled it; nothing is compiled where nobody reads what it makes."""

    border: Border
    builds: Sequence[BuiltPartition] = ()
    """One, or one a profile for a provider whose payloads depend on shapes."""

    def find_missed_updates(self, aliases: Mapping[str, str]) -> list[ir.Node]:
        """The nodes that make outputs of inputs whose memory these are to get, and do not as they are compiled."""
        kept = [set(built.aliases.items()) for built in self.builds]
        return [
            maker
            for value in self.border.outputs
            if (name := value.name or "") in aliases
            and (maker := value.producer()) is not None
            and any(given is not None and given.name == aliases[name] for given in maker.inputs)
            and not all((name, aliases[name]) in pairs for pairs in kept)
        ]


@dataclass(kw_only=True)
class PartitionCompiler:
    """Compiles partitions of a model; what was compiled is kept until ``forget``, for the next way to cut a graph."""

    model: ir.Model
    services: BuildServices
    profiles: Sequence[ProfileShapes] = ()
    """The shapes of each profile; empty where nobody knows them yet."""
    _tries_left: dict[str, int] = field(default_factory=dict, init=False)
    _results: dict[tuple[str, tuple[ir.Node, ...]], BuiltGroup | DovetailError] = field(
        default_factory=dict, init=False
    )

    def compile(self, provider: Provider, layers: Sequence[NodeLayer]) -> BuiltGroup:
        """Compile layers as one partition.

        Raises:
            DovetailError: The provider cannot.
        """
        key = (provider.id, tuple(layer.node for layer in layers))
        if key not in self._results:
            self._results[key] = self._compile(provider, layers)
        result = self._results[key]
        if isinstance(result, DovetailError):
            raise result
        return result

    def forget(self) -> None:
        """Let go of everything compiled so far."""
        self._results.clear()

    def find_faults(self, provider: Provider, layers: Sequence[NodeLayer], error: DovetailError) -> list[LayerFault]:
        """The layers that a provider must not have, from a partition that it could not compile."""
        left = self._tries_left.get(provider.id, _MAX_TRIES)
        search = find_faults(layers, error, partial(self._try, provider), max_tries=left)
        self._tries_left[provider.id] = left - search.num_tries
        return search.faults

    def _try(self, provider: Provider, layers: Sequence[NodeLayer]) -> DovetailError | None:
        try:
            self.compile(provider, layers)
        except DovetailError as error:
            self.services.refuse_stop(error)
            return error
        return None

    def _compile(self, provider: Provider, layers: Sequence[NodeLayer]) -> BuiltGroup | DovetailError:
        nodes = [layer.node for layer in layers]
        border = find_border(nodes)
        if not border.outputs:
            return BuiltGroup(border=border)
        try:
            shapes = self._find_shapes(provider, border)
            builds = [self._build(provider, layers, border, index, found) for index, found in enumerate(shapes)]
            return BuiltGroup(border=border, builds=builds)
        except DovetailError as error:
            self.services.refuse_stop(error)
            return error

    def _find_shapes(self, provider: Provider, border: Border) -> list[dict[str, ShapeRange]]:
        """The shapes of the border in each profile, or over all of them for a provider that builds once."""
        found = [profile.find_all(border.inputs) for profile in self.profiles]
        if provider.builds_per_profile and found:
            return found
        return [unite_shapes(found)]

    def _build(
        self,
        provider: Provider,
        layers: Sequence[NodeLayer],
        border: Border,
        profile: int,
        shapes: Mapping[str, ShapeRange],
    ) -> BuiltPartition:
        name = _partition_name(layers)
        model = extract_model(self.model, [layer.node for layer in layers], border, name=name)
        built = self.services.build(
            provider, "build_partition", provider.build_partition, model, name=name, profile=profile, shapes=shapes
        )
        if not isinstance(built, BuiltPartition):
            raise ProviderError(
                "build_partition gave no partition",
                where=f"provider '{provider.id}'",
                expected="a BuiltPartition",
                got=type(built).__name__,
            )
        self.services.check_workspace(provider, built.workspace_bytes, name)
        self.services.check_candidates(provider, built, name)
        return built


def describe_fault(fault: LayerFault) -> str:
    """Which layers, and the provider's reason."""
    first, last = fault.nodes[0], fault.nodes[-1]
    text = f"'{first.name}' ({first.op})"
    if len(fault.nodes) > 1:
        text = f"{len(fault.nodes)} nodes from {text} to '{last.name}' ({last.op}), not searched further"
    elif fault.companions:
        text += f", together with nodes before it from '{fault.companions[0].name}' on"
    return f"{text}: {fault.error.what}"


def _partition_name(layers: Sequence[NodeLayer]) -> str:
    return layers[0].name if len(layers) == 1 else f"{layers[0].name} ... {layers[-1].name} ({len(layers)} layers)"
