"""What whoever changes a network outside of a pass shares with passes: questions to nodes, names, and initializers."""

from __future__ import annotations

from dovetail.passes._graph import add_initializer, is_onnx, names_in
from dovetail.passes._match import int_attribute

__all__ = ["add_initializer", "int_attribute", "is_onnx", "names_in"]
