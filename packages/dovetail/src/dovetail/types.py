"""The value types of the plugin contract: element types, layouts, dimensions, descriptors and weights.

Everything that a plugin, the builder and the runtime hand to each other is one of these. They are plain mutable
records, as the contract has them, and may be used from outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from dovetail._nibbles import split_nibbles
from dovetail.contract_enum import ContractEnum
from dovetail.element_types import ELEMENT_TYPES
from dovetail.errors import UsageError

__all__ = [
    "DataType",
    "Dims",
    "Dims2",
    "Dims3",
    "Dims4",
    "DimsHW",
    "DynamicPluginTensorDesc",
    "EngineCapability",
    "Permutation",
    "PluginTensorDesc",
    "TensorFormat",
    "TensorIOMode",
    "TensorLocation",
    "TensorRTPhase",
    "Weights",
    "data_type_from_numpy",
    "nptype",
    "volume",
]

DTypeLike = npt.DTypeLike


class DataType(ContractEnum):
    """The twelve element types.

    >>> DataType.BF16.numpy.name, DataType.INT4.itemsize
    ('bfloat16', 0.5)
    """

    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10
    E8M0 = 11

    def __hash__(self) -> int:
        """Not that of its number: packages look types of several libraries up by number, and each numbers its own.

        >>> DataType.HALF == 1, DataType.HALF in {1: "the float of another library"}
        (True, False)
        """
        return hash((DataType, int(self)))

    @property
    def bits(self) -> int:
        """Bits of one element; INT4 and FP4 are half a byte."""
        return _ELEMENTS[self].bits

    @property
    def itemsize(self) -> float:
        """Bytes of one element: a whole number, or 0.5 for the four-bit types."""
        return 0.5 if self.bits == 4 else self.bits // 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type; bf16, fp8, int4 and fp4 come from ml_dtypes, where a four-bit element takes a byte."""
        return _NUMPY_TYPES[self]

    @property
    def onnx_number(self) -> int:
        """The number of the type in ``TensorProto.DataType``."""
        return _ELEMENTS[self].onnx_number

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type a computation can use."""
        return _ELEMENTS[self].kind == "float"


_ELEMENTS: Final = {DataType[each.contract]: each for each in ELEMENT_TYPES if each.contract}
_NUMPY_TYPES: Final = {member: each.dtype for member, each in _ELEMENTS.items()}
_FROM_NUMPY: Final = {dtype: member for member, dtype in _NUMPY_TYPES.items()}


def data_type_from_numpy(dtype: DTypeLike) -> DataType:
    """The contract's type for a NumPy type.

    >>> data_type_from_numpy("float16").name
    'HALF'
    """
    try:
        return _FROM_NUMPY[np.dtype(dtype)]
    except KeyError:
        raise UsageError(
            f"type {np.dtype(dtype).name} is not one of the contract's types",
            expected=", ".join(sorted(d.name for d in _FROM_NUMPY)),
            fix="cast the array first",
        ) from None


def nptype(dtype: DataType) -> type[np.generic]:
    """The NumPy scalar type of a DataType that NumPy itself knows; TypeError for the others, as the contract says."""
    if _NUMPY_TYPES[dtype].isbuiltin != 1:  # 2 for types that others register
        raise TypeError(f"Could not resolve TensorRT datatype to an equivalent numpy datatype: {dtype.name}")
    return _NUMPY_TYPES[dtype].type


def volume(dims: Iterable[int]) -> int:
    """The product of dimensions; 1 for none.

    >>> volume((2, 3, 4)), volume(())
    (24, 1)
    """
    return math.prod(dims)


class TensorFormat(ContractEnum):
    """The thirteen memory layouts; what each looks like is in ``dovetail.formats``."""

    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5
    DHWC8 = 6
    CDHW32 = 7
    HWC = 8
    DLA_LINEAR = 9
    DLA_HWC4 = 10
    HWC16 = 11
    DHWC = 12


class TensorRTPhase(ContractEnum):
    """Whether a creator makes a plugin for a network or for a loaded plan."""

    BUILD = 0
    RUNTIME = 1


class EngineCapability(ContractEnum):
    """What kind of engine a network is built for."""

    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2


class TensorIOMode(ContractEnum):
    """What a named tensor of an engine is."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(ContractEnum):
    """Where the bytes of a tensor are expected."""

    DEVICE = 0
    HOST = 1


