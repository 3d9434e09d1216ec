"""Types by the flags of a weakly typed network: what they ask of its ordinary layers.

Plugin layers are not among them: the tuner proposes the types to each plugin and times them. Nothing is an error that
a strongly typed build refuses, because a flag of the weak rule only allows a type.
"""

from __future__ import annotations

import onnx_ir as ir

from dovetail.build.assign.layers import is_constant_node
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.precision.options import PrecisionOptions
from dovetail.network.api.definition import Network
from dovetail.network.plugins import entry_of
from dovetail.types import DataType

__all__ = ["options_from_flags"]


def options_from_flags(
    config: BuilderConfig, network: Network, graph: ir.Graph, *, has_ranges: bool
) -> PrecisionOptions:
    """What the flags of a build ask of a weakly typed network; nothing where it has plugin layers alone."""
    if all(is_constant_node(node) or entry_of(node) is not None for node in graph):
        return PrecisionOptions(compare=False)
    half = "fp16" if config.get_flag(BuilderFlag.FP16) else "bf16" if config.get_flag(BuilderFlag.BF16) else None
    quantized = "int8" if config.get_flag(BuilderFlag.INT8) and has_ranges else None
    wide = _names_in_fp32(network) if half or quantized else ()
    return PrecisionOptions(float_type=half, quantized=quantized, keep=wide, compare=False)


def _names_in_fp32(network: Network) -> tuple[str, ...]:
    """The layers that are to compute in FP32 by ``layer.precision``, as patterns that fit nothing else."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    names = [layer.name for layer in layers if layer.precision is DataType.FLOAT]
    return tuple("".join(f"[{char}]" if char in "*?[" else char for char in name) for name in names)
