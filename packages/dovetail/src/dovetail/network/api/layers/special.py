"""Assertions, and the layers that have no counterpart here and say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import onnx_ir as ir

from dovetail.errors import UnsupportedOpError
from dovetail.network.api.core import NetworkCore
from dovetail.network.api.emission import DOVETAIL_DOMAIN
from dovetail.network.api.enums import LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, text

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["IAssertionLayer", "SpecialLayers"]


class IAssertionLayer(ILayer):
    """Fails when its condition is false: when the network is built if it is known then, else when it runs."""

    __slots__ = ()

    _layer_type = LayerType.ASSERTION
    _kind = "Assertion"
    _input_names = ("condition",)

    message = Property(text, "What the error says.")

    def __init__(self, network: NetworkCore, tensor: ITensor, message: Any) -> None:
        super().__init__(network, [tensor], num_outputs=0)
        self.message = message

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        condition = e.input(0)
        e.require_type(condition, [ir.DataType.BOOL], "condition")
        known = condition.const_value
        if known is None:
            e.ops("Assert", condition, count=0, domain=DOVETAIL_DOMAIN, message=self.message)
        elif not known.numpy().all():
            raise e.error(f"the assertion is false: {self.message}")
        return []


class SpecialLayers(NetworkCore):
    """The methods that add assertions, and those that refuse."""

    __slots__ = ()

    def add_assertion(self, condition: ITensor, message: str) -> IAssertionLayer:
        """Add a check that fails with the message when any element of the condition is false."""
        tensor = self._check_tensor(condition, where="add_assertion", argument="condition")
        return self._add_layer(IAssertionLayer(self, tensor, message))

    def add_moe(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: there is no mixture-of-experts layer."""
        raise UnsupportedOpError(
            "the MoE layer has no ONNX counterpart",
            where="add_moe",
            fix="compose it of add_topk, add_gather and add_matrix_multiply, or write a plugin",
        )

    def add_dist_collective(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refuse: a network runs on one device."""
        raise UnsupportedOpError(
            "the DistCollective layer needs several devices, and a network runs on one", where="add_dist_collective"
        )
