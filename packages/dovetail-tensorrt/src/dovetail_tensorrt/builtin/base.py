"""What all built-in plugins share: identity, life, fields, and where ``enqueue`` runs.

A plugin of this package is a subclass of ``BuiltinPlugin`` that says which inputs it takes, what its outputs are and
how they are computed: ``compute`` over arrays of the host, and ``plan_launches`` over addresses of a CUDA device. The
addresses decide which of the two runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError
from dovetail.plugin.arrays import as_array
from dovetail.plugin.interfaces import (
    PREFERS_DEVICE,
    IPluginCreatorV3One,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from dovetail.types import DataType, TensorFormat
from dovetail_tensorrt.builtin.device.launch import (
    BufferSize,
    DeviceBuffer,
    DeviceTensor,
    KernelLaunch,
    measure_buffers,
    place_buffers,
)
from dovetail_tensorrt.builtin.device.memory import find_device
from dovetail_tensorrt.builtin.fields import FieldRule, describe_values, list_names, read_fields, write_fields

if TYPE_CHECKING:
    from dovetail.expr import DimsExprs, IExprBuilder
    from dovetail.plugin.fields import PluginFieldCollection
    from dovetail.plugin.interfaces import IPluginCapability, IPluginResourceContext, PluginCapabilityType
    from dovetail.types import DynamicPluginTensorDesc, PluginTensorDesc, TensorRTPhase

__all__ = ["FLOATS", "INDICES", "Array", "BuiltinCreator", "BuiltinPlugin", "Shape", "agree", "require"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

FLOATS: Final = (DataType.FLOAT, DataType.HALF)
INDICES: Final = (DataType.INT32, DataType.INT64)


class BuiltinPlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """A plugin with all three capabilities whose parameters are its fields.

    Args:
        version: The version under which it was asked for.
        namespace: The namespace of its creator.
        values: The value of every field.
    """

    name: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]
    rules: ClassVar[tuple[FieldRule, ...]] = ()
    input_counts: ClassVar[tuple[int, ...]]
    num_outputs: int = 1
    preferred_memory = PREFERS_DEVICE

    def __init__(self, version: str, namespace: str, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = self.name, version, namespace
        self.values = dict(values)
        self.timing_cache_id = self.metadata_string = describe_values(self.rules, self.values)
        self.tactic = 0

    # what a subclass says

    def list_types(self, pos: int, first: DataType, num_inputs: int) -> Sequence[DataType]:
        """The types that an input or output may have, when the first input has type ``first``."""
        raise NotImplementedError

    def list_formats(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> Any:
        """The formats that an input or output may have."""
        return (TensorFormat.LINEAR,)

    def check_shapes(self, shapes: Sequence[Shape]) -> None:
        """Refuse shapes of the inputs that do not fit; -1 is a size that is not known yet."""

    def compute(self, inputs: Sequence[Array], descs: Sequence[PluginTensorDesc]) -> Sequence[Array]:
        """The outputs, from arrays of the host; half precision comes in as FP32."""
        raise NotImplementedError

    def list_buffers(self, shapes: Sequence[Shape], types: Sequence[DataType]) -> Sequence[BufferSize]:
        """The buffers of the workspace that ``plan_launches`` uses, for inputs of these shapes and types."""
        return ()

    def plan_launches(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor], buffers: Sequence[DeviceBuffer]
    ) -> list[KernelLaunch]:
        """The kernels that compute the outputs on a device, in their order."""
        raise NotImplementedError

    # life

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability:  # noqa: A002
        """This object has all capabilities."""
        return self

    def clone(self) -> IPluginV3:
        """A twin; the values of fields never change and are shared."""
        return copy.copy(self)

    def attach_to_context(self, resource_context: IPluginResourceContext) -> IPluginV3:
        """A twin: nothing here belongs to a context."""
        return copy.copy(self)

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """All fields."""
        return write_fields(self.rules, self.values)

    # build

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """The type of the first input."""
        return [input_types[0]] * self.num_outputs

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> Sequence[DimsExprs]:
        """The shape of each output."""
        self._check_count(len(inputs))
        constants = [tuple(dim.get_constant_value() if dim.is_constant() else -1 for dim in dims) for dims in inputs]
        self.check_shapes(constants)
        return self.make_output_shapes(inputs, exprBuilder)

    def make_output_shapes(self, inputs: Sequence[DimsExprs], builder: IExprBuilder) -> Sequence[DimsExprs]:
        """The shape of each output, once the number of inputs is right."""
        raise NotImplementedError

    def supports_format_combination(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> bool:
        """Whether the type and the format are among those listed."""
        if num_inputs not in self.input_counts:
            return False
        desc = in_out[pos].desc
        first = in_out[0].desc.type
        is_type = first is not None and desc.type in self.list_types(pos, first, num_inputs)
        return is_type and desc.format in self.list_formats(pos, in_out, num_inputs)

    def configure_plugin(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> None:
        """Refuse shapes that do not fit."""
        self._check_count(len(in_))
        self.check_shapes([tuple(desc.desc.dims) for desc in in_])

    def get_workspace_size(self, in_: Sequence[DynamicPluginTensorDesc], out: Sequence[DynamicPluginTensorDesc]) -> int:
        """What the kernels of a device need; the host needs none."""
        types = [desc.desc.type for desc in in_]
        return measure_buffers(self.list_buffers([tuple(desc.max) for desc in in_], types))

    # runtime

    def set_tactic(self, tactic: int) -> None:
        """There is one way only; the number is kept."""
        self.tactic = tactic

    def on_shape_change(self, in_: Sequence[PluginTensorDesc], out: Sequence[PluginTensorDesc]) -> None:
        """Refuse shapes that do not fit."""
        self.check_shapes([tuple(desc.dims) for desc in in_])

    def enqueue(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        """Compute where the memory is."""
        device = find_device(stream, (*inputs, *outputs))
        if device is None:
            self._run_on_host(input_desc, output_desc, inputs, outputs)
        else:
            device.run(self.plan_run(input_desc, output_desc, inputs, outputs, workspace), stream)

    def plan_run(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
    ) -> list[KernelLaunch]:
        """The kernels of one run over addresses of a device."""
        sizes = self.list_buffers([tuple(desc.dims) for desc in input_desc], [desc.type for desc in input_desc])
        given, made = _describe(inputs, input_desc), _describe(outputs, output_desc)
        if not any(tensor.size for tensor in made):
            return []
        return self.plan_launches(given, made, place_buffers(workspace, sizes))

    def _run_on_host(
        self,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        given = [_widen(as_array(address, desc)) for address, desc in zip(inputs, input_desc, strict=True)]
        made = self.compute(given, [*input_desc, *output_desc])
        for address, desc, result in zip(outputs, output_desc, made, strict=True):
            _write(as_array(address, desc), result)

    def _check_count(self, count: int) -> None:
        words = " or ".join(map(str, self.input_counts))
        require(self.name, count in self.input_counts, "the layer has another number of inputs", words, count)


def _describe(addresses: Sequence[int], descs: Sequence[PluginTensorDesc]) -> list[DeviceTensor]:
    return [
        DeviceTensor(DeviceBuffer(address, desc.type), tuple(desc.dims), desc.format, desc.scale)
        for address, desc in zip(addresses, descs, strict=True)
    ]


def _widen(array: Array) -> Array:
    """Half precision as FP32: sums of many terms need the bits, and NumPy is faster with it."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else array