class Dims:
    """Up to eight dimensions; -1 marks one that is known only at run time.

    Equal to any tuple or list with the same numbers. ``Dims.invalid()`` has no length at all.

    >>> d = Dims([1, -1, 4]); d == (1, -1, 4), d[-1], d[:2]
    (True, 4, (1, -1))
    """

    MAX_DIMS: ClassVar[int] = 8
    __slots__ = ("_d", "_valid")

    def __init__(self, shape: Iterable[SupportsIndex] = ()) -> None:
        self._d = [int(n) for n in shape]
        self._valid = True
        if len(self._d) > Dims.MAX_DIMS:
            raise UsageError(f"too many dimensions: {len(self._d)}", expected=f"at most {Dims.MAX_DIMS}")

    @classmethod
    def invalid(cls) -> Dims:
        """Dimensions that hold nothing: what a proposal has at positions that must not be read."""
        dims = Dims()
        dims._valid = False
        return dims

    @property
    def is_valid(self) -> bool:
        """False only for ``Dims.invalid()``."""
        return self._valid

    def _checked(self) -> list[int]:
        if not self._valid:
            raise ValueError("dims are invalid (nbDims = -1): this position is not part of the proposal")
        return self._d

    def __len__(self) -> int:
        return len(self._checked())

    def __iter__(self) -> Iterator[int]:
        return iter(self._checked())

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self._checked()[index])
        return self._checked()[index]

    def __setitem__(self, index: SupportsIndex | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._checked()[index] = [int(n) for n in value]
        else:
            self._checked()[index] = int(value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dims):
            return self._valid == other._valid and self._d == other._d
        if not isinstance(other, Sequence | np.ndarray):
            return NotImplemented
        return self._valid and list(self._d) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable, as the contract has it

    def __str__(self) -> str:
        return str(tuple(self._d)) if self._valid else "(invalid)"

    def __repr__(self) -> str:
        return f"Dims{self}" if self._valid else "Dims.invalid()"

    def __copy__(self) -> Dims:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Dims:
        twin = Dims(self._d)
        twin._valid = self._valid
        return twin


class Dims2(Dims):
    """Two dimensions."""

    __slots__ = ()

    def __init__(self, *shape: Any) -> None:
        super().__init__(_flatten(shape, 2))


class DimsHW(Dims2):
    """Height and width."""

    __slots__ = ()

    @property
    def h(self) -> int:
        """Height."""
        return self[0]

    @h.setter
    def h(self, value: int) -> None:
        self[0] = value

    @property
    def w(self) -> int:
        """Width."""
        return self[1]

    @w.setter
    def w(self, value: int) -> None:
        self[1] = value


class Dims3(Dims):
    """Three dimensions."""

    __slots__ = ()

    def __init__(self, *shape: Any) -> None:
        super().__init__(_flatten(shape, 3))


class Dims4(Dims):
    """Four dimensions."""

    __slots__ = ()

    def __init__(self, *shape: Any) -> None:
        super().__init__(_flatten(shape, 4))


class Permutation(Dims):
    """An order of axes, for transposes."""

    __slots__ = ()


def _flatten(shape: tuple[Any, ...], count: int) -> Sequence[int]:
    numbers: Sequence[int] = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else (shape or (0,) * count)
    if len(numbers) != count:
        raise UsageError("wrong number of dimensions", expected=count, got=len(numbers))
    return numbers


def _as_dims(shape: Dims | Iterable[SupportsIndex]) -> Dims:
    return shape if isinstance(shape, Dims) else Dims(shape)


class PluginTensorDesc:
    """What a plugin is told of one tensor: dims, type, format, and the scale when it is INT8 (else -1.0)."""

    __slots__ = ("_dims", "format", "is_on_device", "room", "scale", "type")

    def __init__(
        self,
        dims: Dims | Iterable[SupportsIndex] = (),
        type: DataType | None = DataType.FLOAT,  # noqa: A002 - the contract's name
        format: TensorFormat | None = TensorFormat.LINEAR,  # noqa: A002 - the contract's name
        scale: float = -1.0,
    ) -> None:
        self._dims = _as_dims(dims)
        self.type: Any = type
        self.format: Any = format
        self.scale = scale
        self.room: int | None = None
        """How many elements the memory holds, where the engine knows and the dims do not say (not of the contract)."""
        self.is_on_device = False
        """Whether the address that comes with it is one of a device (not of the contract)."""

    @property
    def dims(self) -> Dims:
        """The shape; -1 marks a dimension that is not known yet."""
        return self._dims

    @dims.setter
    def dims(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._dims = _as_dims(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PluginTensorDesc):
            return NotImplemented
        return self._key() == other._key() and self._dims == other._dims

    __hash__ = None  # type: ignore[assignment]  # mutable, as the contract has it

    def _key(self) -> tuple[Any, ...]:
        return (self.type, self.format, self.scale)

    def copy(self) -> PluginTensorDesc:
        """An independent twin."""
        twin = PluginTensorDesc(self._dims.__deepcopy__({}), self.type, self.format, self.scale)
        twin.room, twin.is_on_device = self.room, self.is_on_device
        return twin

    def __copy__(self) -> PluginTensorDesc:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> PluginTensorDesc:
        return self.copy()

    def __repr__(self) -> str:
        type_name = self.type.name if isinstance(self.type, DataType) else "Unknown"
        format_name = self.format.name if isinstance(self.format, TensorFormat) else "None"
        scale = f", scale={self.scale:g}" if self.scale != -1.0 else ""
        return f"PluginTensorDesc({self._dims}, {type_name}, {format_name}{scale})"


class DynamicPluginTensorDesc:
    """A descriptor with the bounds of the profile that is being built: min, opt and max."""

    __slots__ = ("_max", "_min", "_opt", "desc")

    def __init__(
        self,
        desc: PluginTensorDesc | None = None,
        min: Dims | Iterable[SupportsIndex] = (),  # noqa: A002 - the contract's name
        opt: Dims | Iterable[SupportsIndex] = (),
        max: Dims | Iterable[SupportsIndex] = (),  # noqa: A002 - the contract's name
    ) -> None:
        self.desc = desc if desc is not None else PluginTensorDesc()
        self._min, self._opt, self._max = _as_dims(min), _as_dims(opt), _as_dims(max)

    @property
    def min(self) -> Dims:
        """The smallest shape of the profile."""
        return self._min

    @min.setter
    def min(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._min = _as_dims(value)

    @property
    def opt(self) -> Dims:
        """The shape the profile is tuned for."""
        return self._opt

    @opt.setter
    def opt(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._opt = _as_dims(value)

    @property
    def max(self) -> Dims:
        """The largest shape of the profile; -1 where an open engine has no bound."""
        return self._max

    @max.setter
    def max(self, value: Dims | Iterable[SupportsIndex]) -> None:
        self._max = _as_dims(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DynamicPluginTensorDesc):
            return NotImplemented
        return (self.desc, self._min, self._opt, self._max) == (other.desc, other._min, other._opt, other._max)

    __hash__ = None  # type: ignore[assignment]  # mutable, as the contract has it

    def copy(self) -> DynamicPluginTensorDesc:
        """An independent twin."""
        bounds = (dims.__deepcopy__({}) for dims in (self._min, self._opt, self._max))
        return DynamicPluginTensorDesc(self.desc.copy(), *bounds)

    def __copy__(self) -> DynamicPluginTensorDesc:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> DynamicPluginTensorDesc:
        return self.copy()

    def __repr__(self) -> str:
        return f"DynamicPluginTensorDesc({self.desc}, min={self._min}, opt={self._opt}, max={self._max})"


class Weights:
    """An array of weights, held without a copy.

    Made from an array, or from a type alone (empty), or from a type, an address and a count. Memory at an address
    holds two INT4 or FP4 elements a byte, the first in the low half; an array has a byte for each.

    >>> w = Weights(np.zeros((2, 3), np.float32)); len(w), w.nbytes
    (6, 24)
    """

    __slots__ = ("_array", "_dtype", "_packed", "_size")

    def __init__(self, source: DataType | Any = DataType.FLOAT, ptr: int = 0, count: int = 0) -> None:
        self._array: npt.NDArray[Any]
        self._dtype: DataType
        self._packed = False
        if isinstance(source, Weights):
            self._array, self._dtype = source._array, source.dtype
            self._packed, self._size = source._packed, source.size
        elif isinstance(source, DataType):
            self._dtype, self._size = source, _check_count(ptr, count)
            self._packed = source.bits < 8 and self._size > 0
            self._array = _view_memory(ptr, source, self._size)
        else:
            self._array = np.ascontiguousarray(source)
            self._dtype, self._size = data_type_from_numpy(self._array.dtype), int(self._array.size)

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self._dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, two INT4 or FP4 elements a byte."""
        return (self._size * self._dtype.bits + 7) // 8

    @property
    def address(self) -> int:
        """Address of the first element; it identifies the weights."""
        return self._array.ctypes.data

    def numpy(self) -> npt.NDArray[Any]:
        """Return the array itself; INT4 and FP4 elements at an address are unpacked from the memory at each call."""
        if not self._packed:
            return self._array
        return split_nibbles(self._array, self._size).view(self._dtype.numpy)

    def __len__(self) -> int:
        return self.size


def _check_count(address: int, count: int) -> int:
    if count < 0 or address < 0:
        raise UsageError(
            "the memory of weights is wrong",
            where="Weights",
            expected="an address and a count that are not negative",
            got=f"address {address}, count {count}",
        )
    return int(count) if address else 0


def _view_memory(address: int, dtype: DataType, count: int) -> npt.NDArray[Any]:
    """View the elements at an address; those of four bits as the bytes that hold them."""
    element = np.dtype(np.uint8) if dtype.bits < 8 else dtype.numpy
    if not count:
        return np.empty(0, dtype.numpy)
    import ctypes  # only this rare form needs it

    buffer = (ctypes.c_char * ((count * dtype.bits + 7) // 8)).from_address(address)
    return np.frombuffer(memoryview(buffer), element)
