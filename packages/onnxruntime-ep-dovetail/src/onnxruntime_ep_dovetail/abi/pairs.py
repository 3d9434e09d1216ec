"""Keys and values as ONNX Runtime passes them."""

from __future__ import annotations

import ctypes

from onnxruntime_ep_dovetail.abi import Functions, read_text

__all__ = ["read_pairs"]


def read_pairs(api: Functions, pairs: int) -> dict[str, str]:
    """What an ``OrtKeyValuePairs`` holds."""
    keys, values, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    api.GetKeyValuePairs(pairs, *(ctypes.addressof(place) for place in (keys, values, count)))
    if not count.value:
        return {}
    texts = [
        [read_text(one) for one in (ctypes.c_void_p * count.value).from_address(place.value or 0)]
        for place in (keys, values)
    ]
    return dict(zip(*texts, strict=True))
