"""Nodes as they would be with their channels last, so that a provider can be asked before anything is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from dovetail.build.assign.layers import NodeLayer, opset_of
from dovetail.passes.layout import NHWC_DOMAIN

__all__ = ["make_channels_last"]


def make_channels_last(node: ir.Node, provider: str, opsets: Mapping[str, int]) -> NodeLayer:
    """A node of ONNX as the layout pass would rewrite it.

    Args:
        node: The node, which is not changed.
        provider: Whose share it is of.
        opsets: What the model imports.
    """
    return _ChannelsLast(node, provider, {**opsets, NHWC_DOMAIN: opset_of(opsets, "")})


@dataclass(frozen=True)
class _ChannelsLast(NodeLayer):
    """A node in the domain of images with their channels last; its first input is an image."""

    @property
    def domain(self) -> str:
        """That domain."""
        return NHWC_DOMAIN

    @property
    def input_shapes(self) -> Sequence[Sequence[int | str] | None]:
        """The shapes of the inputs, with the channels of the image last."""
        first, *others = super().input_shapes
        return [None if first is None else [*first[:1], *first[2:], *first[1:2]], *others]
