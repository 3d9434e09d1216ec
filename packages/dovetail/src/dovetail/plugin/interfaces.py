"""What a custom layer signs: the interfaces of the ``IPluginV3`` contract.

A plugin is one ``IPluginV3`` object that hands out three capabilities: core (who it is), build (what it needs and
offers while a plan is made) and runtime (how it runs). One class may inherit all of them, or separate objects may
each be one. Subclasses set the attributes and override the methods; nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from dovetail.allocators import IGpuAllocator
    from dovetail.expr import DimsExprs, IExprBuilder
    from dovetail.loggers import IErrorRecorder
    from dovetail.plugin.fields import PluginFieldCollection
    from dovetail.plugin.kernels import KernelLaunch
    from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorRTPhase

from dovetail.contract_enum import ContractEnum
from dovetail.plugin.required import RequiredAttribute, refuse_call

__all__ = [
    "PREFERS_DEVICE",
    "PREFERS_HOST",
    "APILanguage",
    "IPluginCapability",
    "IPluginCreatorInterface",
    "IPluginCreatorV3One",
    "IPluginResource",
    "IPluginResourceContext",
    "IPluginV3",
    "IPluginV3OneBuild",
    "IPluginV3OneBuildV2",
    "IPluginV3OneCore",
    "IPluginV3OneRuntime",
    "IVersionedInterface",
    "InterfaceInfo",
    "PluginCapabilityType",
]


PREFERS_HOST: Final = "host"
PREFERS_DEVICE: Final = "device"


class PluginCapabilityType(ContractEnum):
    """Which capability is asked for."""

    CORE = 0
    BUILD = 1
    RUNTIME = 2


class APILanguage(ContractEnum):
    """The language an interface was implemented in."""

    CPP = 0
    PYTHON = 1


@dataclass(frozen=True)
class InterfaceInfo:
    """Kind and version of an interface."""

    kind: str
    major: int
    minor: int


class IVersionedInterface:
    """An interface that knows its kind and version."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("NONE", 0, 0)
    api_language: APILanguage = APILanguage.PYTHON


class IPluginCapability(IVersionedInterface):
    """The base of core, build and runtime capabilities."""


class IPluginResource(IVersionedInterface):
    """Something that plugins share under a key of the registry.

    The registry keeps ``clone()`` of what it is given, so initialise there and never in the constructor. ``clone``
    must be thread-safe.
    """

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("IPluginResource", 1, 0)

    def clone(self) -> IPluginResource:
        """An initialised twin; this is what the registry keeps."""
        refuse_call(self, "clone()")

    def release(self) -> Any:
        """Free what ``clone`` made; the object must still be cloneable afterwards. 0 or None means done."""
        refuse_call(self, "release()")


class IPluginResourceContext:
    """What a plugin may use of the execution context it is attached to, until it is destroyed."""

    @property
    def gpu_allocator(self) -> IGpuAllocator | None:
        """The allocator of the context."""
        return None

    @property
    def error_recorder(self) -> IErrorRecorder | None:
        """Where to report errors."""
        return None


class IPluginV3(IVersionedInterface):
    """A custom layer: the object that hands out the capabilities and can copy itself."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN", 1, 0)

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability | None:  # noqa: A002
        """The capability asked for; with one class for all, ``return self``."""
        refuse_call(self, "get_capability_interface(type)")

    def clone(self) -> IPluginV3:
        """A fully initialised twin with the same parameters, tactic included."""
        refuse_call(self, "clone()")

    def destroy(self) -> None:
        """Called when the engine lets go of an object it owns; free what the object holds."""


class IPluginV3OneCore(IPluginCapability):
    """Who the plugin is."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3ONE_CORE", 1, 0)

    if TYPE_CHECKING:
        plugin_name: str
        plugin_version: str
        plugin_namespace: str
    else:
        plugin_name = RequiredAttribute()
        plugin_version = RequiredAttribute()
        plugin_namespace = RequiredAttribute()


