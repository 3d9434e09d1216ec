"""The output shapes of a plugin step over symbols of its own: dims of what it reads, and contents of shape inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from dovetail.build.lower.drafts import PortSymbol
from dovetail.build.lower.program_context import ProgramContext
from dovetail.expr import Constant, Expr, SizeTensor, Symbol
from dovetail.network.plugins import PluginEntry
from dovetail.plugin.handle import PluginHandle

__all__ = ["PluginShapes", "find_plugin_shapes"]


@dataclass(frozen=True, kw_only=True)
class PluginShapes:
    """What a run needs to know to size the outputs of a plugin."""

    outputs: Sequence[Sequence[Expr]]
    symbols: Sequence[PortSymbol]
    bounds: dict[str, Expr]
    """Symbol of a size that the plugin writes -> its upper bound."""


def find_plugin_shapes(
    node: ir.Node, entry: PluginEntry, handle: PluginHandle, context: ProgramContext, prefix: str
) -> PluginShapes:
    """Ask the plugin for its output shapes.

    Args:
        node: The layer.
        entry: How many of its inputs the plugin reads itself; the others are shape inputs.
        handle: The plugin.
        context: With the shapes of the network.
        prefix: What the names of the symbols begin with; each step has another.
    """
    symbols: list[PortSymbol] = []

    def symbol(name: str, source: str, port: str, position: int, index: int) -> Expr:
        found = PortSymbol(name=f"{prefix}_{name}", source=source, port=port, position=position, index=index)
        symbols.append(found)
        return Symbol(found.name)

    dims = [
        [
            dim if isinstance(dim, Constant) else symbol(f"in{i}_{axis}", "dim", "inputs", i, axis)
            for axis, dim in enumerate(context.dims(value) or ())
        ]
        for i, value in enumerate(node.inputs[: entry.num_inputs])
        if value is not None
    ]
    contents = [
        _constants(value) or [symbol(f"value{i}_{n}", "element", "shape_inputs", i, n) for n in range(_count(value))]
        for i, value in enumerate(node.inputs[entry.num_inputs :])
    ]
    shapes = handle.get_output_shapes(dims, contents)
    sizes = {dim.output_index: dim for shape in shapes for dim in shape if isinstance(dim, SizeTensor)}
    names = {index: symbol(f"size{index}", "element", "outputs", index, 0) for index in sizes}
    return PluginShapes(
        outputs=[[names[d.output_index] if isinstance(d, SizeTensor) else d for d in shape] for shape in shapes],
        symbols=symbols,
        bounds={f"{prefix}_size{index}": size.upper for index, size in sizes.items()},
    )


def _count(value: ir.Value | None) -> int:
    dims = [] if value is None or value.shape is None else [d for d in value.shape.dims if isinstance(d, int)]
    return int(np.prod(dims, dtype=np.int64))


def _constants(value: ir.Value | None) -> list[Expr]:
    """The contents of a shape input that is a constant of the network; plugins may ask whether they are."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return [] if tensor is None else [Constant(int(number)) for number in tensor.numpy().reshape(-1)]
