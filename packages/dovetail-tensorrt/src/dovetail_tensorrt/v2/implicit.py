"""Plugins that never see the batch: ``IPluginV2``, ``IPluginV2Ext`` and ``IPluginV2IOExt``.

Networks have the batch as the first dimension of each tensor. These plugins are told shapes without it, declare shapes
without it, and are run with its size as a number; all other dimensions are fixed when the network is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from dovetail.errors import PluginError
from dovetail.expr import DimsExprs, Expr, IExprBuilder
from dovetail.types import DataType, Dims, PluginTensorDesc, TensorFormat
from dovetail_tensorrt.v2.descriptors import TranslatedDescs, at_shape, drop_batch, read_unbatched_desc
from dovetail_tensorrt.v2.dialects import BuildDescs, Dialect, RunDescs
from dovetail_tensorrt.v2.interfaces import IPluginV2, IPluginV2Ext, IPluginV2IOExt

__all__ = ["ExtDialect", "IOExtDialect", "OneTypeDialect"]

__dovetail_adapter__ = True

Q = TypeVar("Q", bound=IPluginV2)

_OLD_FORMATS: Final = frozenset((TensorFormat.LINEAR, TensorFormat.CHW2, TensorFormat.HWC8))
"""The formats that ``supports_format`` was ever asked for; the interfaces with one format for all know no others."""


class ImplicitBatchDialect(Dialect[Q]):
    """What the three interfaces have in common."""

    asks_workspace_initialized = True

    def get_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> list[DimsExprs]:
        """The shape of each output: the batch of the first input, then what the plugin says."""
        shapes = [self._fixed_shape(index, dims) for index, dims in enumerate(inputs)]
        batch = inputs[0][0] if inputs else builder.constant(1)
        asked = [self.plugin.get_output_shape(i, [Dims(s) for s in shapes]) for i in range(self.plugin.num_outputs)]
        return [DimsExprs([batch, *(builder.constant(int(size)) for size in shape)]) for shape in asked]

    def _fixed_shape(self, index: int, dims: DimsExprs) -> list[int]:
        if not len(dims):
            raise PluginError(
                f"input {index} has no dimension that could be the batch",
                where=_name(self.plugin),
                expected="at least one dimension",
            )
        sizes: list[Expr] = list(dims)[1:]
        for axis, size in enumerate(sizes, start=1):
            if not size.is_constant():
                raise PluginError(
                    f"dimension {axis} of input {index} varies",
                    where=_name(self.plugin),
                    expected="fixed dimensions after the batch, which is all that this interface can describe",
                    fix="fix the dimension in the network, or derive the plugin from IPluginV2DynamicExt or IPluginV3",
                )
        return [size.get_constant_value() for size in sizes]

    def get_workspace_size(self, inputs: BuildDescs, outputs: BuildDescs) -> int:
        """Bytes of scratch memory for the largest batch."""
        return self.plugin.get_workspace_size(self._largest_batch(inputs))

    def _largest_batch(self, inputs: BuildDescs) -> int:
        batch = max((dynamic.max[0] for dynamic in inputs), default=1)
        if batch < 0:
            raise PluginError(
                "the largest batch is not known",
                where=_name(self.plugin),
                fix="build with an optimization profile, or with fixed shapes",
            )
        return batch

    def on_shape_change(self, inputs: RunDescs, outputs: RunDescs) -> Any:
        """Check that there is one batch; the interface has no callback for a change of it."""
        self._batch_of(inputs)

    def enqueue(
        self,
        input_desc: RunDescs,
        output_desc: RunDescs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Run with the batch as a number."""
        return self.plugin.execute_async(self._batch_of(input_desc), inputs, outputs, workspace, stream)

    def _batch_of(self, inputs: RunDescs) -> int:
        batches = {desc.dims[0] for desc in inputs}
        if len(batches) > 1:
            raise PluginError(
                "the inputs have different batches",
                where=_name(self.plugin),
                expected="the same first dimension in every input",
                got=[tuple(desc.dims) for desc in inputs],
            )
        return batches.pop() if batches else 1


