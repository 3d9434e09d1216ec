"""Compute without a compiler: what compute.c does, in Python and through ctypes, a few microseconds a run slower.

ONNX Runtime's functions write types, shapes and addresses straight into memory that stays, so a run like the last one
is recognised by comparing bytes. They are called with Python's lock held, because giving it up and taking it again
costs more than they do and none of them blocks; and their arguments are made once, because making them costs more
still. Scratch memory comes from a list and not from thread-local storage, which on a thread of ONNX Runtime's is new at
every call.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxruntime_ep_dovetail.library.contract import API_FUNCTIONS, Frame, Shape

__all__ = [
    "KERNEL_STATE_OFFSET",
    "attach",
    "compute_address",
    "create_state",
    "kernel_compute_address",
    "release_state",
]

KERNEL_STATE_OFFSET = 128
"""The address of the state lies this many bytes after the start of an OrtKernelImpl, which is 40 bytes long today."""

Status = int | None
Call = Callable[..., Status]

_FAIL = 1
_WORD_BYTES = 8
_ABSENT_RANK = 2**64 - 1
# Bits of one element, by ONNXTensorElementDataType; 0 where elements have no fixed size.
_ELEMENT_BITS = (0, 32, 8, 8, 16, 16, 32, 64, 0, 8, 16, 64, 32, 64, 64, 128, 16, 8, 8, 8, 8, 4, 4, 4, 2, 2, 8)

# An argument of a foreign function, made once and used for every call.
_pointer_argument = ctypes.c_void_p.from_param
_size_argument = ctypes.c_size_t.from_param
_compare_memory = ctypes.PyDLL(None).memcmp


class _Api:
    """The functions of one OrtApi table. They have no argument types: every argument comes ready made."""

    def __init__(self, address: int, slots: Mapping[str, int]) -> None:
        if not address:
            raise ValueError("the address of OrtApi is 0")
        found = {name: _function_at(address, slots[name], name) for name in API_FUNCTIONS}
        self.create_status = found["CreateStatus"]
        self.get_input = found["KernelContext_GetInput"]
        self.get_output = found["KernelContext_GetOutput"]
        self.get_data = found["GetTensorMutableData"]
        self.get_type_and_shape = found["GetTensorElementTypeAndShapeDataReference"]
        self.get_stream = found["KernelContext_GetGPUComputeStream"]

    def fail(self, text: str) -> Status:
        """Make a status with a message."""
        return self.create_status(_FAIL, text.encode("utf-8", "backslashreplace"))


def _function_at(table: int, slot: int, name: str) -> Call:
    address = ctypes.c_void_p.from_address(table + slot * _WORD_BYTES).value if slot >= 0 else None
    if not address:
        raise ValueError(f"slot {slot} of OrtApi, {name}, is empty")
    return ctypes.PYFUNCTYPE(ctypes.c_void_p)(address)


class _Words:
    """Words of memory that foreign functions write: each has an address as an argument, and all are read as bytes."""

    def __init__(self, count: int) -> None:
        self.values = (ctypes.c_uint64 * count)()
        start = ctypes.addressof(self.values)
        self.places = [_pointer_argument(start + _WORD_BYTES * i) for i in range(count)]
        self.bytes = (ctypes.c_char * (_WORD_BYTES * count)).from_buffer(self.values)


class _Scratch:
    """The memory of one run at a time, and the frame that runs in it.

    `facts` has two words for each input, type and rank; `pointers` one for each input, then one for each output, then
    one for the stream of a state that has one.
    """

    def __init__(self, state: _State) -> None:
        count = state.num_inputs
        self._state = state
        self._facts = _Words(2 * count)
        self._pointers = _Words(count + state.num_outputs + state.has_stream)
        self._stream_place = self._pointers.places[-1] if state.has_stream else None
        self._value: Any = ctypes.c_void_p()  # false while it is NULL, which its stub does not know
        self._value_place = _pointer_argument(ctypes.addressof(self._value))
        self._dims = [ctypes.c_void_p() for _ in range(count)]
        self._inputs = [self._prepare_input(i) for i in range(count)]
        self._frame: Frame | None = None
        self._run: Callable[[tuple[int, ...]], object]
        # What the frame was sized for: the facts, and for each input where its dimensions are kept to compare.
        self._sized_facts: bytes | None = None
        self._sized_dims: list[tuple[ctypes.c_void_p, Any, Any]] = []
        self._known: list[tuple[Any, ...]] = []
        self._unknown: list[int] = []
        self._last_pointers: bytes | None = None
        self._addresses: tuple[int, ...] = ()

    def _prepare_input(self, index: int) -> tuple[Any, ...]:
        dims = self._dims[index]
        type_place, rank_place = self._facts.places[2 * index : 2 * index + 2]
        dims_place = _pointer_argument(ctypes.addressof(dims))
        return ctypes.c_size_t(index), type_place, dims_place, rank_place, self._pointers.places[index]

    def compute(self, context: Any) -> Status:
        """Run once; the status is ONNX Runtime's own, or one of an input that cannot be."""
        status = self._gather(context)
        if status:
            return status
        if self._facts.bytes.raw != self._sized_facts or self._differ():
            status = self._check_types()
            if status:
                return status
            self._resize()
        status = self._place_outputs(context)
        if status:
            return status
        pointers = self._pointers.bytes.raw
        if pointers != self._last_pointers:
            self._addresses = tuple(self._pointers.values)
            self._last_pointers = pointers
        self._run(self._addresses)
        return self._deliver(context) if self._unknown else None

    def _gather(self, context: Any) -> Status:
        """Take type, shape and address of every input."""
        api, value, value_place = self._state.api, self._value, self._value_place
        get_input, get_type_and_shape, get_data = api.get_input, api.get_type_and_shape, api.get_data
        for index, type_place, dims_place, rank_place, pointer_place in self._inputs:
            status = get_input(context, index, value_place)
            if status:
                return status
            if value:
                status = get_type_and_shape(value, type_place, dims_place, rank_place) or get_data(value, pointer_place)
                if status:
                    return status
            else:
                self._note_absent(index.value)
        return api.get_stream(context, self._stream_place) if self._stream_place is not None else None

    def _note_absent(self, index: int) -> None:
        self._facts.values[2 * index], self._facts.values[2 * index + 1] = 0, _ABSENT_RANK
        self._pointers.values[index] = 0

    def _differ(self) -> bool:
        """Whether a dimension is not the one that the frame was sized for, the ranks being the same."""
        for dims, kept, num_bytes in self._sized_dims:  # noqa: SIM110 - a generator costs as much as a call
            if _compare_memory(dims, kept, num_bytes):
                return True
        return False

    def _place_outputs(self, context: Any) -> Status:
        """Have the outputs of known shape made, and take their addresses; one that nobody wants has no value."""
        api, value, value_place = self._state.api, self._value, self._value_place
        for index, dims, rank, pointer_place in self._known:
            status = api.get_output(context, index, dims, rank, value_place)
            if not status and value:
                status = api.get_data(value, pointer_place)
            if status:
                return status
        return None

    def _check_types(self) -> Status:
        for index, expected in enumerate(self._state.input_types):
            is_absent = self._facts.values[2 * index + 1] == _ABSENT_RANK
            got = self._facts.values[2 * index]
            if expected and not is_absent and got != expected:
                return self._state.api.fail(f"input {index} has element type {got}, and {expected} was compiled")
        return None

    def _resize(self) -> None:
        self._sized_facts = None
        if self._frame is None:
            self._frame = self._state.new_frame()
        ranks = self._facts.values[1::2]
        shapes = [_read_shape(dims.value, rank) for dims, rank in zip(self._dims, ranks, strict=True)]
        stream = (self._pointers.values[-1],) if self._state.has_stream else ()
        sized = self._frame.resize(tuple(shapes), *stream)
        outputs = [None if shape is None else _check_shape(shape) for shape in sized]
        if len(outputs) != self._state.num_outputs:
            raise ValueError(f"resize gave {len(outputs)} shapes for {self._state.num_outputs} outputs")
        self._run = self._frame.run
        self._known = [self._prepare_output(i, shape) for i, shape in enumerate(outputs) if shape is not None]
        self._unknown = [i for i, shape in enumerate(outputs) if shape is None]
        for i in range(len(outputs)):
            self._pointers.values[self._state.num_inputs + i] = 0
        self._sized_dims = [_keep(dims, shape) for dims, shape in zip(self._dims, shapes, strict=True) if shape]
        self._sized_facts = self._facts.bytes.raw

    def _prepare_output(self, index: int, shape: Shape) -> tuple[Any, ...]:
        place = self._pointers.places[self._state.num_inputs + index]
        return _size_argument(index), (ctypes.c_int64 * len(shape))(*shape), _size_argument(len(shape)), place

    def _deliver(self, context: Any) -> Status:
        """Make the outputs whose shape the run has told, and copy the results there."""
        frame, api = self._frame, self._state.api
        target = ctypes.c_void_p()
        for index in self._unknown:
            address, told = frame.result(index)  # type: ignore[union-attr] # set by _resize
            shape = _check_shape(told)
            dims = (ctypes.c_int64 * len(shape))(*shape)
            arguments = _size_argument(index), dims, _size_argument(len(shape)), self._value_place
            status = api.get_output(context, *arguments)
            if not status and self._value:
                status = api.get_data(self._value, _pointer_argument(ctypes.addressof(target)))
            if status:
                return status
            if self._value and target.value:
                self._write_result(index, address, shape, target.value)
        return None

    def _write_result(self, index: int, address: int | None, shape: Shape, target: int) -> None:
        if address is None:
            self._frame.fill(index, target)  # type: ignore[union-attr] # see Frame
            return
        num_bytes = _count_bytes(self._state.output_types[index], shape)
        if num_bytes and not address:
            raise ValueError(f"the result of output {index} is at address 0")
        ctypes.memmove(target, address, num_bytes)


