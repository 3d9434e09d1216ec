"""Which weights of a network can be replaced in a built engine, and why the others cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from dovetail.build.config import BuilderConfig, BuilderFlag

if TYPE_CHECKING:
    from dovetail.network.api.definition import Network

__all__ = ["find_weight_layers", "is_refit", "split_weights"]

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_ROLES = {1: "kernel", 2: "bias"}
"""The input of a convolution -> the role of the weight that it is."""

_REFIT_FLAGS = (BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.REFIT_INDIVIDUAL, BuilderFlag.STRIP_PLAN)


def is_refit(config: BuilderConfig) -> bool:
    """Whether the plan is to be made so that weights can be replaced, however many there are."""
    return any(config.get_flag(flag) for flag in _REFIT_FLAGS)


def split_weights(
    model: ir.Model, network: Network | None, config: BuilderConfig
) -> tuple[frozenset[str], dict[str, str]]:
    """Names of weights to keep replaceable, and name -> reason for the rest."""
    if not is_refit(config):
        return frozenset(), {}
    refittable, excluded = set(), {}
    for name, value in model.graph.initializers.items():
        reason = _exclusion(value, network, config)
        if reason is None:
            refittable.add(name)
        else:
            excluded[name] = reason
    return frozenset(refittable), excluded


def find_weight_layers(model: ir.Model, names: frozenset[str]) -> dict[str, tuple[str, str]]:
    """Weight -> the layer that it belongs to and its role there; a weight of no layer is a constant of its own name."""
    return {name: _find_layer(model.graph.initializers[name]) for name in sorted(names)}


def _find_layer(value: ir.Value) -> tuple[str, str]:
    given = value.metadata_props.get("dovetail.weights", "constant")
    for node, index in value.uses():
        layer = node.metadata_props.get("dovetail.layer", node.name)
        is_convolution = node.op_type in _CONVOLUTIONS and not node.domain
        role = _ROLES.get(index, given) if is_convolution else given
        if layer and role != "constant":
            return layer, role
    return value.name or "", "constant"


def _exclusion(value: ir.Value, network: Network | None, config: BuilderConfig) -> str | None:
    name = value.name or ""
    if config.get_flag(BuilderFlag.REFIT_INDIVIDUAL) and network is not None:
        return None if network.are_weights_marked_refittable(name) else "not marked with mark_weights_refittable"
    if network is not None and "dovetail.weights" not in value.metadata_props:
        return "a constant that a layer needs, not a weight"
    if value.dtype in (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL):
        return "integers may decide shapes, so they are fixed at build"
    if not value.uses():
        return "nothing uses it"
    return None
