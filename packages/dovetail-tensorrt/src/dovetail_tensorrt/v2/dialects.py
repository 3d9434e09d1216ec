"""How the questions of the ``IPluginV3`` contract are put to a plugin of one V2 interface.

A dialect keeps nothing: it translates arguments and results. Life and state are in ``dovetail_tensorrt.v2.adapter``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

from dovetail.expr import DimsExprs, IExprBuilder
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc
from dovetail_tensorrt.v2.descriptors import TranslatedDescs, at_shape, bounded_by_shape, read_desc
from dovetail_tensorrt.v2.interfaces import IPluginV2, IPluginV2DynamicExt

__all__ = ["BuildDescs", "Dialect", "DynamicDialect", "RunDescs"]

__dovetail_adapter__ = True

BuildDescs = Sequence[DynamicPluginTensorDesc]
RunDescs = Sequence[PluginTensorDesc]
P = TypeVar("P", bound=IPluginV2)


class Dialect(ABC, Generic[P]):
    """One plugin, asked in the words of its interface."""

    asks_workspace_initialized: bool = False
    """Whether the interface calls ``initialize`` before ``get_workspace_size``."""
    format_combination_limit: int = 100

    def __init__(self, plugin: P) -> None:
        self.plugin: Final = plugin

    @abstractmethod
    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The type of each output."""

    @abstractmethod
    def get_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> list[DimsExprs]:
        """The shape of each output."""

    @abstractmethod
    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted."""

    @abstractmethod
    def configure_plugin(self, inputs: BuildDescs, outputs: BuildDescs) -> Any:
        """Tell a combination of formats, in the build phase."""

    @abstractmethod
    def get_workspace_size(self, inputs: BuildDescs, outputs: BuildDescs) -> int:
        """Bytes of scratch memory for every shape up to max."""

    @abstractmethod
    def on_shape_change(self, inputs: RunDescs, outputs: RunDescs) -> Any:
        """Tell the shapes of the runs to come."""

    @abstractmethod
    def enqueue(
        self,
        input_desc: RunDescs,
        output_desc: RunDescs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Run."""


class DynamicDialect(Dialect[IPluginV2DynamicExt]):
    """``IPluginV2DynamicExt``: whole shapes, asked one output at a time."""

    def __init__(self, plugin: IPluginV2DynamicExt) -> None:
        super().__init__(plugin)
        self.format_combination_limit = plugin.FORMAT_COMBINATION_LIMIT

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The type of each output."""
        return [self.plugin.get_output_datatype(index, list(input_types)) for index in range(self.plugin.num_outputs)]

    def get_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> list[DimsExprs]:
        """The shape of each output; every question has its own copy of the inputs, which plugins may write to."""
        ask = self.plugin.get_output_dimensions
        return [ask(index, [DimsExprs(dims) for dims in inputs], builder) for index in range(self.plugin.num_outputs)]

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted."""
        return self.plugin.supports_format_combination(pos, TranslatedDescs(in_out, read_desc), num_inputs)

    def configure_plugin(self, inputs: BuildDescs, outputs: BuildDescs) -> Any:
        """Tell a combination of formats, in the build phase."""
        self.plugin.configure_plugin(list(inputs), list(outputs))

    def get_workspace_size(self, inputs: BuildDescs, outputs: BuildDescs) -> int:
        """Bytes of scratch memory: the plugin is asked for the largest shapes."""
        return self.plugin.get_workspace_size(_largest(inputs), _largest(outputs))

    def on_shape_change(self, inputs: RunDescs, outputs: RunDescs) -> Any:
        """Tell concrete shapes: this interface has ``configure_plugin`` for that too."""
        self.plugin.configure_plugin(
            [bounded_by_shape(desc) for desc in inputs], [bounded_by_shape(desc) for desc in outputs]
        )

    def enqueue(
        self,
        input_desc: RunDescs,
        output_desc: RunDescs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Run."""
        return self.plugin.enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)


def _largest(descs: BuildDescs) -> list[PluginTensorDesc]:
    return [at_shape(dynamic.desc, dynamic.max) for dynamic in descs]