def _read_shape(address: int | None, rank: int) -> Shape | None:
    if rank == _ABSENT_RANK:
        return None
    return tuple((ctypes.c_int64 * rank).from_address(address)) if address and rank else ()


def _check_shape(shape: Sequence[int]) -> Shape:
    bad = next((dim for dim in shape if dim < 0), None)
    if bad is not None:
        raise ValueError(f"a shape has the dimension {bad}")
    return tuple(shape)


def _keep(dims: ctypes.c_void_p, shape: Shape) -> tuple[ctypes.c_void_p, Any, Any]:
    return dims, (ctypes.c_int64 * len(shape))(*shape), _size_argument(_WORD_BYTES * len(shape))


def _count_bytes(element_type: int, shape: Shape) -> int:
    bits = _ELEMENT_BITS[element_type] if 0 <= element_type < len(_ELEMENT_BITS) else 0
    if not bits:
        raise TypeError(f"a result of element type {element_type} cannot be copied")
    return (math.prod(shape) * bits + 7) // 8


class _State:
    """One partition of one session."""

    def __init__(
        self,
        api: _Api,
        new_frame: Callable[[], Frame],
        num_inputs: int,
        num_outputs: int,
        input_types: Sequence[int],
        output_types: Sequence[int],
        has_stream: bool,
    ) -> None:
        _check_count("inputs", num_inputs, input_types)
        _check_count("outputs", num_outputs, output_types)
        self.api = api
        self.new_frame = new_frame
        self.num_inputs = num_inputs
        self.num_outputs = num_outputs
        self.input_types = tuple(input_types)
        self.output_types = tuple(output_types)
        self.has_stream = has_stream
        self._free: list[_Scratch] = []

    def close(self) -> None:
        """Let the scratch memory go, which knows the state: nobody should have to look for the cycle."""
        self._free.clear()

    def compute(self, context: int) -> Status:
        """Run once in free scratch memory; what raised is not used again."""
        try:
            scratch = self._free.pop()
        except IndexError:
            scratch = _Scratch(self)
        try:
            status = scratch.compute(_pointer_argument(context))
        except BaseException as error:  # noqa: BLE001 - an exception that left a callback would look like success
            return self.api.fail(_describe(error))
        self._free.append(scratch)
        return status


