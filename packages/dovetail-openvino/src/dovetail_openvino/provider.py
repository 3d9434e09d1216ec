"""OpenVINO as a back end: it takes whole partitions and runs each as one compiled model on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.provider.contract.building import BuildContext
from dovetail.provider.contract.built import BuiltPartition
from dovetail.provider.contract.claims import Claim, NodeView, StepKind
from dovetail.provider.contract.loaded import LoadedPartition
from dovetail.provider.contract.stored import StoredPartition
from dovetail.provider.devices import Device, ProfileEvent
from dovetail.provider.interfaces import OptionSpec, Provider, RefitMode
from dovetail.provider.kernels import KernelRegistry
from dovetail_openvino import __version__
from dovetail_openvino.device import compile_model, find_devices
from dovetail_openvino.partitions import CompiledPartition

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OpenVinoFactory", "OpenVinoProvider", "create_factory"]

_FORMAT: Final = "onnx-1"
"""What payloads are: ONNX with inputs in place of large weights."""
_WHERE: Final = "provider 'openvino'"


class OpenVinoProvider(Provider):
    """OpenVINO's CPU plug-in."""

    name = "openvino"
    refit_mode = RefitMode.RECREATE
    step_kind = StepKind.PARTITION
    fuses = False

    def __init__(self, device: Device, options: Mapping[str, Any]) -> None:
        self.device = device
        self._options = options
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

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        """Store a partition as ONNX, once OpenVINO has shown that it can compile it."""
        from dovetail_openvino.payload import describe, split_partition
        from dovetail_openvino.reports import describe_compiled, read_origins

        where = f"partition '{model.graph.name}'"
        border = describe(model.graph.inputs), describe(model.graph.outputs)
        names = [[value.name or "" for value in values] for values in (model.graph.inputs, model.graph.outputs)]
        origins = read_origins(model, context.shapes)
        payload, weights = split_partition(model, context.keep)
        compiled = compile_model(payload, weights, border, self._options, where)
        report = describe_compiled(compiled, origins, *names)
        return BuiltPartition(payload=payload, weights=weights, version=_FORMAT, report=report)

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        """Compile a stored partition."""
        where = f"step {stored.name[:200]!a}"
        if stored.version != _FORMAT:
            got, fix = ascii(stored.version[:60]), "build the plan again, or install the version that built it"
            raise PlanCorruptError("a partition of another format", where=where, expected=_FORMAT, got=got, fix=fix)
        border = stored.input_specs, stored.output_specs
        compiled = compile_model(bytes(stored.payload), stored.weights, border, self._options, where)
        return CompiledPartition(
            name=stored.name,
            compiled=compiled,
            inputs=stored.input_specs,
            outputs=stored.output_specs,
            weights=stored.weights,
            note_events=self._events.extend if self._options.get("PERF_COUNT") else None,
        )

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What nodes did since the last call, with the option ``profiling``."""
        events, self._events[:] = list(self._events), []
        return events


class OpenVinoFactory:
    """The entry point of this back end."""

    name = "openvino"
    version = __version__
    api_version = 1
    options: Mapping[str, OptionSpec] = {
        "threads": OptionSpec(help="threads of a partition; 0 for one a core", default="0"),
        "profiling": OptionSpec(
            help="whether partitions note what each node does, which slows them", default="off", choices=("off", "on")
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
        is_number = threads.isascii() and threads.isdecimal() and int(threads) <= 1024
        if not is_number or profiling not in self.options["profiling"].choices:
            expected, got = "threads of 0 to 1024, profiling on or off", f"threads={threads}, profiling={profiling}"
            raise ProviderError("not a value of an option", where=_WHERE, expected=expected, got=got)
        return OpenVinoProvider(device, {"INFERENCE_NUM_THREADS": int(threads), "PERF_COUNT": profiling == "on"})


def create_factory() -> OpenVinoFactory:
    """What the loader calls."""
    return OpenVinoFactory()
