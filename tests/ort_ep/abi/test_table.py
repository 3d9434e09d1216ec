"""The table of structs, and the objects that are made from it."""

from __future__ import annotations

import ctypes

import pytest

from onnxruntime_ep_dovetail.abi import (
    FLOOR,
    TABLE_VERSION,
    Functions,
    NativeObject,
    OrtError,
    OrtRuntime,
    disarm_all,
    load_table,
    negotiate,
)
from onnxruntime_ep_dovetail.abi.objects import make_status
from onnxruntime_ep_dovetail.abi.table import ctype_of

_GET_API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
_GET_VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p)
_CREATE_STATUS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class FakeRuntime:
    """An ONNX Runtime whose only working function makes statuses."""

    def __init__(self, version: str) -> None:
        self.statuses: list[tuple[int, str]] = []
        self.asked: list[int] = []
        self._version = ctypes.create_string_buffer(version.encode())
        self._table = (ctypes.c_void_p * len(load_table()["OrtApi"]))()
        self._callbacks = [_CREATE_STATUS(self._create_status), _GET_API(self._get_api), _GET_VERSION(self._text)]
        self._table[0] = ctypes.cast(self._callbacks[0], ctypes.c_void_p)
        slot = next(slot for slot in load_table()["OrtApi"] if slot.name == "GetEpApi")
        self._table[slot.index] = ctypes.cast(_GET_VERSION(self._text), ctypes.c_void_p)
        self._callbacks.append(_GET_VERSION(self._text))
        self._table[slot.index] = ctypes.cast(self._callbacks[-1], ctypes.c_void_p)
        self._base = (ctypes.c_void_p * 2)(*(ctypes.cast(one, ctypes.c_void_p) for one in self._callbacks[1:3]))
        self.base = ctypes.addressof(self._base)

    def _create_status(self, code: int, text: bytes) -> int:
        self.statuses.append((code, text.decode()))
        return 0x1000 + len(self.statuses)

    def _get_api(self, version: int) -> int:
        self.asked.append(version)
        return ctypes.addressof(self._table)

    def _text(self) -> int:
        return ctypes.addressof(self._version)

    def negotiate(self) -> OrtRuntime:
        return negotiate(self.base)


def test_structs_begin_with_their_version() -> None:
    for struct in ("OrtEp", "OrtEpFactory", "OrtNodeComputeInfo", "OrtAllocator", "OrtCustomOp"):
        assert not load_table()[struct][0].is_function
        assert all(slot.is_function for slot in load_table()[struct][1:]), struct


@pytest.mark.parametrize(("struct", "count"), [("OrtApi", 425), ("OrtEpApi", 74), ("OrtEp", 26), ("OrtEpFactory", 21)])
def test_structs_have_all_their_members(struct: str, count: int) -> None:
    slots = load_table()[struct]
    assert [slot.index for slot in slots] == list(range(count))
    assert all(FLOOR <= slot.since <= TABLE_VERSION for slot in slots)


@pytest.mark.parametrize("version", ["1.23.2", "1.22.0"])
def test_an_onnxruntime_below_the_floor_is_refused_by_name(version: str) -> None:
    with pytest.raises(OrtError, match=rf"1\.{FLOOR} or newer of 1\.x, and this is {version}"):
        FakeRuntime(version).negotiate()


@pytest.mark.parametrize(("version", "asked"), [("1.24.4", 24), ("1.28.0", 28), ("1.31.1", 30), ("1.40.0", 30)])
def test_the_interface_asked_for_is_in_the_table_and_in_the_runtime(version: str, asked: int) -> None:
    fake = FakeRuntime(version)
    assert fake.negotiate().struct_version == asked
    assert fake.asked == [asked]