def _check_count(what: str, count: int, types: Sequence[int]) -> None:
    if len(types) != count:
        raise ValueError(f"there are {count} {what} and {len(types)} element types")


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever it is, the first error is the one to report
        text = "(its text cannot be had)"
    return f"{name}: {text}" if text else name


_attached: dict[int, _Api] = {}
"""By address; the newest is last."""
_states: dict[int, _State] = {}
_keys = itertools.count(1)


def attach(api_address: int, slots: Mapping[str, int], /) -> None:
    """Take the functions of one OrtApi table; states made from now on use them."""
    api = _Api(api_address, slots)
    _attached.pop(api_address, None)
    _attached[api_address] = api


def create_state(
    new_frame: Callable[[], Frame],
    num_inputs: int,
    num_outputs: int,
    input_types: Sequence[int],
    output_types: Sequence[int],
    api_address: int | None = None,
    has_stream: bool = False,
) -> int:
    """Make the state of one partition and return what stands for its address."""
    wanted = next(reversed(_attached), None) if api_address is None else api_address
    api = _attached.get(wanted) if wanted is not None else None
    if api is None:
        raise RuntimeError("no such OrtApi has been attached")
    state = _State(api, new_frame, num_inputs, num_outputs, input_types, output_types, has_stream)
    key = next(_keys)
    _states[key] = state
    return key


def release_state(address: int, /) -> None:
    """Free a state and its frames. No run of it may be under way."""
    state = _states.pop(address, None)
    if state is None:
        raise ValueError(f"there is no state at address {address:#x}")
    state.close()


def _fail_without_state(address: int | None) -> Status:
    return _attached[next(reversed(_attached))].fail(f"there is no state at address {address or 0:#x}")


def _compute(_info: int, address: int, context: int) -> Status:
    try:
        state = _states[address]
    except KeyError:
        return _fail_without_state(address)
    return state.compute(context)


def _kernel_compute(kernel: int, context: int) -> Status:
    address = ctypes.c_uint64.from_address(kernel + KERNEL_STATE_OFFSET).value
    state = _states.get(address)
    return state.compute(context) if state is not None else _fail_without_state(address)


_compute_callback = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 4)(_compute)
_kernel_compute_callback = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 3)(_kernel_compute)


def compute_address() -> int:
    """Return the address of the function for OrtNodeComputeInfo::Compute."""
    return ctypes.cast(_compute_callback, ctypes.c_void_p).value or 0


def kernel_compute_address() -> int:
    """Return the address of the function for OrtKernelImpl::Compute."""
    return ctypes.cast(_kernel_compute_callback, ctypes.c_void_p).value or 0
