"""A C++ plugin library out of a plan: put into sealed memory of this process, opened there, and gone with its users.

Nothing is written to a disk, and no other process can change the bytes between their check and their use.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import weakref
from pathlib import Path
from typing import Final

from dovetail.errors import PlanCorruptError, PlanDeviceMismatchError, PluginError, ResourceError
from dovetail.plugin.carried.payload import read_elf_target
from dovetail.plugin.native.image import NativeImage, open_image

__all__ = ["open_carried_image"]

_NOT_CARRIED: Final = (
    "build the plan without --carry-plugins, and load the library before it: registry.load_library(path)"
)

_images: Final[weakref.WeakValueDictionary[bytes, NativeImage]] = weakref.WeakValueDictionary()
_lock: Final = threading.Lock()


def open_carried_image(name: str, data: bytes) -> NativeImage:
    """Open a library from its bytes; engines that carry the same bytes share one.

    The caller has decided that this code may run, and has checked its digest.

    Raises:
        PlanDeviceMismatchError: It was compiled for another machine.
        PluginError: It cannot be loaded, or was built against other headers.
    """
    where = f"<plugin library {name}>"
    _require_this_machine(data, where)
    digest = hashlib.sha256(data).digest()
    with _lock:
        known = _images.get(digest)
        if known is None:
            known = _images[digest] = _open(name, data, where)
        return known


def _require_this_machine(data: bytes, where: str) -> None:
    own = Path("/proc/self/exe")
    if not hasattr(os, "memfd_create") or not own.exists():
        raise PluginError("a compiled library in a plan can be loaded on Linux only", where=where, fix=_NOT_CARRIED)
    with own.open("rb") as file:
        expected = read_elf_target(file.read(64))
    got = read_elf_target(data)
    if got != expected:
        raise PlanDeviceMismatchError(
            "the plan carries a library that was compiled for another machine",
            where=where,
            expected=expected,
            got=got,
            fix="build the plan with a library that was compiled for this machine",
        )


def _open(name: str, data: bytes, where: str) -> NativeImage:
    handle = _take_free_path(_seal(name, data, where))
    try:
        image = open_image(_path_of(handle), shown=where)
    except BaseException:
        os.close(handle)
        raise
    # Debuggers read the file by this path while the library is loaded.
    weakref.finalize(image, os.close, handle).atexit = False
    return image


def _seal(name: str, data: bytes, where: str) -> int:
    """Memory of this process that holds the bytes and can never hold others, as a file without a path."""
    import fcntl  # not every system has it

    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    try:
        handle = os.memfd_create(f"dovetail-{name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise PluginError(
            f"the system gives no memory for code: {error.strerror}", where=where, fix=_NOT_CARRIED
        ) from None
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, seals)
        _require_same(handle, data, where)
    except OSError as error:
        os.close(handle)
        raise ResourceError(f"the library cannot be put into memory: {error.strerror}", where=where) from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def _require_same(handle: int, data: bytes, where: str) -> None:
    """What is sealed is what was checked."""
    with open(handle, "rb", closefd=False) as file:
        file.seek(0)
        if hashlib.file_digest(file, "sha256").digest() != hashlib.sha256(data).digest():
            raise PlanCorruptError("the library changed while it was put into memory", where=where)


def _take_free_path(handle: int) -> int:
    """The same file under a number whose path no library is loaded by.

    A library that never unloads, as some C++ ones do, keeps its path after its number was given to another file, and
    the linker would take it for the file that has the number now.
    """
    taken = []
    try:
        while _is_loaded(handle):
            taken.append(handle)
            handle = os.dup(handle)
    finally:
        for number in taken:
            os.close(number)
    return handle


def _is_loaded(handle: int) -> bool:
    try:
        library = ctypes.CDLL(str(_path_of(handle)), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    import _ctypes

    _ctypes.dlclose(library._handle)
    return True


def _path_of(handle: int) -> Path:
    return Path(f"/proc/self/fd/{handle}")