def test_functions_newer_than_the_runtime_are_not_touched() -> None:
    api = FakeRuntime("1.24.4").negotiate().api
    assert not api.has("KernelContext_GetSyncStream")
    with pytest.raises(OrtError, match=r"needs ONNX Runtime 1\.28, this one is 1\.24"):
        api.KernelContext_GetSyncStream()
    with pytest.raises(AttributeError, match="OrtApi has no function Nonsense"):
        api.Nonsense()


class Info(NativeObject):
    struct = "OrtNodeComputeInfo"

    def create_state(self, _context: int, _state: int) -> None:
        raise ValueError("too hot")


def _slot(native: NativeObject, index: int) -> int:
    return ctypes.c_uint64.from_address(native.address + 8 * index).value


def test_an_exception_is_a_status_and_never_code_11() -> None:
    fake = FakeRuntime("1.31.1")
    info = Info(fake.negotiate())
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(_slot(info, 1))
    assert call(info.address, None, None) == 0x1001
    assert fake.statuses == [(1, "Dovetail: ValueError: too hot")]
    for error in (MemoryError(), RecursionError("deep"), KeyboardInterrupt()):
        make_status(info.runtime, error)
    assert 11 not in {code for code, _ in fake.statuses}
    info.release()


class Ending(Info):
    def release_state(self, _state: int) -> None: ...


def test_slots_without_a_method_stay_empty_and_disarmed_ones_end_nothing_in_python() -> None:
    info = Ending(FakeRuntime("1.31.1").negotiate())
    create, compute, release = (_slot(info, index) for index in (1, 2, 3))
    assert create
    assert not compute
    assert release
    info.disarm(0xBEEF)
    assert [_slot(info, index) for index in (1, 2, 3)] == [create, 0, 0xBEEF]
    assert NativeObject.at(info.address) is info
    info.release()
    with pytest.raises(KeyError):
        NativeObject.at(info.address)


class Kernel(NativeObject):
    struct = "OrtKernelImpl"

    def compute(self, _context: int) -> None: ...


def test_two_numbers_share_a_word_in_a_kernel() -> None:
    kernel = Kernel(FakeRuntime("1.31.1").negotiate())
    assert ctypes.c_uint32.from_address(kernel.address).value == TABLE_VERSION
    assert ctypes.c_uint32.from_address(kernel.address + 4).value == 0
    assert _slot(kernel, 1)
    kernel.release()


CALLBACK_STRUCTS = [
    name for name, slots in load_table().items() if not slots[0].is_function and any(slot.is_function for slot in slots)
]


@pytest.mark.parametrize("struct", CALLBACK_STRUCTS)
def test_every_slot_passes_its_arguments_and_its_result(struct: str) -> None:
    native = type("Native", (NativeObject,), {"struct": struct})(FakeRuntime("1.31.1").negotiate())
    slots = load_table()[struct]
    first_word = sum(not slot.is_function for slot in slots)
    first_word -= first_word // 2  # two numbers share a word
    for index, slot in enumerate(slot for slot in slots if slot.is_function):
        types = [ctype_of(name) for name in slot.arguments or ()]
        passed = [native.address, *(kind(0xF000_0000_0000_0001 * (1 + n)).value for n, kind in enumerate(types[1:]))]
        result = None if ctype_of(slot.result) is None else ctype_of(slot.result)(0xFEDC_BA98_7654_3201).value
        received: list[tuple[object, ...]] = []

        def method(*arguments: object, result: object = result, into: list[tuple[object, ...]] = received) -> object:
            into.append(arguments)
            return result

        native.set_slot(slot.name, method)
        call = ctypes.CFUNCTYPE(ctype_of(slot.result), *types)(_slot(native, first_word + index))
        assert call(*passed) == result, slot.name
        assert received == [tuple(passed)], slot.name
    native.release()


def test_functions_is_a_table_at_an_address() -> None:
    fake = FakeRuntime("1.31.1")
    api = fake.negotiate().api
    assert isinstance(api, Functions)
    assert api.CreateStatus(2, b"text") == 0x1001
    assert fake.statuses == [(2, "text")]
    assert callable(disarm_all)
