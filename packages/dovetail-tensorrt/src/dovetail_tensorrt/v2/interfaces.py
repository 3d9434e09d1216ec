"""The interfaces of V2 plugins and their creators, with the member names of the Python binding.

``IPluginV2``, ``IPluginV2Ext`` and ``IPluginV2IOExt`` never see the batch: the first dimension of each tensor is the
batch, the shapes they are told are without it, and a run gets its size as a number. ``IPluginV2DynamicExt`` sees whole
shapes, as expressions while a network is built. Nothing here runs a plugin; ``dovetail_tensorrt.v2.adapter`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dovetail.contract_enum import ContractEnum
from dovetail.plugin.interfaces import PREFERS_DEVICE, InterfaceInfo, IPluginCreatorInterface, IVersionedInterface
from dovetail.plugin.required import RequiredAttribute, refuse_call

if TYPE_CHECKING:
    from dovetail.allocators import IGpuAllocator
    from dovetail.expr import DimsExprs, IExprBuilder
    from dovetail.plugin.fields import PluginFieldCollection
    from dovetail.plugin.interfaces import IPluginCreatorV3One, IPluginV3
    from dovetail.types import DataType, Dims, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat

__all__ = [
    "API_VERSION",
    "IPluginCreator",
    "IPluginV2",
    "IPluginV2DynamicExt",
    "IPluginV2DynamicExtBase",
    "IPluginV2Ext",
    "IPluginV2IOExt",
    "PluginCreatorVersion",
]

API_VERSION: Final = 110100
"""What ``tensorrt_version`` of a plugin says: the version of the API that these classes have."""


class PluginCreatorVersion(ContractEnum):
    """Which kind of V2 creator: written in C++, or in Python."""

    V1 = 0
    V1_PYTHON = 0x40


class IPluginV2(IVersionedInterface):
    """A custom layer with one data type and one format for all its tensors; it never sees the batch."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V2", 1, 0)

    if TYPE_CHECKING:
        num_outputs: int
        plugin_type: str
        plugin_version: str
    else:
        num_outputs = RequiredAttribute()
        plugin_type = RequiredAttribute()
        plugin_version = RequiredAttribute()
    plugin_namespace: str = ""
    preferred_memory: str = PREFERS_DEVICE
    """Where a run gets its addresses: V2 plugins expect those of a device, and of the host where there is none."""

    @property
    def tensorrt_version(self) -> int:
        """The version of the API that the plugin was made with."""
        return API_VERSION

    @property
    def serialization_size(self) -> int:
        """How many bytes ``serialize`` gives."""
        return self.get_serialization_size()

    def get_output_shape(self, index: int, input_shapes: Sequence[Dims]) -> Dims | Sequence[int]:
        """The shape of an output without the batch, from input shapes without it."""
        refuse_call(self, "get_output_shape(index, input_shapes)")

    def supports_format(self, dtype: DataType, format: TensorFormat) -> bool:  # noqa: A002
        """Whether tensors of this type may have this format."""
        refuse_call(self, "supports_format(dtype, format)")

    def configure_with_format(
        self,
        input_shapes: Sequence[Dims],
        output_shapes: Sequence[Dims],
        dtype: DataType,
        format: TensorFormat,  # noqa: A002
        max_batch_size: int,
    ) -> None:
        """Told shapes without the batch, the type and format of all tensors, and the largest batch; build phase."""
        refuse_call(self, "configure_with_format(input_shapes, output_shapes, dtype, format, max_batch_size)")

    def initialize(self) -> Any:
        """Acquire what runs need, once an engine; clones are made of an initialised object and must be so too."""

    def terminate(self) -> None:
        """Release what ``initialize`` acquired, when the engine goes."""

    def get_workspace_size(self, max_batch_size: int) -> int:
        """Bytes of scratch memory for every batch up to this one."""
        return 0

    def execute_async(
        self, batch_size: int, inputs: Sequence[int], outputs: Sequence[int], workspace: int, stream_handle: int
    ) -> Any:
        """Do the work; 0 or None for success, any other number for failure."""
        refuse_call(self, "execute_async(batch_size, inputs, outputs, workspace, stream_handle)")

    def get_serialization_size(self) -> int:
        """How many bytes ``serialize`` gives."""
        return len(self.serialize())

    def serialize(self) -> bytes | str:
        """What a loaded plan needs to make the plugin again."""
        refuse_call(self, "serialize()")

    def destroy(self) -> None:
        """Called when the engine lets go of an object it owns."""

    def clone(self) -> IPluginV2:
        """A twin with the same parameters; of an initialised object, an initialised twin."""
        refuse_call(self, "clone()")

    def as_plugin_v3(self) -> IPluginV3:
        """This plugin under the ``IPluginV3`` contract."""
        from dovetail_tensorrt.v2.adapter import (
            adapt_plugin,
        )  # the adapter knows the interfaces, so only this way round

        return adapt_plugin(self)


