"""Writes the tiny models beside it: two layers of width 64 of BERT, GPT-2, ViT and Llama, with random weights.

They are what users have: models of transformers, exported by `torch.onnx.export` as it is. Run it in an environment
with `torch==2.13.0`, `transformers==5.22.2`, `onnx==1.23.2` and `onnxscript==0.7.2`:

    python export_models.py

Each family is there with fixed shapes and with open batch and sequence, with attention as one call of PyTorch
(`sdpa`, what models do by themselves) and written out (`eager`), and for the older opset that writes GELU out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers
from torch.export import Dim

FOLDER = Path(__file__).parent
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
VOCABULARY = 50
POSITIONS = 32
BATCH, SEQUENCE = 2, 8


def tokens() -> dict[str, torch.Tensor]:
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))
    return {"input_ids": ids, "attention_mask": torch.ones(BATCH, SEQUENCE, dtype=torch.int64)}


def make_bert() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=POSITIONS, **SIZES)
    return transformers.BertModel(config), tokens()


def make_gpt2() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=64, n_layer=2, n_head=4, n_inner=96, use_cache=False
    )
    return transformers.GPT2Model(config), tokens()


def make_vit() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.ViTConfig(image_size=32, patch_size=8, **SIZES)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(BATCH, 3, 32, 32)}


def make_llama() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, num_key_value_heads=2, max_position_embeddings=POSITIONS, use_cache=False, **SIZES
    )
    return transformers.LlamaModel(config), tokens()


FAMILIES: dict[str, Callable[[], tuple[Any, dict[str, torch.Tensor]]]] = {
    "bert": make_bert,
    "gpt2": make_gpt2,
    "vit": make_vit,
    "llama": make_llama,
}
MODELS: dict[str, tuple[str, str, bool, int | None]] = {
    **{f"{family}_static": (family, "sdpa", False, None) for family in FAMILIES},
    **{f"{family}_dynamic": (family, "sdpa", True, None) for family in FAMILIES},
    **{f"{family}_eager": (family, "eager", True, None) for family in FAMILIES},
    "bert_opset18": ("bert", "sdpa", True, 18),
}
"""Name of the file -> family, attention, whether batch and sequence are open, and opset."""


def fill(model: torch.nn.Module) -> None:
    """Weights that all differ, so that none are merged; on a grid, so that they pack well."""
    torch.manual_seed(7)
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.15)
        is_scale = name.endswith("weight") and ("norm" in name.lower() or ".ln_" in name)
        parameter.data = torch.round((noise + (1.0 if is_scale else 0.0)) * 256) / 256


def export(name: str) -> None:
    family, attention, is_open, opset = MODELS[name]
    torch.manual_seed(7)
    model, inputs = FAMILIES[family]()
    model.config._attn_implementation = attention
    fill(model.eval())
    batch, sequence = Dim("batch"), Dim("sequence", max=POSITIONS)
    dims = {key: {0: batch} if key == "pixel_values" else {0: batch, 1: sequence} for key in inputs}
    program = torch.onnx.export(
        model,
        (),
        kwargs=inputs,
        dynamo=True,
        dynamic_shapes=dims if is_open else None,
        opset_version=opset,
        verbose=False,
        report=False,
    )
    proto = program.model_proto
    strip(proto)
    onnx.save(proto, FOLDER / f"{name}.onnx")
    print(f"{name}: {len(proto.graph.node)} nodes, {proto.ByteSize() // 1024} KB")


def strip(proto: onnx.ModelProto) -> None:
    """Without the stack traces that the exporter leaves on every node."""
    parts = [proto.graph, *proto.graph.node, *proto.graph.initializer, *proto.graph.input, *proto.graph.output]
    for part in [*parts, *proto.graph.value_info]:
        del part.metadata_props[:]
        part.doc_string = ""
    del proto.graph.value_info[:]


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        export(name)
