"""Whether this machine has a CUDA device, and which packages for it can be imported; nothing is imported to know."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from typing import Final

__all__ = ["DEVICE_OPTIONS", "can_import", "has_device", "uses_device"]

DEVICE_OPTIONS: Final = {"cuda": {"waits_for_default_stream": "1"}}
"""What engines of scripts run with on a device: scripts and their plugins use the default stream beside others."""

_LIBRARIES: Final = ("libcuda.so.1", "nvcuda.dll")


@cache
def has_device() -> bool:
    """Whether the CUDA driver is installed and finds a device."""
    for name in _LIBRARIES:
        try:
            driver = ctypes.CDLL(name)
        except OSError:
            continue
        count = ctypes.c_int(0)
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    return False


def uses_device() -> bool:
    """Whether engines run on a device: then pointers of scripts are that device's, else they are the host's."""
    return has_device() and can_import("dovetail_cuda")


def can_import(name: str) -> bool:
    """Whether a module is installed; the packages above it are imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