class IPluginV2Ext(IPluginV2):
    """A custom layer whose outputs have types of their own, and which is told of its execution context."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V2EXT", 1, 0)

    def get_output_data_type(self, index: int, input_types: Sequence[DataType]) -> DataType:
        """The type of an output."""
        refuse_call(self, "get_output_data_type(index, input_types)")

    def configure_plugin(
        self,
        input_shapes: Sequence[Dims],
        output_shapes: Sequence[Dims],
        input_types: Sequence[DataType],
        output_types: Sequence[DataType],
        input_is_broadcasted: Sequence[bool],
        output_is_broadcasted: Sequence[bool],
        format: TensorFormat,  # noqa: A002
        max_batch_size: int,
    ) -> None:
        """Told shapes without the batch, types, the format of floating-point tensors, and the largest batch."""
        refuse_call(self, "configure_plugin(input_shapes, output_shapes, input_types, output_types, ...)")

    def attach_to_context(self, cudnn: Any, cublas: Any, allocator: IGpuAllocator | None) -> None:
        """Told what an execution context offers. Handles of cuDNN and cuBLAS are None: make your own."""

    def detach_from_context(self) -> None:
        """Told that the execution context goes."""


class IPluginV2IOExt(IPluginV2Ext):
    """A custom layer with a type and a format of its own for each tensor; it never sees the batch."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V2IOEXT", 1, 0)

    def supports_format_combination(self, pos: int, in_out: Sequence[PluginTensorDesc], num_inputs: int) -> bool:
        """Whether ``in_out[pos]`` fits what positions below it hold; never read above ``pos``."""
        refuse_call(self, "supports_format_combination(pos, in_out, num_inputs)")

    def configure_plugin(  # type: ignore[override]  # the interface itself replaces the method by another of its name
        self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]
    ) -> None:
        """Told type, format and shape without the batch of each tensor; build phase."""
        refuse_call(self, "configure_plugin(in, out)")


class IPluginV2DynamicExtBase(IPluginV2Ext):
    """The base of plugins for shapes that vary."""


class IPluginV2DynamicExt(IPluginV2DynamicExtBase):
    """A custom layer for shapes that vary; it sees whole shapes, the batch included."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN_V2DYNAMICEXT", 1, 0)
    FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100

    def get_output_datatype(self, index: int, input_types: Sequence[DataType]) -> DataType:
        """The type of an output."""
        refuse_call(self, "get_output_datatype(index, input_types)")

    def get_output_dimensions(
        self,
        output_index: int,
        inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> DimsExprs:
        """The shape of an output, as expressions of input dimensions."""
        refuse_call(self, "get_output_dimensions(output_index, inputs, exprBuilder)")

    def supports_format_combination(self, pos: int, in_out: Sequence[PluginTensorDesc], num_inputs: int) -> bool:
        """Whether ``in_out[pos]`` fits what positions below it hold; never read above ``pos``."""
        refuse_call(self, "supports_format_combination(pos, in_out, num_inputs)")

    def configure_plugin(  # type: ignore[override]  # the interface itself replaces the method by another of its name
        self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]
    ) -> None:
        """Told formats and bounds in the build phase, and concrete shapes in ``desc.dims`` before runs."""
        refuse_call(self, "configure_plugin(in, out)")

    def get_workspace_size(  # type: ignore[override]  # the interface itself replaces the method
        self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]
    ) -> int:
        """Bytes of scratch memory for these shapes and every smaller one."""
        return 0

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Do the work: addresses in, addresses out. Raise to fail."""
        refuse_call(self, "enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)")


class IPluginCreator(IPluginCreatorInterface):
    """Makes V2 plugins, from fields for a network and from bytes for a loaded plan."""

    interface_info: ClassVar[InterfaceInfo] = InterfaceInfo("PLUGIN CREATOR_V1", 1, 0)

    if TYPE_CHECKING:
        field_names: PluginFieldCollection
    else:
        field_names = RequiredAttribute()

    def create_plugin(self, name: str, field_collection: PluginFieldCollection) -> IPluginV2:
        """A new plugin for a network."""
        refuse_call(self, "create_plugin(name, field_collection)")

    def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> IPluginV2:
        """The plugin that ``serialize`` gave these bytes for."""
        refuse_call(self, "deserialize_plugin(name, serialized_plugin)")

    def as_creator_v3one(self) -> IPluginCreatorV3One:
        """This creator under the ``IPluginCreatorV3One`` contract."""
        from dovetail_tensorrt.v2.creator import adapt_creator  # the adapter knows the interfaces

        return adapt_creator(self)
