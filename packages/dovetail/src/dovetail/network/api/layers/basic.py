"""The plainest layers: constants, identity, casts and shapes."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, WeightsProperty, convert_weights, data_type, dims
from dovetail.network.inference.shapes import ir_type_from_data_type
from dovetail.types import DataType, Weights, volume

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["BasicLayers", "ICastLayer", "IConstantLayer", "IIdentityLayer", "IShapeLayer"]


def _contents(value: Any, where: str, name: str) -> Weights | None:
    """Weights; no elements but a type make an empty tensor."""
    given = convert_weights(value, where, name)
    return Weights(value) if given is None and value is not None else given


class IConstantLayer(ILayer):
    """A tensor that is known now; in the model it is an initializer and no node."""

    __slots__ = ()

    _layer_type = LayerType.CONSTANT
    _kind = "Constant"
    _input_names = ()
    _required_inputs = 0

    shape = Property(dims(minimum=0), "The dimensions.")
    weights = WeightsProperty("The contents.", _contents)

    def __init__(self, network: NetworkCore, shape: Any, contents: Any) -> None:
        super().__init__(network, [])
        self.shape = shape
        self.weights = contents

    def _weights(self) -> dict[str, Weights]:
        stored = self._stored_weights("weights")
        return {} if stored is None else {"constant": stored}

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        contents = self._stored_weights("weights")
        count = 0 if contents is None else len(contents)
        if contents is None or count != volume(self.shape):
            raise e.error(
                "the weights do not fill the shape", expected=f"{volume(self.shape)} for {self.shape}", got=count
            )
        return [e.weights("constant", contents.numpy().reshape(tuple(self.shape)))]


class IIdentityLayer(ILayer):
    """Passes its input on, converted to the output type where one is set."""

    __slots__ = ()

    _layer_type = LayerType.IDENTITY
    _kind = "Identity"

    def set_output_type(self, index: int, dtype: DataType) -> None:
        """Set the element type that the input is converted to."""
        super().set_output_type(index, dtype)
        self._changed()

    def reset_output_type(self, index: int) -> None:
        """Convert nothing."""
        super().reset_output_type(index)
        self._changed()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        target = self._output_types.get(0)
        if target is None:
            return [e.op("Identity", e.input(0))]
        return [e.op("Cast", e.input(0), to=ir_type_from_data_type(target).value)]


class ICastLayer(ILayer):
    """Changes the type of the elements.

    A float becomes an integer by truncation towards zero. Values outside of the range of the integer have no defined
    result, as TensorRT documents for UINT8 and [0, 256) after truncation
    (https://docs.nvidia.com/deeplearning/tensorrt/api/python_api/infer/FoundationalTypes/DataType.html).
    """

    __slots__ = ()

    _layer_type = LayerType.CAST
    _kind = "Cast"

    to_type = Property(data_type(), "The new type.")

    def __init__(self, network: NetworkCore, tensor: ITensor, to_type: Any) -> None:
        super().__init__(network, [tensor])
        self.to_type = to_type

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return [e.op("Cast", e.input(0), to=ir_type_from_data_type(self.to_type).value)]


class IShapeLayer(ILayer):
    """The dimensions of its input as a 1-D INT64 tensor."""

    __slots__ = ()

    _layer_type = LayerType.SHAPE
    _kind = "Shape"
    _reads_only_shapes = True

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        return [e.op("Shape", e.input(0))]


class BasicLayers(NetworkCore):
    """The methods that add constants, identities, casts and shapes."""

    __slots__ = ()

    def add_constant(self, shape: Iterable[int], weights: Any) -> IConstantLayer:
        """Add a tensor that is known now; the array is not copied."""
        return self._add_layer(IConstantLayer(self, shape, weights))

    def add_identity(self, input: ITensor) -> IIdentityLayer:
        """Add a layer that passes its input on; ``set_output_type`` makes it a conversion."""
        return self._add_layer(IIdentityLayer(self, self._check_named("add_identity", input=input)))

    def add_cast(self, input: ITensor, to_type: DataType) -> ICastLayer:
        """Add a change of type."""
        tensor = self._check_tensor(input, where="add_cast", argument="input")
        return self._add_layer(ICastLayer(self, tensor, to_type))

    def add_shape(self, input: ITensor) -> IShapeLayer:
        """Add a layer that gives the dimensions of its input."""
        return self._add_layer(IShapeLayer(self, self._check_named("add_shape", input=input)))
