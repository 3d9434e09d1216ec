"""An ONNX Runtime that is too old, or not understood, is refused with a status when the library is registered."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import onnxruntime_ep_dovetail
from onnxruntime_ep_dovetail.abi import count_live

GET_API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GET_VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p)
CREATE_STATUS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class FakeRuntime:
    """What the library gets from an ONNX Runtime of some version; the first function of its table makes a status."""

    def __init__(self, version: str) -> None:
        self.statuses: list[tuple[int, str]] = []
        self._text = ctypes.create_string_buffer(version.encode())
        self._table = (ctypes.c_void_p * 4)()
        self._create = CREATE_STATUS(self._make_status)
        self._table[0] = ctypes.cast(self._create, ctypes.c_void_p)
        self._get_api = GET_API(lambda asked: ctypes.addressof(self._table) if asked == 1 else None)
        self._get_version = GET_VERSION(lambda: ctypes.addressof(self._text))
        pair = [ctypes.cast(one, ctypes.c_void_p) for one in (self._get_api, self._get_version)]
        self.base = (ctypes.c_void_p * 2)(*pair)

    def _make_status(self, code: int, text: bytes) -> int:
        self.statuses.append((code, text.decode()))
        return len(self.statuses)

    def register(self) -> tuple[int | None, int]:
        """Call what registering calls: the status, and how many factories there are."""
        library: Any = ctypes.CDLL(onnxruntime_ep_dovetail.get_library_path())
        library.CreateEpFactories.restype = ctypes.c_void_p
        factories, count = (ctypes.c_void_p * 4)(), ctypes.c_size_t(0)
        status = library.CreateEpFactories(
            b"dovetail", ctypes.byref(self.base), None, factories, ctypes.c_size_t(4), ctypes.byref(count)
        )
        return status, count.value


@pytest.mark.parametrize("version", ["1.23.2", "1.22.0", "1.9.1", "0.5.0", "2.0.0", "2.30.0"])
def test_a_version_that_does_not_fit_is_refused(version: str) -> None:
    runtime, before = FakeRuntime(version), count_live()
    assert runtime.register() == (1, 0)
    ((code, text),) = runtime.statuses
    assert code == 1
    assert f"needs ONNX Runtime 1.24 or newer of 1.x, and this is {version}: update onnxruntime" in text
    assert count_live() == before


@pytest.mark.parametrize("version", ["", "1", "1.x", "one.two"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    runtime = FakeRuntime(version)
    status, count = runtime.register()
    assert (status, count) == (1, 0)
    assert "ONNX Runtime" in runtime.statuses[0][1]


def test_an_interface_that_is_not_there_is_refused() -> None:
    runtime = FakeRuntime("1.31.0")  # which then has no table for its own version
    status, count = runtime.register()
    assert (status, count) == (1, 0)
    assert "ONNX Runtime 1.31.0" in runtime.statuses[0][1]
