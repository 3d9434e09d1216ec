"""What all layers share: inputs, outputs, names, and the promise to write themselves as ONNX nodes.

A layer is a record. Its properties may change after it was added; nodes are written when a type or shape is read and
when the model is made, from what the record says then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.errors import UsageError
from dovetail.escapes import escape_line
from dovetail.network.api.enums import LayerType
from dovetail.network.api.properties import check_name, data_type
from dovetail.network.api.tensor import ITensor
from dovetail.strict_attributes import StrictAttributes
from dovetail.types import DataType, Weights

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail.network.api.core import NetworkCore
    from dovetail.network.api.emission import Emitter

__all__ = ["ILayer", "layer_where"]


def layer_where(name: str, kind: str) -> str:
    """How messages name a layer."""
    return f"layer '{name}' ({kind})"


class ILayer(StrictAttributes, ABC):
    """One layer of a network. Made by the ``add_*`` methods, never by hand."""

    __slots__ = (
        "_inputs",
        "_metadata",
        "_name",
        "_network",
        "_num_ranks",
        "_output_types",
        "_outputs",
        "_precision",
        "_taken_for",
        "_values",
    )

    _layer_type: LayerType
    _kind: str
    _input_names: ClassVar[tuple[str, ...]] = ("input",)
    """Every input the layer can have, in order."""
    _required_inputs: int = 1
    """How many of them it cannot do without."""
    _shape_inputs: frozenset[int] = frozenset()
    """Inputs whose values decide a shape."""
    _reads_only_shapes: bool = False
    """Whether the outputs follow from the shapes of the inputs alone, never from their values."""
    _is_boundary: ClassVar[bool] = False
    """Whether it is part of a loop or conditional."""

    def __init__(self, network: NetworkCore, inputs: Sequence[ITensor | None], *, num_outputs: int = 1) -> None:
        self._network = network
        self._name = name = network._next_name(self._kind)
        self._metadata = ""
        self._num_ranks = 1
        self._taken_for: type | None = None
        self._values: dict[str, Any] = {}
        self._inputs: list[ITensor | None] = list(inputs)
        self._precision: DataType | None = None
        self._output_types: dict[int, DataType] = {}
        self._outputs = [
            ITensor(network, f"{name}_output{f'_{index}' if index else ''}", layer=self, index=index)
            for index in range(num_outputs)
        ]

    # identity

    @property
    def __class__(self) -> type:
        """The kind that a program has taken the layer for, by ``layer.__class__ = IConvolutionLayer``, or its own.

        Bindings give layers of a base class, which programs cast so. What the layer is does not change by that.
        """
        return self._taken_for or type(self)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        self._taken_for = kind

    def __dir__(self) -> list[str]:
        """What programs may use, also of the kind that they have taken the layer for."""
        kinds = {type(self), self._taken_for or type(self)}
        return sorted({name for kind in kinds for name in dir(kind) if not name.startswith("_")})

    @property
    def name(self) -> str:
        """The name; nodes of the model are named after it."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        check_name(value, self._where, "the name of a layer", 4096)
        self._name = value
        self._network._touch_model()

    @property
    def type(self) -> Any:
        """The kind of layer; activation and pooling layers have their own ``type`` instead."""
        return self._layer_type

    @property
    def layer_type(self) -> LayerType:
        """The kind of layer, for every layer."""
        return self._layer_type

    @property
    def metadata(self) -> str:
        """Free text that the inspector shows."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: str) -> None:
        self._metadata = str(value)
        self._network._touch_model()

    @property
    def num_ranks(self) -> int:
        """How many devices run the layer: one."""
        return self._num_ranks

    @num_ranks.setter
    def num_ranks(self, value: int) -> None:
        if value != 1:
            raise UsageError("a layer runs on one device", where=self._where, expected=1, got=value)

    @property
    def _where(self) -> str:
        return layer_where(self._name, self._kind)

    # inputs and outputs

    @property
    def num_inputs(self) -> int:
        """How many inputs there are, up to the last that is set."""
        count = len(self._inputs)
        while count and self._inputs[count - 1] is None:
            count -= 1
        return count

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor | None:
        """An input; None when it is optional and not set, or does not exist."""
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor:
        """An output."""
        if not 0 <= index < len(self._outputs):
            raise UsageError(
                f"output {index} does not exist",
                where=self._where,
                expected=f"an index below {len(self._outputs)}",
                got=index,
            )
        return self._outputs[index]

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Replace an input, or set an optional one; None takes an optional one away."""
        limit = self._max_inputs
        if not hasattr(index, "__index__") or not 0 <= index < limit:
            raise UsageError(
                f"input {index} does not exist",
                where=self._where,
                expected=", ".join(f"{i} ({name})" for i, name in enumerate(self._input_names[:limit]))
                or f"an index below {limit}",
                got=index,
            )
        if tensor is None and index >= self._required_inputs:
            self._drop_input(index)
        else:
            self._put_input(index, self._network._check_tensor(tensor, where=self._where, argument=f"input {index}"))
        self._changed()

    @property
    def _max_inputs(self) -> int:
        return len(self._input_names)

    def _put_input(self, index: int, tensor: ITensor) -> None:
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor

    def _drop_input(self, index: int) -> None:
        if index < len(self._inputs):
            self._inputs[index] = None

    # types

    def get_output_type(self, index: int) -> DataType:
        """The type of an output: what was asked for, else what follows from the inputs."""
        asked = self._output_types.get(index)
        return self.get_output(index).dtype if asked is None else asked

    def set_output_type(self, index: int, dtype: DataType) -> None:
        """Ask for the type of an output; heeded where the builder may choose types."""
        self.get_output(index)
        self._output_types[index] = data_type()(dtype, self._where, "dtype")
        self._network._touch_model()

    def output_type_is_set(self, index: int) -> bool:
        """Whether a type was asked for."""
        return index in self._output_types

    def reset_output_type(self, index: int) -> None:
        """Ask for nothing."""
        self._output_types.pop(index, None)
        self._network._touch_model()

    @property
    def precision(self) -> DataType | None:
        """The type to compute in, or None; heeded where the builder may choose types."""
        return self._precision

    @precision.setter
    def precision(self, value: DataType) -> None:
        self._precision = data_type()(value, self._where, "precision")
        self._network._touch_model()

    @property
    def precision_is_set(self) -> bool:
        """Whether a precision was asked for."""
        return self._precision is not None

    def reset_precision(self) -> None:
        """Ask for no precision."""
        self._precision = None
        self._network._touch_model()

    # what the network asks

    def _changed(self) -> None:
        self._network._touch_layer(self)

    def _weights(self) -> dict[str, Weights]:
        """The weights by role; they become initializers named ``<layer>.<role>``."""
        return {}

    def _stored_weights(self, name: str) -> Weights | None:
        """The weights of a property as they were given, of any type and shape."""
        stored: Weights | None = self._values[name]
        return stored

    def _dependencies(self) -> list[ITensor]:
        """The tensors that must exist before this layer."""
        return [tensor for tensor in self._inputs if tensor is not None]

    @abstractmethod
    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        """Write the nodes and return the value of each output."""

    def __repr__(self) -> str:
        return escape_line(f"<{type(self).__name__} '{self._name}'>")
