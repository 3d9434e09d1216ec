"""The attention of known models, and what each way of it takes; ``python -m tests.cuda.gpu.attention_rows``."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import onnx

import dovetail as dt
from dovetail.provider.loader import has_provider, register_provider
from dovetail_cuda.provider import CudaFactory

HEAD = '<ir_version: 10, opset_import: ["" : 23]> g '
ROWS = {
    # name: (batch, queries, keys, heads, heads of keys, size, causal)
    "BERT b1": (1, 128, 128, 12, 12, 64, 0),
    "BERT b32": (32, 128, 128, 12, 12, 64, 0),
    "ViT b1": (1, 197, 197, 12, 12, 64, 0),
    "ViT b32": (32, 197, 197, 12, 12, 64, 0),
    "GPT-2 b1": (1, 512, 512, 12, 12, 64, 1),
    "GPT-2 b8": (8, 512, 512, 12, 12, 64, 1),
    "GPT-2 decode b1": (1, 1, 512, 12, 12, 64, 0),
    "GPT-2 decode b8": (8, 1, 512, 12, 12, 64, 0),
    "Llama decode b1": (1, 1, 4096, 32, 8, 128, 0),
}


def make_model(row: tuple[int, ...], dtype: str = "float16") -> onnx.ModelProto:
    """Heads as columns of a merged projection; with one query, keys and values from a cache."""
    batch, queries, keys, heads, shared, size, causal = row
    result = f"({dtype}[{batch},{queries},{heads * size}] y)"
    call = f"Attention<q_num_heads={heads}, kv_num_heads={shared}, is_causal={causal}>"
    if queries == keys:
        text = f"({dtype}[{batch},{queries},{3 * heads * size}] x) => {result} "
        text += f"{{ q, k, v = Split<axis=-1, num_outputs=3>(x) y = {call}(q, k, v) }}"
    else:
        parts = f"{dtype}[{batch},1,{shared * size}]"
        cache = f"{dtype}[{batch},{shared},{keys - 1},{size}]"
        text = f"({dtype}[{batch},1,{heads * size}] q, {parts} k, {parts} v, {cache} a, {cache} b) => {result} "
        text += f"{{ y = {call}(q, k, v, , a, b) }}"
    return onnx.parser.parse_model(HEAD + text)


def make_inputs(model: onnx.ModelProto) -> list[Any]:
    """Random numbers of each input's shape and type."""
    rng, made = np.random.default_rng(3), []
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made.append(rng.standard_normal([dim.dim_value for dim in kind.shape.dim]).astype(dtype))
    return made


def time_torch_us(row: tuple[int, ...]) -> float:
    """PyTorch's attention over the same strides, as a captured graph of twenty."""
    import torch

    batch, queries, keys, heads, shared, size, causal = row
    half = {"device": "cuda", "dtype": torch.float16}
    if queries == keys:
        x = torch.randn(batch, queries, 3, heads, size, **half)
        q, k, v = x.permute(2, 0, 3, 1, 4)
    else:
        q = torch.randn(batch, heads, 1, size, **half)
        k, v = (torch.randn(batch, shared, keys, size, **half) for _ in range(2))
    grouped = {"enable_gqa": True} if heads != shared else {}

    def run() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), **grouped)

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            run()
    times = []
    for _ in range(30):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        times.append(events[0].elapsed_time(events[1]) * 1e3 / 20)
    return float(np.median(times))


def main(count: int) -> None:
    """Print a line for each row: the chosen way, the best of the others, the steps, and PyTorch."""
    if not has_provider("cuda"):
        register_provider(CudaFactory())
    lines = []
    for name, row in ROWS.items():
        model, start = make_model(row), time.perf_counter()
        engine = dt.compile(model, providers=["cuda", "cpu"])
        built_s, inputs = time.perf_counter() - start, make_inputs(model)
        right = dt.compile(model, providers=["cpu"])(*inputs).astype(np.float64)
        error = float(np.linalg.norm(engine(*inputs).astype(np.float64) - right) / np.linalg.norm(right))
        (table,) = [each for each in engine.manifest.tuning if each.name.startswith("attention")]
        timed = sorted((each.time_us, each.name) for each in table.candidates if each.time_us is not None)
        for each in table.candidates:
            if each.status != "timed":
                print(name, each.name, each.status, each.reason)
        steps = min(us for us, way in timed if way.startswith("steps"))
        best = ", ".join(f"{way.removeprefix('attention ')} {us:.2f}" for us, way in timed[:count])
        torch_us = time_torch_us(row)
        lines.append(f"{name:16} steps {steps:7.2f} torch {torch_us:7.2f} error {error:.1e} {built_s:4.0f} s | {best}")
        print(lines[-1], flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 4)
