"""What a custom layer signs: the interfaces of the ``IPluginV3`` contract.

A plugin is one ``IPluginV3`` object that hands out three capabilities: core (who it is), build (what it needs and
offers while a plan is made) and runtime (how it runs). One class may inherit all of them, or separate objects may
each be one. Subclasses set the attributes and override the methods; nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from dovetail._contract_enum import ContractEnum

if TYPE_CHECKING:
    from dovetail.allocators import IGpuAllocator
    from dovetail.expr import DimsExprs, IExprBuilder
    from dovetail.loggers import IErrorRecorder
    from dovetail.plugin.fields import PluginFieldCollection
    from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorRTPhase

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


class _Required:
    """An attribute that a subclass must set; reading it before says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__}.{self._name} not initialized: set self.{self._name} in __init__")


def _refuse(instance: object, method: str) -> NoReturn:
    raise NotImplementedError(f"{type(instance).__name__} must implement {method}")


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
        _refuse(self, "clone()")

    def release(self) -> Any:
        """Free what ``clone`` made; the object must still be cloneable afterwards. 0 or None means done."""
        _refuse(self, "release()")


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
        _refuse(self, "get_capability_interface(type)")

    def clone(self) -> IPluginV3:
        """A fully initialised twin with the same parameters, tactic included."""
        _refuse(self, "clone()")

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
        plugin_name = _Required()
        plugin_version = _Required()
        plugin_namespace = _Required()


class IPluginV3OneBuild(IPluginCapability):
    """What the plugin needs and offers while a plan is made."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V3ONE_BUILD", 1, 0)
    DEFAULT_FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100

    if TYPE_CHECKING:
        num_outputs: int
    else:
        num_outputs = _Required()
    format_combination_limit: int = 100
    timing_cache_id: str | None = None
    metadata_string: str | None = None
    tactic_names: Mapping[int, str] = MappingProxyType({})
    """What tactics are called, by number; for the tuner's tables and for messages."""
    preferred_memory: str = ""
    """Where ``enqueue`` wants its addresses: ``"host"``, ``"device"`` (the first provider of the build whose memory is
    a device's, the host where there is none) or the id of a provider. Empty says nothing, which is the host.
    ``config.layer_providers`` goes before it."""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """The type of each output."""
        _refuse(self, "get_output_data_types(input_types)")

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> Sequence[DimsExprs]:
        """The shape of each output, as expressions of input dimensions and shape-input values."""
        _refuse(self, "get_output_shapes(inputs, shape_inputs, exprBuilder)")

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> Any:
        """Told once per combination of formats, before tactics are asked for."""
        _refuse(self, "configure_plugin(inputs, outputs)")

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether ``in_out[pos]`` fits what positions below it hold; never read above ``pos``."""
        _refuse(self, "supports_format_combination(pos, in_out, num_inputs)")

    def get_workspace_size(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> int:
        """Bytes of scratch memory that every shape up to max needs."""
        return 0

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

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> Any:
        """Told the concrete shapes before the runs that use them; -1 marks data-dependent output dims."""
        _refuse(self, "on_shape_change(inputs, outputs)")

    def set_tactic(self, tactic: int) -> Any:
        """Told the tactic to use from now on; clones must carry it."""
        _refuse(self, "set_tactic(tactic)")

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
        _refuse(self, "enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)")

    def attach_to_context(self, resource_context: IPluginResourceContext) -> IPluginV3:
        """A clone of the whole plugin that belongs to this context."""
        _refuse(self, "attach_to_context(resource_context)")

    def get_fields_to_serialize(self) -> PluginFieldCollection | Sequence[Any]:
        """What a loaded plan needs to create the plugin again."""
        _refuse(self, "get_fields_to_serialize()")


class IPluginCreatorInterface(IVersionedInterface):
    """The base of all creators."""

    if TYPE_CHECKING:
        name: str
        plugin_version: str
    else:
        name = _Required()
        plugin_version = _Required()
    plugin_namespace: str = ""


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Makes plugins from fields, for a network (BUILD) or for a loaded plan (RUNTIME)."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN CREATOR_V3ONE", 1, 0)

    if TYPE_CHECKING:
        field_names: PluginFieldCollection
    else:
        field_names = _Required()

    def create_plugin(self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase) -> IPluginV3:
        """A new plugin; copy what you keep of the fields, their memory is gone after the call."""
        _refuse(self, "create_plugin(name, field_collection, phase)")
