"""The manifest: the one JSON document in a plan that says what to run, over what, and what it was tuned for.

Every record refuses unknown fields. A program is a list of steps over numbered values; the meaning of each record is
in docs/plan-format.md. Reading and writing is all that happens here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail.decoding import decode, walk_json
from dovetail.errors import PlanCorruptError, PlanVersionError, UsageError
from dovetail.expr import MAX_DIM, Constant, Dim, Operation, Symbol, decode_expr, encode_expr
from dovetail.plan._header import show
from dovetail.tensors import TensorSpec

__all__ = [
    "FORMAT_VERSION",
    "AttributeRecord",
    "BlobRecord",
    "CandidateRecord",
    "CarriedRecord",
    "DeviceRecord",
    "FieldRecord",
    "KernelRecord",
    "LayerRecord",
    "LibraryRecord",
    "Manifest",
    "NodeReportRecord",
    "NoteRecord",
    "PackedRecord",
    "PartitionRecord",
    "PassRecord",
    "PhaseRecord",
    "PluginRecord",
    "PrecisionRecord",
    "ProfileRecord",
    "ProgramRecord",
    "RefitRecord",
    "RefusalRecord",
    "ReportRecord",
    "StepRecord",
    "SymbolRecord",
    "TensorRecord",
    "ValueRecord",
    "decode_manifest",
    "encode_manifest",
    "find_stripped",
]

FORMAT_VERSION: Final = (2, 1)
"""Major and minor. A reader takes every minor of its major up to its own, and one major back when it says so."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules all records share."""


class TensorRecord(TensorSpec, frozen=True, kw_only=True):
    """One input or output of the engine: what a caller binds.

    Its dims are unknown where only the run tells them; None when even the rank is not known, and for sequences and
    optionals, which have no shape.
    """

    name: str
    location: str = "DEVICE"
    is_shape: bool = False
    max_dims: tuple[Dim, ...] | None = None
    """Outputs whose shape the run tells: the largest it can be."""
    alias: str | None = None
    """The input whose memory this output shares."""


class SymbolRecord(_Record, frozen=True, kw_only=True):
    """A number that expressions use: a dimension of a value, or an element of it."""

    name: str
    source: str
    """"dim" or "element"."""
    value: int
    index: int


class ValueRecord(TensorSpec, frozen=True, kw_only=True):
    """One value of a program."""

    name: str
    kind: str
    """"input", "output", "constant", "planned", "dynamic" or "object"."""
    offset: int | None = None
    """Where a planned value lies in the arena of a program with a profile."""
    size_bytes: int | None = None
    blob: str | None = None
    alias: int | None = None
    """The value whose memory this one shares."""


class AttributeRecord(_Record, frozen=True, kw_only=True):
    """One attribute of a kernel. ``value`` is JSON; floats that JSON lacks are strings; tensors name a blob."""

    name: str
    type: str
    value: Any


class FieldRecord(_Record, frozen=True, kw_only=True):
    """One serialized plugin field; ``data`` is base64."""

    name: str
    type: str
    size: int
    data: str


class PluginRecord(_Record, frozen=True, kw_only=True):
    """What creates a plugin again when the plan is loaded."""

    name: str
    version: str
    namespace: str
    fields: list[FieldRecord]
    metadata: str | None = None


class KernelRecord(_Record, frozen=True, kw_only=True):
    """What a provider built for a node that is a step of its own."""

    payload: str = ""
    """The blob that the provider loads it from; empty where it needs none."""
    version: str = ""
    """What made the payload."""
    tactic: str = ""
    """What the provider calls the way that it chose."""
    code: dict[str, str] = {}
    """What the provider calls a piece of device code -> blob."""


class NodeReportRecord(_Record, frozen=True, kw_only=True):
    """One thing that a compiled partition does, for people."""

    name: str
    op: str
    layers: list[str] = []
    """The layers of the network that it was made of."""
    made_by: str = ""
    """The pass that fused it."""
    tactic: str = ""
    flops: int | None = None
    bytes: int | None = None
    """How much memory it reads and writes."""
    time_us: float | None = None
    inputs: list[int] = []
    """The nodes of the same report that make what it reads, by number."""
    reads: list[int] = []
    """The inputs of the step that it reads, by position."""
    writes: list[int] = []
    """The outputs of the step that it makes, by position."""
    parent: int = -1
    """The node of the report that is control flow, for one in a body; -1 for the others."""
    body: int = 0
    """Which of the bodies of its parent it is in."""
    dtype: str = ""
    """The type of what it makes."""
    shape: list[int] | None = None
    """The usual shape of its first output; -1 for a size that is not known."""


class ReportRecord(_Record, frozen=True, kw_only=True):
    """What a provider tells people of a partition; nothing runs by it."""

    nodes: list[NodeReportRecord] = []
    refusals: dict[str, str] = {}
    """Layer -> why something better was not possible."""


class CarriedRecord(_Record, frozen=True, kw_only=True):
    """Candidates of a partition that its provider can choose between on the device; no run reads them."""

    payload: str
    """The blob that the provider finds them by."""
    code: dict[str, str] = {}
    """What the provider calls a piece of device code -> blob."""


