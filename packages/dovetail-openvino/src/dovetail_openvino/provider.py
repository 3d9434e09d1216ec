"""OpenVINO as a back end: it takes whole subgraphs and runs each as one compiled model on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.provider.devices import Device, ProfileEvent
from dovetail.provider.interfaces import (
    BuiltSubgraph,
    Claim,
    LoadedSubgraph,
    NodeView,
    OptionSpec,
    Provider,
    RefitMode,
    StepKind,
    StoredSubgraph,
)
from dovetail.provider.kernels import KernelRegistry
from dovetail_openvino._version import __version__
from dovetail_openvino.device import Settings, check_border, compile_model, find_devices
from dovetail_openvino.partitions import CompiledPartition

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OpenVinoFactory", "OpenVinoProvider", "create_factory"]

_API_VERSION: Final = 0
"""The version of the contract that this was written for."""
_FORMAT: Final = "onnx-1"
"""What payloads are: ONNX without large weights."""
_WHERE: Final = "provider 'openvino'"


class OpenVinoProvider(Provider):
    """OpenVINO's CPU plug-in."""

    name = "openvino"
    refit_mode = RefitMode.RECREATE
    step_kind = StepKind.SUBGRAPH
    fuses = False

    def __init__(self, device: Device, settings: Settings) -> None:
        self.device = device
        self._settings = settings
        self._events: list[ProfileEvent] = []

    @property
    def kernels(self) -> KernelRegistry:
        """The operators it takes, without functions: it runs no single nodes."""
        from dovetail_openvino.claims import list_operators

        return list_operators()

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """Take what OpenVINO computes as ONNX says, and control flow whose bodies it takes whole."""
        from dovetail_openvino.claims import claim_node

        return [claim_node(node) for node in nodes]

    def build_subgraph(self, model: ir.Model, *, keep: frozenset[str] = frozenset()) -> BuiltSubgraph:
        """Store a partition as ONNX, once OpenVINO has shown that it can compile it."""
        from dovetail_openvino.payload import describe, split_partition

        where = f"partition '{model.graph.name}'"
        inputs, outputs = describe(model.graph.inputs), describe(model.graph.outputs)
        payload, weights = split_partition(model, keep)
        compiled = compile_model(payload, weights, self._settings, where)
        check_border(compiled.inputs, inputs, where)
        check_border(compiled.outputs, outputs, where)
        return BuiltSubgraph(payload=payload, weights=weights, version=_FORMAT)

    def load_subgraph(self, stored: StoredSubgraph) -> LoadedSubgraph:
        """Compile a stored partition."""
        where = f"step {stored.name[:200]!a}"
        if stored.version != _FORMAT:
            got, fix = ascii(stored.version[:60]), "build the plan again, or install the version that built it"
            raise PlanCorruptError("a partition of another format", where=where, expected=_FORMAT, got=got, fix=fix)
        compiled = compile_model(bytes(stored.payload), stored.weights, self._settings, where)
        return CompiledPartition(
            name=stored.name,
            compiled=compiled,
            inputs=check_border(compiled.inputs, stored.input_values, where),
            outputs=check_border(compiled.outputs, stored.output_values, where),
            weights=stored.weights,
            note_events=self._events.extend if self._settings.profiling else None,
        )

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What nodes did since the last call, with the option ``profiling``."""
        events = list(self._events)
        self._events.clear()
        return events


class OpenVinoFactory:
    """The entry point of this back end."""

    name = "openvino"
    version = __version__
    api_version = _API_VERSION
    options: Mapping[str, OptionSpec] = {
        "threads": OptionSpec(help="threads of a partition; 0 for one a core", default="0"),
        "profiling": OptionSpec(
            help="whether partitions that are loaded note what each node does, which slows them down",
            default="off",
            choices=("off", "on"),
        ),
    }

    def devices(self) -> Sequence[Device]:
        """The CPU."""
        return find_devices()

    def create(self, device: Device, options: Mapping[str, str]) -> OpenVinoProvider:
        """A provider with these options."""
        unknown = options.keys() - self.options.keys()
        if unknown:
            names = ", ".join(sorted(unknown))
            raise ProviderError(f"unknown option(s) {names}", where=_WHERE, expected=", ".join(self.options))
        threads, profiling = options.get("threads", "0"), options.get("profiling", "off")
        if not (threads.isascii() and threads.isdecimal() and int(threads) <= 1024):
            raise ProviderError("not a number of threads", where=_WHERE, expected="0 to 1024", got=threads)
        if profiling not in self.options["profiling"].choices:
            raise ProviderError("unknown profiling", where=_WHERE, expected="off, on", got=profiling)
        return OpenVinoProvider(device, Settings(threads=int(threads), profiling=profiling == "on"))


def create_factory() -> OpenVinoFactory:
    """What the loader calls."""
    return OpenVinoFactory()
