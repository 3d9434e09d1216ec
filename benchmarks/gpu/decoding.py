"""GPT-2 making one token after 400 others: a step over caches that it adds to in their own memory."""

from __future__ import annotations

from typing import Any

__all__ = ["ALIAS_PREFIXES", "make_decoder", "make_step_inputs", "name_ports", "time_plain"]

WIDTH, DEPTH, HEADS, WORDS, LENGTH, POSITION = 768, 12, 12, 50257, 512, 400
SIZE = WIDTH // HEADS
ALIAS_PREFIXES = ("present_", "past_")
"""What outputs and inputs are called that lie in one memory; the rest of their names is equal."""


def name_ports() -> tuple[list[str], list[str]]:
    """The names of inputs and of outputs."""
    caches = [f"{layer}_{kind}" for layer in range(DEPTH) for kind in ("keys", "values")]
    present, past = ALIAS_PREFIXES
    return ["token", "position", *(past + name for name in caches)], ["logits", *(present + name for name in caches)]


def make_step_inputs(batch: int) -> tuple[Any, ...]:
    """A token, where it is, and the caches of all layers."""
    import torch

    caches = [torch.randn(batch, HEADS, LENGTH, SIZE).half() for _ in range(2 * DEPTH)]
    return (torch.randint(0, WORDS, (batch,)), torch.full((batch,), POSITION), *caches)


def make_decoder() -> Any:
    """The network: a token, its position and caches to logits and caches."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
            self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
            self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any, position: Any, mask: Any, caches: tuple[Any, Any]) -> tuple[Any, tuple[Any, Any]]:
            parts = self.qkv(self.first(x)).split(WIDTH, -1)
            query, *new = (part.view(-1, HEADS, 1, SIZE) for part in parts)
            keys, values = (_add_to(cache, each, position) for cache, each in zip(caches, new, strict=True))
            mixed = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            x = x + self.out(mixed.reshape(-1, WIDTH))
            hidden = torch.nn.functional.gelu(self.up(self.second(x)), approximate="tanh")
            return x + self.down(hidden), (keys, values)

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(1024, WIDTH)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(DEPTH))
            self.last = torch.nn.LayerNorm(WIDTH)

        def forward(self, token: Any, position: Any, *caches: Any) -> tuple[Any, ...]:
            x, made = self.words(token) + self.places(position), []
            mask = (torch.arange(LENGTH, device=position.device) <= position[:, None])[:, None, None, :]
            for number, block in enumerate(self.blocks):
                x, both = block(x, position, mask, caches[2 * number : 2 * number + 2])
                made += both
            return (torch.nn.functional.linear(self.last(x), self.words.weight), *made)

    return Decoder()


def _add_to(cache: Any, new: Any, position: Any) -> Any:
    """A cache with what is new at a position: ONNX's operator in an export, else in place, for all samples at one."""
    import torch

    if torch.onnx.is_in_onnx_export():
        inputs, attributes = (cache, new, position), {"axis": 2}
        return torch.onnx.ops.symbolic(
            "TensorScatter", inputs, attrs=attributes, dtype=cache.dtype, shape=cache.shape, version=24
        )
    return cache.index_copy_(2, position[:1], new)


def time_plain(network: Any, inputs: tuple[Any, ...]) -> dict[str, float]:
    """The same step by plain PyTorch under a CUDA graph, in milliseconds."""
    import torch

    from benchmarks.gpu.peers import time_graph

    model, given = network.half().cuda(), [each.cuda() for each in inputs]
    with torch.inference_mode():
        return {"ms": time_graph(lambda: model(*given))}