def _write(target: Array, result: Array) -> None:
    with np.errstate(over="ignore"):  # what FP16 cannot hold is infinite there
        target[...] = result


def agree(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether sizes are the same, as far as they are known.

    >>> agree((2, -1), (2, 3)), agree((2,), (3,))
    (True, False)
    """
    return len(one) == len(other) and all(-1 in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))


def require(where: str, is_right: bool, what: str, expected: object = None, got: object = None) -> None:
    """Raise an error unless something is right."""
    if not is_right:
        raise PluginError(what, where=where, expected=expected, got=got)


class BuiltinCreator(IPluginCreatorV3One):
    """Makes one built-in plugin in one version.

    Args:
        plugin: Its class.
        version: Its version.
    """

    def __init__(self, plugin: type[BuiltinPlugin], version: str) -> None:
        super().__init__()
        self._plugin = plugin
        self.name, self.plugin_version, self.plugin_namespace = plugin.name, version, ""
        self.field_names = list_names(plugin.rules)

    def create_plugin(
        self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase | None = None
    ) -> BuiltinPlugin:
        """A plugin with these fields; without a phase as scripts of version 10 ask for them, where they are V2.

        Raises:
            PluginError: A field is missing or not allowed.
        """
        values = read_fields(self.name, self._plugin.rules, field_collection)
        return self._plugin(self.plugin_version, self.plugin_namespace, values)