class IPluginV3OneBuild(IPluginCapability):
    """What the plugin needs and offers while a plan is made."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3ONE_BUILD", 1, 0)
    DEFAULT_FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100

    if TYPE_CHECKING:
        num_outputs: int
    else:
        num_outputs = RequiredAttribute()
    format_combination_limit: int = 100
    timing_cache_id: str | None = None
    metadata_string: str | None = None
    tactic_names: Mapping[int, str] = MappingProxyType({})
    """What tactics are called, by number; for the tuner's tables and for messages."""
    preferred_memory: str = ""
    """Where ``enqueue`` wants its addresses: ``"host"``, ``"device"`` (the first provider of the build whose memory is
    a device's, the host where there is none) or the id of a provider. Empty says nothing, which is the host.
    ``config.layer_providers`` goes before it."""
    takes_ranks: bool = False
    """Whether ``get_output_data_types`` gets the ranks of the inputs as a second argument."""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """The type of each output."""
        refuse_call(self, "get_output_data_types(input_types)")

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> Sequence[DimsExprs]:
        """The shape of each output, as expressions of input dimensions and shape-input values."""
        refuse_call(self, "get_output_shapes(inputs, shape_inputs, exprBuilder)")

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> Any:
        """Told once per combination of formats, before tactics are asked for."""
        refuse_call(self, "configure_plugin(inputs, outputs)")

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether ``in_out[pos]`` fits what positions below it hold; never read above ``pos``."""
        refuse_call(self, "supports_format_combination(pos, in_out, num_inputs)")

    def get_supported_format_combinations(
        self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int
    ) -> Sequence[PluginTensorDesc] | None:
        """All combinations at once, one descriptor after the other; None has ``supports_format_combination`` asked."""
        return None

    def get_workspace_size(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> int:
        """Bytes of scratch memory that every shape up to max needs."""
        return 0

    def get_kernel_launch(
        self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]
    ) -> KernelLaunch | None:
        """The kernel that this combination with the tactic that is set runs as; None where ``enqueue`` runs.

        A plan stores the kernel, and a device runs it without this object.
        """
        return None

    def get_valid_tactics(self) -> Sequence[int]:
        """Positive, unique numbers of the ways to run; none means only the default, 0."""
        return []


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """The build capability with aliased inputs and outputs."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3ONE_BUILD", 2, 0)

    def get_aliased_input(self, output_index: int) -> int:
        """The input whose memory this output shares, or -1."""
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    """How the plugin runs."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3ONE_RUNTIME", 1, 0)
    can_capture: bool = True
    """Whether what ``enqueue`` puts on the stream of a device may be captured once and replayed, without a call of
    ``enqueue`` in between. False for a plugin that works on another stream than the one it gets, or that does in each
    call what depends on the call."""

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> Any:
        """Told the concrete shapes before the runs that use them; -1 marks data-dependent output dims."""
        refuse_call(self, "on_shape_change(inputs, outputs)")

    def set_tactic(self, tactic: int) -> Any:
        """Told the tactic to use from now on; clones must carry it."""
        refuse_call(self, "set_tactic(tactic)")

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Do the work: addresses in, addresses out. Raise to fail; a status other than 0 or None is a failure too."""
        refuse_call(self, "enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)")

    def attach_to_context(self, resource_context: IPluginResourceContext) -> IPluginV3:
        """A clone of the whole plugin that belongs to this context."""
        refuse_call(self, "attach_to_context(resource_context)")

    def get_fields_to_serialize(self) -> PluginFieldCollection | Sequence[Any]:
        """What a loaded plan needs to create the plugin again."""
        refuse_call(self, "get_fields_to_serialize()")


class IPluginCreatorInterface(IVersionedInterface):
    """The base of all creators."""

    if TYPE_CHECKING:
        name: str
        plugin_version: str
    else:
        name = RequiredAttribute()
        plugin_version = RequiredAttribute()
    plugin_namespace: str = ""


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Makes plugins from fields, for a network (BUILD) or for a loaded plan (RUNTIME)."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN CREATOR_V3ONE", 1, 0)

    if TYPE_CHECKING:
        field_names: PluginFieldCollection
    else:
        field_names = RequiredAttribute()
    optional_fields: Collection[str] = ()
    """Fields that an ONNX node may leave out without being told of it."""

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> IPluginV3:
        """A new plugin; copy what you keep of the fields, their memory is gone after the call."""
        refuse_call(self, "create_plugin(name, field_collection, phase)")
