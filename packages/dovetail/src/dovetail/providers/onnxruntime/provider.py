"""ONNX Runtime as a back end: it takes whole partitions and runs each as one session on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.allocators import HostAllocator, IGpuAllocator
from dovetail.errors import DovetailError, PlanCorruptError, ProviderError
from dovetail.near_names import suggest
from dovetail.provider.devices import Device, ProfileEvent
from dovetail.provider.host import host_device
from dovetail.provider.interfaces import (
    API_VERSION,
    BuildContext,
    BuiltPartition,
    Claim,
    LoadedPartition,
    NodeView,
    OptionSpec,
    Provider,
    RefitMode,
    StepKind,
    StoredPartition,
)
from dovetail.provider.kernels import KernelRegistry
from dovetail.providers.onnxruntime.binding import SessionPartition
from dovetail.providers.onnxruntime.borders import check_border
from dovetail.providers.onnxruntime.fragile_nodes import find_fragile_node
from dovetail.providers.onnxruntime.memory import prepare_allocator, save_memory
from dovetail.providers.onnxruntime.profiling import SessionProfiles
from dovetail.providers.onnxruntime.sessions import (
    NO_QUANTIZATION,
    Level,
    SessionSettings,
    Use,
    create_session,
    find_thread_limit,
    folding_entries,
    import_onnxruntime,
    refuse_settings_of_models,
)
from dovetail.providers.onnxruntime.weights import share_weight, weight_bytes, weight_size_bytes
from dovetail.providers.onnxruntime.wire import (
    INLINE_BYTES,
    NO_QUANTIZATION_MARK,
    AppendedTensor,
    FilePlace,
    append_weights,
    count_nodes,
    names_files,
)

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["OnnxRuntimeProvider", "OnnxRuntimeProviderFactory", "create_factory"]

_FOLDER_ENTRY: Final = "session.model_external_initializers_file_folder_path"
_DAMAGED: Final = frozenset(("InvalidProtobuf", "InvalidGraph", "UnicodeDecodeError"))
"""Errors of ONNX Runtime for what is no model; the last is for names that are no text, when it complains of them."""
_REFUSED: Final = frozenset(("Fail", "InvalidArgument"))
"""Errors for models that are wrong, or that are right for other versions."""


class OnnxRuntimeProvider(Provider):
    """ONNX Runtime's CPU kernels."""

    name = "onnxruntime"
    refit_mode = RefitMode.RECREATE
    step_kind = StepKind.PARTITION
    fuses = False

    def __init__(
        self, device: Device, settings: SessionSettings | None = None, *, profiles: SessionProfiles | None = None
    ) -> None:
        self.device = device
        refuse_settings_of_models()
        self.version: str = import_onnxruntime().__version__
        self._settings = settings or SessionSettings()
        self._profiles = profiles
        self._allocator = HostAllocator()

    @property
    def kernels(self) -> KernelRegistry:
        """What ONNX Runtime's own registry says, without functions: it runs no single nodes."""
        from dovetail.providers.onnxruntime.capability import read_registry

        return read_registry()

    @property
    def allocator(self) -> IGpuAllocator:
        """Memory of the process."""
        return self._allocator

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """Take what ONNX Runtime has a kernel for, and control flow whose bodies it can run whole."""
        from dovetail.providers.onnxruntime.capability import claim_node

        return [claim_node(node) for node in nodes]

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        """Optimise a partition as far as no CPU matters; with weights to keep it is stored as it is."""
        from dovetail.providers.onnxruntime.compiled import build_partition

        return build_partition(
            model, settings=self._settings, version=self.version, keep=context.keep, shapes=context.shapes
        )

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        """A session over the stored graph; weights are mapped from the plan file, or shared with it in memory."""
        where = f"step {stored.name[:200]!a}"
        if names_files(stored.payload):
            raise PlanCorruptError("a compiled partition names a file", where=where, fix="build the plan again")
        if problem := find_fragile_node(stored.payload):
            what = f"a compiled partition has a node that cannot run: {problem[:100]!a}"
            raise PlanCorruptError(what, where=where, fix="build the plan again")
        is_mapped = _has_name(stored.path) and all(name in stored.places for name in stored.weights)
        loaded = self._load_mapped(stored, where) if is_mapped else self._load_shared(stored, where)
        loaded.note = find_thread_limit(self._settings)
        if stored.version and stored.version != self.version:
            other = ascii(stored.version[:60])
            loaded.note = f"{where}: optimised by ONNX Runtime {other}, and again by {self.version} now"
        return loaded

    def _load_mapped(self, stored: StoredPartition, where: str) -> LoadedPartition:
        path = Path(stored.path or "")
        model = append_weights(stored.payload, _appended(stored, path.name))
        entries = {_FOLDER_ENTRY: str(path.parent)}
        session = self._create_session(model, stored, where, entries=entries)
        return SessionPartition(session, stored.inputs, stored.outputs)

    def _load_shared(self, stored: StoredPartition, where: str) -> LoadedPartition:
        shared = {name: share_weight(array) for name, array in stored.weights.items() if not _is_inline(array)}

        def share_weights(options: Any) -> None:
            options.add_external_initializers(list(shared), [value for value, _ in shared.values()])

        model = append_weights(stored.payload, _appended(stored, "plan"))
        session = self._create_session(model, stored, where, configure=share_weights)
        return SessionPartition(session, stored.inputs, stored.outputs, keep=shared)

    def _create_session(
        self,
        model: bytes,
        stored: StoredPartition,
        where: str,
        *,
        entries: Mapping[str, str] | None = None,
        configure: Callable[[Any], None] | None = None,
    ) -> Any:
        profiles = self._profiles
        weights_bytes = [weight_size_bytes(array) for array in stored.weights.values()]

        def set_up(options: Any) -> None:
            save_memory(options, weights_bytes)
            if configure is not None:
                configure(options)
            if profiles is not None:
                profiles.configure(options, weights_bytes=sum(weights_bytes))

        entries = {**(entries or {}), **folding_entries(count_nodes(model), sum(weights_bytes))}
        if NO_QUANTIZATION_MARK.encode() in model:
            entries = {**entries, **NO_QUANTIZATION}
        use = Use.WHOLE if stored.is_whole else Use.PART
        prepare_allocator(weights_bytes)
        try:
            session = create_session(
                model,
                Level.ALL,
                self._settings,
                use,
                where=where,
                entries=entries,
                configure=set_up,
                # A partition that was not optimised holds weights that may be replaced: folding would copy them all.
                without=() if stored.version else ("ConstantFolding",),
            )
        except ProviderError as error:
            raise self._explain(stored, error, where) from error.__cause__
        check_border(session, stored, where)
        if profiles is not None:
            profiles.watch(stored.name, session, stored.payload)
        return session

    def _explain(self, stored: StoredPartition, error: ProviderError, where: str) -> DovetailError:
        """What a refusal means: damage where no build of this version can have made the payload, or another version."""
        name = type(error.__cause__).__name__
        if name in _DAMAGED or (name in _REFUSED and stored.version == self.version):
            return PlanCorruptError(error.what, where=where, fix="build the plan again")
        if stored.version in ("", self.version):
            return error
        other = ascii(stored.version[:60])
        fix = f"build the plan again with ONNX Runtime {self.version}, or run it with {other}"
        return ProviderError(error.what, where=where, fix=fix)

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What the nodes of all sessions did since these were loaded, with the option ``profiling``; only once."""
        return [] if self._profiles is None else self._profiles.collect()


def _has_name(path: str | None) -> bool:
    """Whether a file can be named in a model, where all text is Unicode."""
    try:
        return path is not None and bool(path.encode())
    except UnicodeEncodeError:
        return False


def _is_inline(array: Any) -> bool:
    """Shapes, axes and scalars stand in the model itself: ONNX Runtime reads them while it takes the graph apart."""
    return weight_size_bytes(array) < INLINE_BYTES


def _appended(stored: StoredPartition, file: str) -> list[AppendedTensor]:
    dtypes = {dtype: dtype.name for dtype in {array.dtype for array in stored.weights.values()}}
    return [
        AppendedTensor(
            name=name,
            dtype=dtypes[array.dtype],
            shape=array.shape,
            contents=weight_bytes(array)
            if _is_inline(array)
            else FilePlace(file=file, offset=stored.places.get(name, 0), length_bytes=weight_size_bytes(array)),
        )
        for name, array in stored.weights.items()
    ]


class OnnxRuntimeProviderFactory:
    """The entry point of this back end."""

    name = "onnxruntime"
    api_version = API_VERSION
    options: Mapping[str, OptionSpec] = {
        "threads": OptionSpec(help="threads of a pool; 0 for one a core", default="0"),
        "pool": OptionSpec(
            help="one pool of threads for each session, or one that every session of the process must use",
            default="session",
            choices=("session", "process"),
        ),
        "profiling": OptionSpec(
            help="whether sessions that are loaded note what each node does, which slows them down",
            default="off",
            choices=("off", "on"),
        ),
    }

    @property
    def version(self) -> str:
        """The version of ONNX Runtime."""
        version: str = import_onnxruntime().__version__
        return version

    def devices(self) -> Sequence[Device]:
        """The one CPU."""
        return [host_device()]

    def create(self, device: Device, options: Mapping[str, str]) -> OnnxRuntimeProvider:
        """A provider with these options."""
        unknown = options.keys() - self.options.keys()
        if unknown:
            raise ProviderError(
                f"unknown option(s) {', '.join(sorted(unknown))}",
                where="provider 'onnxruntime'",
                expected=", ".join(self.options),
                fix=suggest(min(unknown), self.options),
            )
        for name in ("pool", "profiling"):
            choices = self.options[name].choices
            if options.get(name, choices[0]) not in choices:
                expected, got = ", ".join(choices), options[name]
                raise ProviderError(f"unknown {name}", where="provider 'onnxruntime'", expected=expected, got=got)
        threads, pool = _read_threads(options.get("threads", "0")), options.get("pool", "session")
        profiles = SessionProfiles() if options.get("profiling") == "on" else None
        return OnnxRuntimeProvider(device, SessionSettings(threads=threads, pool=pool), profiles=profiles)


def _read_threads(text: str) -> int:
    if not text.isdecimal() or int(text) > 1024:
        raise ProviderError("not a number of threads", where="provider 'onnxruntime'", expected="0 to 1024", got=text)
    return int(text)


def create_factory() -> OnnxRuntimeProviderFactory:
    """What the loader calls."""
    return OnnxRuntimeProviderFactory()
