"""Copies of models, so that passes can work in place on one and leave the other."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["clone_model"]


def clone_model(model: ir.Model) -> ir.Model:
    """A copy with nodes and values of its own, those of bodies included.

    Weights are shared, not copied, and so are the plugins that nodes stand for. Notes on nodes, values and graphs are
    in the copy too; what onnx-ir's own copy leaves out are the notes on the model and on functions.
    """
    copy = model.clone()
    copy.meta.update(model.meta)
    for name, function in model.functions.items():
        copy.functions[name].meta.update(function.meta)
    return copy