class PartitionRecord(_Record, frozen=True, kw_only=True):
    """A partition that its provider compiled."""

    payload: str
    """The blob that the provider loads it from."""
    version: str
    """What made the payload."""
    inputs: list[str]
    """What the payload calls the inputs of the step."""
    outputs: list[str]
    weights: dict[str, str] = {}
    """What the payload calls a weight -> blob."""
    layers: list[str] = []
    """The names of the layers in it."""
    code: dict[str, str] = {}
    """What the provider calls a piece of device code -> blob."""
    held: dict[str, str] = {}
    """Weights of the network that the payload holds itself -> type and shape, for people."""
    report: ReportRecord | None = None
    candidates: CarriedRecord | None = None


class StepRecord(_Record, frozen=True, kw_only=True):
    """One thing to run."""

    name: str
    kind: str
    """"kernel", "plugin", "partition", "reformat", "copy" or "control"."""
    provider: str
    op: str
    domain: str = ""
    opset: int = 1
    attributes: list[AttributeRecord] = []
    inputs: list[int]
    """Values by number; -1 for an input that is absent."""
    outputs: list[int]
    shape_inputs: list[int] = []
    """Plugin steps: values whose contents shapes depend on."""
    tactic: int = 0
    """Plugin steps: what the plugin is told."""
    workspace_bytes: int = 0
    """Plugins, kernels and partitions: scratch memory for the largest shapes."""
    workspace_offset: int | None = None
    """Where it lies in the arena of the program with a profile, while the step runs."""
    asks_workspace: bool = False
    """Plugin steps without bounds: the plugin is asked for its workspace whenever shapes change."""
    plugin: PluginRecord | None = None
    partition: PartitionRecord | None = None
    kernel: KernelRecord | None = None
    sizes: dict[str, Dim] = {}
    """Plugin steps: symbol of a size tensor -> its upper bound."""
    layers: list[str] = []
    """The layers of the network that it was made of, where a pass made one of several; for people."""
    made_by: str = ""
    """The passes that did, for people."""
    bodies: list[ProgramRecord] = []


class ProgramRecord(_Record, frozen=True, kw_only=True):
    """Steps in order over numbered values, for one profile or for the body of a loop or branch."""

    inputs: list[int]
    outputs: list[int]
    values: list[ValueRecord]
    steps: list[StepRecord]
    symbols: list[SymbolRecord] = []
    captures: list[tuple[int, int]] = []
    """A body's values that come from outside: (number outside, number inside)."""
    arena_bytes: int = 0
    arenas: dict[str, int] = {}
    """Bytes of the arena in the memory of each provider that is not the host's."""


class ProfileRecord(_Record, frozen=True, kw_only=True):
    """The shapes, and the contents of shape inputs, that a program is made for: min, opt, max."""

    shapes: dict[str, tuple[list[int], list[int], list[int]]] = {}
    values: dict[str, tuple[list[int], list[int], list[int]]] = {}


class BlobRecord(_Record, frozen=True, kw_only=True):
    """One blob of the container: its true type, and its digest."""

    kind: str
    """"weights", "strings" (see ``dovetail.plan.strings``), "library" (host code), "kernel" (device code) or
    "payload" (what a provider built)."""
    dtype: str
    shape: list[int]
    algorithm: str
    digest: str
    stripped: bool = False


class LibraryRecord(_Record, frozen=True, kw_only=True):
    """A plugin library carried in the plan."""

    name: str
    blob: str


class DeviceRecord(_Record, frozen=True, kw_only=True):
    """Where the plan was tuned."""

    provider: str
    name: str
    fingerprint: str
    version: str


class CandidateRecord(_Record, frozen=True, kw_only=True):
    """One way to run a layer, as the tuner saw it."""

    name: str = ""
    """What the provider that proposed it calls it; for plugin layers, which have formats, the name of the tactic."""
    formats: list[str]
    tactic: int
    time_us: float | None = None
    low_us: float | None = None
    """The 95% interval of the time, which is a median."""
    high_us: float | None = None
    rounds: int = 0
    """How many bursts it was timed for."""
    status: str = "timed"
    """"timed", "cached", "untimed", "failed", "wrong", "timeout" or "refused"."""
    reason: str | None = None
    chosen: bool = False


class LayerRecord(_Record, frozen=True, kw_only=True):
    """The tuner's table for one layer of one profile."""

    name: str
    profile: int
    candidates: list[CandidateRecord]
    metadata: str | None = None


class PackedRecord(_Record, frozen=True, kw_only=True):
    """How a blob of weights that a provider packed is made again when one of its sources is replaced."""

    provider: str
    sources: dict[str, str]
    """Name of a weight of the network -> its blob; empty texts where the plan is not made for refit."""
    recipe: str = ""
    """What the provider needs to know, in its own words."""


class NoteRecord(_Record, frozen=True, kw_only=True):
    """Something that the build found worth telling, such as why a provider did not get a layer."""

    text: str
    provider: str = ""
    layer: str = ""


class RefusalRecord(_Record, frozen=True, kw_only=True):
    """Why a provider did not get layers, one record for each reason."""

    provider: str
    reason: str
    layers: list[str]


