"""What PyTorch takes beside ours: the calibrator, and ``torch.compile`` as a second witness."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.gpu.networks import make_inputs, make_network
from benchmarks.gpu.rows import CALIBRATOR_MS, Row

__all__ = ["calibrate", "time_graph", "time_synchronised", "time_witness"]

TOKENS, WIDTH, HEADS, DEPTH = 128, 768, 12, 12


def time_synchronised(run: Callable[[], Any], wait: Callable[[], Any], seconds: float = 1.0) -> float:
    """The median of runs that are each waited for, in milliseconds."""
    for _ in range(10):
        run()
    wait()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 30:
        start = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def calibrate() -> dict[str, float]:
    """The blocks of BERT by PyTorch's fused operators under a CUDA graph, in milliseconds by batch."""
    import torch

    torch.manual_seed(0)
    with torch.inference_mode():
        return {str(batch): time_graph(_make_stack(batch)) for batch in CALIBRATOR_MS}


def _make_stack(batch: int) -> Callable[[], Any]:
    import torch
    from torch.nn import functional

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float16) * 0.02

    sizes = {"qkv": 3 * WIDTH, "out": WIDTH, "up": 4 * WIDTH, "down": WIDTH}
    inner = {"down": 4 * WIDTH}
    layers = [
        {name: (random(size), random(size, inner.get(name, WIDTH)).t()) for name, size in sizes.items()}
        for _ in range(DEPTH)
    ]
    norms = [[(random(WIDTH), random(WIDTH)) for _ in range(2)] for _ in range(DEPTH)]
    first = random(batch * TOKENS, WIDTH)

    def attend(merged: Any) -> Any:
        heads = merged.view(batch, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return mixed.transpose(1, 2).reshape(batch * TOKENS, WIDTH)

    def multiply(layer: Any, x: Any) -> Any:
        return torch.addmm(layer[0], x, layer[1])

    def run() -> Any:
        x = first
        for layer, (inner_norm, outer_norm) in zip(layers, norms, strict=True):
            mixed = torch.addmm(
                layer["out"][0], attend(torch.addmm(layer["qkv"][0], x, layer["qkv"][1])), layer["out"][1]
            )
            x = functional.layer_norm(x + mixed, (WIDTH,), *inner_norm)
            hidden = torch._addmm_activation(layer["up"][0], x, layer["up"][1], use_gelu=True)
            x = functional.layer_norm(x + multiply(layer["down"], hidden), (WIDTH,), *outer_norm)
        return x

    return run


def time_graph(run: Callable[[], Any]) -> float:
    """The median of replays of what a function puts on a stream, in milliseconds."""
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return time_synchronised(graph.replay, torch.cuda.synchronize)


def time_witness(row: Row) -> dict[str, float]:
    """The same network by ``torch.compile``, and how long that takes to compile."""
    import torch

    network, inputs = make_network(row).half().cuda(), [x.cuda() for x in make_inputs(row)]
    if inputs[0].dim() == 4:
        network = network.to(memory_format=torch.channels_last)
        inputs = [x.to(memory_format=torch.channels_last) for x in inputs]
    with torch.inference_mode():
        start = time.perf_counter()
        compiled = torch.compile(network, mode="reduce-overhead")
        compiled(*inputs)
        torch.cuda.synchronize()
        built_s = time.perf_counter() - start
        return {"ms": time_synchronised(lambda: compiled(*inputs), torch.cuda.synchronize), "compile_s": built_s}
