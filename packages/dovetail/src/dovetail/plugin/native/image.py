"""A C++ plugin library in memory: opened, checked, called, and closed when nothing uses it."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER
from pathlib import Path
from typing import Any, Final

from dovetail.errors import ForeignLibraryError, PluginError
from dovetail.files import open_regular
from dovetail.loggers import ILogger, Logger, Severity
from dovetail.plugin.native.elf.headers import require_valid
from dovetail.plugin.native.layout import (
    ABI_VERSION,
    NativeDims,
    NativeDims32,
    NativeDynamicDesc,
    NativeField,
    NativeTable,
    NativeTensorDesc,
)
from dovetail.plugin.native.linker import close_object, find_object

__all__ = ["NativeImage", "find_loaded_image", "open_image"]

_ENTRY: Final = "dovetail_plugin_abi"
_FOREIGN: Final = ("getCreators", "getPluginCreators", "initLibNvInferPlugins", "getPluginRegistry", "libnvinfer")
"""What a library that was built against other headers exports or needs."""
_REBUILD: Final = 'rebuild it against Dovetail\'s headers: g++ -std=c++17 -fPIC -shared -I"$(dovetail include-dir)" ...'


_open: Final[weakref.WeakValueDictionary[int, NativeImage]] = weakref.WeakValueDictionary()
_lock: Final = threading.RLock()


_CUDA: Final = (b".nvFatBinSegment", b"libcudart.so")
"""Contents of libraries with kernels that nvcc compiled, or linked with the CUDA runtime."""
_CUDA_LIBRARIES: Final = (
    "libcuda.so",
    "libcudart.so",
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnpp",
)
"""Beginnings of the names of needed libraries whose functions expect addresses of a CUDA device."""


class NativeImage:
    """One opened library; creators, plugins and resources hold it, and the last one to go closes it."""

    def __init__(self, path: str, library: ctypes.CDLL, table: NativeTable, *, uses_cuda: bool) -> None:
        self.path: Final = path
        self.uses_cuda: Final = uses_cuda
        """Whether its plugins expect addresses of a device of CUDA."""
        self.library: Final = library
        self.table: Final = table
        self.logger_of: Callable[[], ILogger | None] = lambda: None
        """Gives the logger of the registry that loaded the library last, while there is one."""
        self.plugins: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
        """The plugins that are alive, by their address, so that one which the library returns again is not two."""
        self._close = weakref.finalize(self, _close, library._handle)
        self._close.atexit = False

    def call(self, function: str, method: str, *arguments: Any, owner: str = "") -> None:
        """Call a function of the table.

        Args:
            function: The function.
            method: The method that it calls, for the message of an exception.
            *arguments: Its arguments.
            owner: The plugin or creator that has the method.

        Raises:
            PluginError: The method threw an exception.
        """
        if getattr(self.table, function)(*arguments):
            raise self.describe_exception(method, owner=owner)

    def describe_exception(self, method: str, *, owner: str = "") -> PluginError:
        """Return the error for the last exception that the library caught on this thread."""
        text = (self.table.last_error() or b"").decode(errors="replace")
        inner = self.table.last_method()
        thrower = method if inner is None else inner.decode(errors="replace")
        name = f"{owner}: {thrower}" if owner else thrower
        return PluginError(f"{name} threw an exception: {text}", where=self.path)

    def find_entry(self, symbol: str) -> int | None:
        """Return the address of a function that the library exports; None where it does not."""
        function = getattr(self.library, symbol, None)
        return None if function is None else ctypes.cast(function, ctypes.c_void_p).value

    def log_error(self, error: PluginError) -> None:
        """Log an error that no caller can receive, to the logger of the registry that loaded the library last."""
        (self.logger_of() or Logger()).log(Severity.ERROR, str(error))


def open_image(path: Path, *, shown: str | None = None) -> NativeImage:
    """Open a library and check that it speaks this binary interface; one that is open already is used again.

    Args:
        path: The file.
        shown: What to call it in messages; without it, by its path.

    Raises:
        PluginError: The file cannot be loaded, or was built against other headers or another version of these.
    """
    where = shown or str(path)
    if not path.is_file():
        raise PluginError("there is no such plugin library", where=where, fix="check the path")
    _require_entry(path, where)
    needed = require_valid(path, where)
    with _lock:
        earlier = find_object(str(path))
        try:
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        except OSError as error:
            raise PluginError(f"the library cannot be loaded: {error}", where=where) from None
        finally:
            if earlier is not None:
                close_object(earlier)
        known = _open.get(library._handle)
        if known is None:
            image = _admit(library, where, uses_cuda=_uses_cuda(path, needed))
            if earlier is None:
                _claim_registrations(image)
            return image
    _close(library._handle)  # it was counted once more
    return known


def find_loaded_image(file: str) -> NativeImage | None:
    """Return a plugin library that the process has loaded, without loading it; None where it was closed.

    Args:
        file: The name under which the dynamic linker has it; empty for the program itself.

    Raises:
        PluginError: The library was built against another version of the headers.
    """
    with _lock:
        handle = find_object(file)
        if handle is None:
            return None
        known = _open.get(handle)
        if known is None:
            path = Path(file or sys.executable)
            library = ctypes.CDLL(None, handle=handle)
            needed = require_valid(path, str(path)) if file and path.is_file() else []
            return _admit(library, str(path), uses_cuda=path.is_file() and _uses_cuda(path, needed))
    close_object(handle)  # it was counted once more
    return known


def _claim_registrations(image: NativeImage) -> None:
    """Reserve the static registrations of a library for the registry that loads it."""
    from dovetail.plugin.native.registrations import RegistrationScope, read_registrations, set_scope

    for entry in read_registrations(image):
        set_scope(image, entry.address, entry.namespace, RegistrationScope.LOADER, safe=entry.is_safe)


def _require_entry(path: Path, where: str) -> None:
    """Refuse a file that does not name the entry point, before any of its code runs.

    A library of another binary interface registers itself while it is loaded, with whatever has that interface.
    """
    if not path.stat().st_size:
        raise PluginError("the file is empty", where=where)
    with open_regular(path, follow=True) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        if contents.find(_ENTRY.encode()) >= 0:
            return
        found = [name for name in _FOREIGN if contents.find(name.encode()) >= 0]
    if found:
        raise _explain_foreign(where, f"only {', '.join(found)}")
    raise PluginError(
        "the file is no plugin library",
        where=where,
        expected=f"the function {_ENTRY}, which Dovetail's NvInfer.h exports",
        fix=_REBUILD,
    )


def _contains_any(path: Path, words: Sequence[bytes]) -> bool:
    with open_regular(path, follow=True) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        return any(contents.find(word) >= 0 for word in words)


def _uses_cuda(path: Path, needed: Sequence[str]) -> bool:
    """True if a library contains CUDA code or needs a library that works with addresses of a CUDA device."""
    return _contains_any(path, _CUDA) or any(name.startswith(_CUDA_LIBRARIES) for name in needed)


def _explain_foreign(path: str, found: str) -> ForeignLibraryError:
    return ForeignLibraryError(
        "the library was built against other headers, with another binary interface",
        where=path,
        expected=f"the function {_ENTRY}, which Dovetail's NvInfer.h exports",
        got=found,
        fix=_REBUILD,
    )


def _admit(library: ctypes.CDLL, path: str, *, uses_cuda: bool) -> NativeImage:
    try:
        table = _read_table(library, path)
    except BaseException:
        _close(library._handle)
        raise
    image = NativeImage(path, library, table, uses_cuda=uses_cuda)
    _open[library._handle] = image
    return image


def _read_table(library: ctypes.CDLL, path: str) -> NativeTable:
    entry = getattr(library, _ENTRY, None)
    if entry is None:
        raise _explain_foreign(path, "a name that is not exported")
    entry.restype = POINTER(NativeTable)
    given = entry()
    if not given:
        raise _explain_foreign(path, "no table of functions from it")
    table: NativeTable = given.contents
    sizes = (table.size, table.size_of_tensor_desc, table.size_of_dynamic_desc, table.size_of_field)
    expected = tuple(map(ctypes.sizeof, (NativeTable, NativeTensorDesc, NativeDynamicDesc, NativeField)))
    known_dims = (ctypes.sizeof(NativeDims), ctypes.sizeof(NativeDims32))
    if table.version != ABI_VERSION or sizes != expected or table.size_of_dims not in known_dims:
        raise ForeignLibraryError(
            "the library was built against another version of Dovetail's headers",
            where=path,
            expected=f"binary interface {ABI_VERSION}, sizes {expected}",
            got=f"binary interface {table.version}, sizes {sizes}",
            fix=_REBUILD,
        )
    return table


def _close(handle: int) -> None:
    if sys.platform != "win32":
        import _ctypes

        _ctypes.dlclose(handle)