class PassRecord(_Record, frozen=True, kw_only=True):
    """What a pass did to the network."""

    name: str
    changes: int
    provider: str = ""
    """Whose share of the network it changed; empty for a pass over all of it."""


class PhaseRecord(_Record, frozen=True, kw_only=True):
    """How long a phase of the build took."""

    name: str
    seconds: float
    parent: str = ""


class PrecisionRecord(_Record, frozen=True, kw_only=True):
    """The type that a layer of the network was given, and why it is not the one that was asked for."""

    layer: str
    op: str
    type: str
    """``fp32``, ``fp16``, ``bf16``, ``int8``, ``fp8``, or the type of weights alone, such as ``int4 weights``."""
    reason: str = ""


class RefitRecord(_Record, frozen=True, kw_only=True):
    """Which weights can be replaced in a loaded engine, and why the others cannot."""

    weights: dict[str, str] = {}
    """Weight name -> blob."""
    excluded: dict[str, str] = {}
    """Weight name -> reason."""
    layers: dict[str, tuple[str, str]] = {}
    """Weight name -> the layer that it belongs to and its role there: kernel, bias, ..., constant."""


class Manifest(_Record, frozen=True, kw_only=True):
    """The whole document."""

    format_version: tuple[int, int]
    producer: str
    name: str
    open: bool
    """Whether the engine takes any shape; then there is one program and memory is sized at run time."""
    strongly_typed: bool = True
    inputs: list[TensorRecord]
    outputs: list[TensorRecord]
    profiles: list[ProfileRecord]
    programs: list[ProgramRecord]
    blobs: dict[str, BlobRecord]
    libraries: list[LibraryRecord] = []
    devices: list[DeviceRecord]
    refit: RefitRecord | None = None
    packed: dict[str, PackedRecord] = {}
    """Blob of packed weights -> what it was made of."""
    tuning: list[LayerRecord] = []
    build: dict[str, str] = {}
    """Build settings worth keeping: flags, limits."""
    notes: list[NoteRecord] = []
    refusals: list[RefusalRecord] = []
    passes: list[PassRecord] = []
    phases: list[PhaseRecord] = []
    """Only in a plan that is built to be looked at in detail: no two builds take the same time."""
    precision: list[PrecisionRecord] = []
    """For each layer with FP32 tensors the type it was given, where a build was asked for others than the model's."""


def _encode_dim(value: object) -> object:
    if isinstance(value, Constant | Symbol | Operation):
        return encode_expr(value)
    raise TypeError(f"a manifest holds no {type(value).__name__}")


def _decode_dim(kind: type, stored: object) -> object:
    if type(stored) is int and -MAX_DIM < stored < MAX_DIM:
        return Constant(stored)  # nearly all are: thousands are read when a plan is loaded
    try:
        return decode_expr(stored)
    except UsageError as error:
        # Only for this kind of error does the decoder say where in the document it was.
        raise ValueError(error.what) from None


_DECODER: Final = msgspec.json.Decoder(Manifest, dec_hook=_decode_dim)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_dim, order="deterministic")


class _ManifestVersion(msgspec.Struct):
    format_version: tuple[int, int]


def encode_manifest(manifest: Manifest) -> bytes:
    """The JSON text; equal manifests give equal bytes."""
    return _ENCODER.encode(manifest)


def decode_manifest(text: bytes) -> Manifest:
    """Read a manifest, refusing other versions, unknown fields and wrong types, each with its place."""
    version = _decode(msgspec.json.Decoder(_ManifestVersion), text).format_version
    if version[0] != FORMAT_VERSION[0] or not 0 <= version[1] <= FORMAT_VERSION[1]:
        raise PlanVersionError(
            "the plan was written in a format this version does not read",
            expected=f"{FORMAT_VERSION[0]}.0 to {FORMAT_VERSION[0]}.{FORMAT_VERSION[1]}",
            got=f"{version[0]}.{version[1]}",
            fix="build the plan again, or use the Dovetail version that wrote it",
        )
    manifest: Manifest = _decode(_DECODER, text)
    _check_unique(text, manifest)
    return manifest


def _check_unique(text: bytes, manifest: Manifest) -> None:
    """Check that no object has a key twice, where the last would silently win."""
    # A text that is just what the manifest encodes to has no second key; only that of another writer is searched.
    if encode_manifest(manifest) != text:
        walk_json(text, _refuse_duplicates, _malformed)


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise PlanCorruptError("the manifest has a key twice in one object", got=show([key for key, _ in pairs]))


def _decode(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    return decode(decoder, text, _malformed)


def _malformed(reason: str) -> PlanCorruptError:
    return PlanCorruptError("the manifest is malformed", got=show(reason), fix="build the plan again")


def find_stripped(refit: RefitRecord, packed: Mapping[str, PackedRecord]) -> frozenset[str]:
    """The blobs that a stripped plan leaves out: weights that can be given back, and what is packed from them."""
    given = frozenset(refit.weights.values())
    return given | {blob for blob, record in packed.items() if not given.isdisjoint(record.sources.values())}
