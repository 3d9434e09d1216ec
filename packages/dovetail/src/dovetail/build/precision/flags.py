"""Types by the flags of a weakly typed network: what they ask of its ordinary layers.

Plugin layers are not among them: the tuner proposes the types to each plugin and times them. Nothing is an error that
a strongly typed build refuses, because a flag of the weak rule only allows a type. What was asked of a single layer
(``layer.precision``, ``set_output_type``) is another matter: ``OBEY_PRECISION_CONSTRAINTS`` makes it an error that a
layer has another type, ``PREFER_PRECISION_CONSTRAINTS`` a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.layers import is_constant_node
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.precision.options import PrecisionOptions
from dovetail.errors import BuildError
from dovetail.loggers import ILogger, Severity
from dovetail.network.api.definition import Network
from dovetail.network.api.layers.base import ILayer
from dovetail.network.plugins import entry_of
from dovetail.plan.manifest import PrecisionRecord
from dovetail.types import DataType

__all__ = ["check_constraints", "options_from_flags"]

_TYPES: Final = {
    DataType.FLOAT: "fp32",
    DataType.HALF: "fp16",
    DataType.BF16: "bf16",
    DataType.INT8: "int8",
    DataType.FP8: "fp8",
}


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
    """The layers that are to compute in FP32, or to give it out, as patterns that fit nothing else."""
    names = [layer.name for layer, wanted in _list_wishes(network) if wanted is DataType.FLOAT]
    return tuple("".join(f"[{char}]" if char in "*?[" else char for char in name) for name in dict.fromkeys(names))


def _list_wishes(network: Network) -> Iterator[tuple[ILayer, DataType]]:
    """The types that were asked of layers, and of their outputs."""
    for layer in (network.get_layer(index) for index in range(network.num_layers)):
        if layer.precision is not None:
            yield layer, layer.precision
        for index in range(layer.num_outputs):
            if layer.output_type_is_set(index):
                yield layer, layer.get_output_type(index)


def check_constraints(
    config: BuilderConfig, network: Network, records: Iterable[PrecisionRecord], logger: ILogger
) -> None:
    """Compare what was asked of single layers with what they have, as the flags say.

    Raises:
        BuildError: A layer has another type, and types are to be obeyed.
    """
    is_obeyed = config.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    if not is_obeyed and not config.get_flag(BuilderFlag.PREFER_PRECISION_CONSTRAINTS):
        return
    found = {record.layer: record for record in records}
    for layer, wanted in _list_wishes(network):
        record = found.get(layer.name)
        if record is None or wanted not in _TYPES or record.type == _TYPES[wanted]:
            continue
        what = f"layer '{layer.name}' is to have {_TYPES[wanted]} and has {record.type}"
        why = record.reason or f"no flag allows {_TYPES[wanted]}"
        if is_obeyed:
            raise BuildError(what, where="precision constraints", got=why, fix="ask for another type, or prefer types")
        logger.log(Severity.WARNING, f"{what}: {why}")
