"""A layer with caches that a step adds to, as models that make one token after the other have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

__all__ = ["ALIASES", "LENGTH", "make_cached_layer", "make_feed"]

HEADS, LENGTH, SIZE = 2, 8, 16
ALIASES = {"keys": "past_keys", "values": "past_values"}


def make_cached_layer(dtype: str = "float", *, mode: str = "linear", added: int = 1) -> onnx.ModelProto:
    """New keys and values go behind the old ones, and queries look at all of them up to there."""
    cache, new = f"{dtype}[B,{HEADS},{LENGTH},{SIZE}]", f"{dtype}[B,{HEADS},{added},{SIZE}]"
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 24]>
        step ({new} x, int64[B] at, bool[B,1,{added},{LENGTH}] mask, {cache} past_keys, {cache} past_values)
          => ({new} y, {cache} keys, {cache} values) {{
            k = Tanh(x)
            v = Neg(x)
            keys = TensorScatter<axis=2, mode="{mode}">(past_keys, k, at)
            values = TensorScatter<axis=2, mode="{mode}">(past_values, v, at)
            y = Attention(x, keys, values, mask)
        }}""")


def make_feed(batch: int, start: int, dtype: Any = np.float32, *, added: int = 1, seed: int = 1) -> dict[str, Any]:
    """Numbers for one step."""
    rng = np.random.default_rng(seed)
    caches = {name: rng.standard_normal((batch, HEADS, LENGTH, SIZE)).astype(dtype) for name in ALIASES.values()}
    starts = np.minimum(start + np.arange(batch), LENGTH - added)
    mask = np.arange(LENGTH) <= (starts[:, None] + np.arange(added))[:, None, :, None]
    x = rng.standard_normal((batch, HEADS, added, SIZE)).astype(dtype)
    return {"x": x, "at": starts.astype(np.int64), "mask": mask, **caches}
