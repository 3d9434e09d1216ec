"""Exported models without their weights: the graph as PyTorch's exporter wrote it, for tests of what becomes of it.

``strip`` is how ``benchmarks/gpu`` makes them, ``fill`` puts numbers where the weights were.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FOLDER", "fill", "strip"]

FOLDER = Path(__file__).parent / "exported"


def strip(model: onnx.ModelProto) -> bytes:
    """The graph of a model whose weights lie in another file, without what is only for people."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    graph = bare.graph
    for part in (bare, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.doc_string = ""
        del part.metadata_props[:]
    del graph.value_info[:]
    return lzma.compress(bare.SerializeToString())


def fill(data: bytes) -> onnx.ModelProto:
    """A model with random weights in the places of those that were left out."""
    model, rng = onnx.ModelProto.FromString(lzma.decompress(data)), np.random.default_rng(0)
    for weight in model.graph.initializer:
        if weight.data_location == TensorProto.EXTERNAL:
            dtype = helper.tensor_dtype_to_np_dtype(weight.data_type)
            drawn = rng.standard_normal(tuple(weight.dims), np.float32) * np.float32(0.02)
            weight.CopyFrom(numpy_helper.from_array(drawn.astype(dtype), weight.name))
    return model