class OneTypeDialect(ImplicitBatchDialect[IPluginV2]):
    """``IPluginV2``: one type and one format for all tensors."""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The type of the first input, for every output."""
        return [input_types[0] if input_types else DataType.FLOAT] * self.plugin.num_outputs

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted: like the first tensor, which the plugin is asked about."""
        first, desc = in_out[0].desc, in_out[pos].desc
        if (desc.type, desc.format) != (first.type, first.format) or desc.format not in _OLD_FORMATS:
            return False
        return bool(self.plugin.supports_format(desc.type, desc.format))

    def configure_plugin(self, inputs: BuildDescs, outputs: BuildDescs) -> Any:
        """Tell a combination of formats, in the build phase."""
        first = [*inputs, *outputs][0].desc
        self.plugin.configure_with_format(
            _unbatched(inputs), _unbatched(outputs), first.type, first.format, self._largest_batch(inputs)
        )


class ExtDialect(ImplicitBatchDialect[IPluginV2Ext]):
    """``IPluginV2Ext``: types of their own for outputs, one format for all floating-point tensors."""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The type of each output."""
        return [self.plugin.get_output_data_type(index, list(input_types)) for index in range(self.plugin.num_outputs)]

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted: floating-point tensors share a format, all others are linear."""
        descs = [in_out[index].desc for index in range(pos + 1)]
        if descs[pos].format is not _shared_format(descs, descs[pos]) or descs[pos].format not in _OLD_FORMATS:
            return False
        return bool(self.plugin.supports_format(descs[pos].type, descs[pos].format))

    def configure_plugin(self, inputs: BuildDescs, outputs: BuildDescs) -> Any:
        """Tell a combination of formats, in the build phase."""
        descs = [dynamic.desc for dynamic in (*inputs, *outputs)]
        types = [desc.type for desc in descs]
        self.plugin.configure_plugin(
            _unbatched(inputs),
            _unbatched(outputs),
            types[: len(inputs)],
            types[len(inputs) :],
            [False] * len(inputs),
            [False] * len(outputs),
            next((desc.format for desc in descs if desc.type.is_float), TensorFormat.LINEAR),
            self._largest_batch(inputs),
        )


def _shared_format(descs: Sequence[PluginTensorDesc], desc: PluginTensorDesc) -> TensorFormat:
    """The format that a tensor must have next to those before it."""
    if not desc.type.is_float:
        return TensorFormat.LINEAR
    shared: TensorFormat = next(other.format for other in descs if other.type.is_float)
    return shared


class IOExtDialect(ImplicitBatchDialect[IPluginV2IOExt]):
    """``IPluginV2IOExt``: a type and a format of its own for each tensor."""

    def get_output_data_types(self, input_types: Sequence[DataType]) -> list[DataType]:
        """The type of each output."""
        return [self.plugin.get_output_data_type(index, list(input_types)) for index in range(self.plugin.num_outputs)]

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted."""
        descs = TranslatedDescs(in_out, read_unbatched_desc)
        return self.plugin.supports_format_combination(pos, descs, num_inputs)

    def configure_plugin(self, inputs: BuildDescs, outputs: BuildDescs) -> Any:
        """Tell a combination of formats, in the build phase."""
        self._largest_batch(inputs)
        self.plugin.configure_plugin(_unbatched_descs(inputs), _unbatched_descs(outputs))


def _unbatched(descs: BuildDescs) -> list[Dims]:
    return [drop_batch(dynamic.max) for dynamic in descs]


def _unbatched_descs(descs: BuildDescs) -> list[PluginTensorDesc]:
    return [at_shape(dynamic.desc, drop_batch(dynamic.max)) for dynamic in descs]


def _name(plugin: IPluginV2) -> str:
    return f"V2 plugin {type(plugin).__name__}"
