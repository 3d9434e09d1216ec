"""Tensors of a network: what one layer hands to the next; type and shape follow from the layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dovetail.errors import UsageError
from dovetail.escapes import escape_line
from dovetail.network.api.properties import check_name
from dovetail.strict_attributes import StrictAttributes
from dovetail.types import DataType, Dims, TensorFormat, TensorLocation

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore
    from dovetail.network.api.layers.base import ILayer

__all__ = ["ALL_FORMATS", "MAX_TENSOR_NAME_BYTES", "ITensor"]

ALL_FORMATS: Final = (1 << len(TensorFormat)) - 1
MAX_TENSOR_NAME_BYTES: Final = 4096


class ITensor(StrictAttributes):
    """One tensor of a network. Made by ``add_input`` and by layers, never by hand.

    ``dtype`` and ``shape`` are found when they are read, from what the layers are at that time.
    """

    __slots__ = (
        "_allowed_formats",
        "_dimension_labels",
        "_dimension_names",
        "_dtype",
        "_index",
        "_io_dtype",
        "_layer",
        "_location",
        "_name",
        "_network",
        "_range",
        "_shape",
    )

    def __init__(
        self,
        network: NetworkCore,
        name: str,
        *,
        layer: ILayer | None = None,
        index: int = 0,
        dtype: DataType | None = None,
        shape: Dims | None = None,
    ) -> None:
        self._network = network
        self._name = name
        self._layer = layer
        self._index = index
        self._dtype = dtype
        self._io_dtype: DataType | None = None
        self._shape = shape
        self._allowed_formats: int | None = None
        self._location = TensorLocation.DEVICE
        self._dimension_names: dict[int, str] = {}
        self._dimension_labels: dict[int, str] = {}
        """Names as they were given, where they are no symbols that shapes could be computed with."""
        self._range: tuple[float, float] | None = None

    # identity

    @property
    def name(self) -> str:
        """The name; unique in the network."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        check_name(value, f"tensor '{self._name}'", "the name of a tensor", MAX_TENSOR_NAME_BYTES)
        self._network._rename_tensor(self, value)

    @property
    def is_network_input(self) -> bool:
        """Whether the caller gives it."""
        return self._layer is None

    @property
    def is_network_output(self) -> bool:
        """Whether it was marked as an output."""
        return self._network._is_output(self)

    # type and shape

    @property
    def dtype(self) -> DataType:
        """The element type; that of an input or output may be set, and is then cast where it meets the layers."""
        if self._io_dtype is not None and (self.is_network_input or self.is_network_output):
            return self._io_dtype
        if self._dtype is not None:
            return self._dtype
        return self._network._dtype_of(self)

    @dtype.setter
    def dtype(self, value: DataType) -> None:
        self._network._retype_io(self, value)

    @property
    def shape(self) -> Dims:
        """The dimensions, -1 for each that is not a constant; invalid dims when not even the rank is known."""
        if self._shape is not None:
            return self._shape.__copy__()
        return self._network._shape_of(self)

    @shape.setter
    def shape(self, value: Any) -> None:
        self._network._reshape_input(self, value)

    def set_dimension_name(self, index: int, name: str) -> None:
        """Name a dimension of an input; equal names mean that the dimensions are equal at run time."""
        self._network._name_dimension(self, index, name)

    def get_dimension_name(self, index: int) -> str | None:
        """The name of a dimension, or None."""
        return self._dimension_labels.get(index) or self._dimension_names.get(index)

    @property
    def is_shape_tensor(self) -> bool:
        """Whether its values decide shapes, so that they are needed on the host before the run."""
        return self._network._is_shape_tensor(self)

    @property
    def is_execution_tensor(self) -> bool:
        """Whether its values are computed during the run; a tensor can be both."""
        return self._network._is_execution_tensor(self)

    # what the engine may do with it

    @property
    def location(self) -> TensorLocation:
        """Where the bytes are expected."""
        return self._location

    @location.setter
    def location(self, value: TensorLocation) -> None:
        self._location = TensorLocation(value)
        self._network._touch_model()

    @property
    def allowed_formats(self) -> int:
        """A mask of ``1 << TensorFormat``; everything until it is set."""
        return ALL_FORMATS if self._allowed_formats is None else self._allowed_formats

    @allowed_formats.setter
    def allowed_formats(self, value: int) -> None:
        if not 0 < int(value) <= ALL_FORMATS:
            raise UsageError(
                "allowed_formats is not a set of formats",
                where=f"tensor '{self._name}'",
                expected=f"a mask between 1 and {ALL_FORMATS}",
                got=value,
                fix="use 1 << int(TensorFormat.LINEAR)",
            )
        self._allowed_formats = int(value)
        self._network._touch_model()

    @property
    def broadcast_across_batch(self) -> bool:
        """Always False: there is no implicit batch."""
        return False

    # ranges, for networks whose types the builder may choose

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        """The range (min, max) of the values, or None."""
        return self._range

    @dynamic_range.setter
    def dynamic_range(self, value: tuple[float, float]) -> None:
        low, high = value
        self.set_dynamic_range(low, high)

    def set_dynamic_range(self, min: float, max: float) -> bool:  # noqa: A002 - the contract's names
        """Give the range of the values, from which an INT8 scale follows; True as the contract has it."""
        if not float(min) < float(max):
            raise UsageError(
                "the range is empty", where=f"tensor '{self._name}'", expected="min < max", got=f"({min}, {max})"
            )
        self._range = (float(min), float(max))
        self._network._touch_model()
        return True

    def reset_dynamic_range(self) -> None:
        """Forget the range."""
        self._range = None
        self._network._touch_model()

    def __repr__(self) -> str:
        return escape_line(f"<ITensor '{self._name}'>")
