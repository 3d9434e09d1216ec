"""Keys and values as ONNX Runtime passes them."""

from __future__ import annotations

import ctypes

from onnxruntime_ep_dovetail.abi import Functions, read_texts

__all__ = ["read_pairs"]


def read_pairs(api: Functions, pairs: int) -> dict[str, str]:
    """What an ``OrtKeyValuePairs`` holds."""
    keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    api.GetKeyValuePairs(pairs, *(ctypes.addressof(place) for place in (keys, values, count)))
    return dict(zip(*(read_texts(place.value, count.value) for place in (keys, values)), strict=True))
