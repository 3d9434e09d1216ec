"""Dimension names of a model, made safe.

A dimension is parsed as an expression, so a name such as ``seq-len`` would be read as a subtraction. Names that are
not plain identifiers, or that the engine itself makes, get another name; dimensions without a name get one.
"""

from __future__ import annotations

import json
import re
from typing import Final

import onnx_ir as ir

from dovetail.network.importer.tensors import walk_graphs

__all__ = ["DIMS_KEY", "is_told_by_run", "rename_dims"]

DIMS_KEY: Final = "dovetail.dims"
"""In a value's ``metadata_props``: the dims as the model gave them, as JSON, where a name was changed."""

_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN: Final = frozenset({"?", "*", "-", "-1", "None", "none", "unk", "unknown"})
"""What exporters write for every dimension they do not know; two of them are not the same dimension."""
_OURS: Final = re.compile(r"_d\d+|size_\d+_\d+|value_.*_\d+")
"""Names that shape inference gives to unknown dimensions, sizes that plugins write, and elements of inputs."""

_OF_RUNS: Final = re.compile(r"\b(?:_d\d+|size_\d+_\d+)\b")
"""Those of dimensions that nobody knows before a run."""


def is_told_by_run(dim: str) -> bool:
    """Whether only a run tells what a dimension is.

    >>> is_told_by_run("2*_d0"), is_told_by_run("batch")
    (True, False)
    """
    return _OF_RUNS.search(dim) is not None


def rename_dims(model: ir.Model) -> None:
    """Make the dims of all graph inputs, those of bodies included, integers or safe symbols."""
    values = [value for graph in walk_graphs(model.graph) for value in graph.inputs if value.shape is not None]
    given = [dim.value for value in values for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)]
    names = _SymbolNames([name for name in given if name])
    for value in values:
        _rename(value, names)


def _rename(value: ir.Value, names: _SymbolNames) -> None:
    dims = list(value.shape or ())
    renamed = [names.dim(dim, f"{value.name}_dim_{axis}") for axis, dim in enumerate(dims)]
    if renamed == dims:
        return
    pairs = zip(dims, renamed, strict=True)
    if any(isinstance(dim, ir.SymbolicDim) and dim.value and dim != new for dim, new in pairs):
        given = [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in dims]
        value.metadata_props[DIMS_KEY] = json.dumps(given)
    value.shape = ir.Shape(renamed)


class _SymbolNames:
    """From the names of a model to safe ones: one for one, and never one of another dimension."""

    def __init__(self, given: list[str]) -> None:
        self._names = {name: name for name in given if _is_safe(name)}
        self._taken = set(self._names)

    def dim(self, dim: int | ir.SymbolicDim, default: str) -> int | ir.SymbolicDim:
        """The dimension to use; a negative one is how some exporters write an unknown one."""
        if isinstance(dim, int):
            return dim if dim >= 0 else ir.SymbolicDim(self._claim(default))
        if not dim.value or dim.value in _UNKNOWN:
            return ir.SymbolicDim(self._claim(default))
        if dim.value not in self._names:
            self._names[dim.value] = self._claim(dim.value)
        return ir.SymbolicDim(self._names[dim.value])

    def _claim(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
        base = base if _is_safe(base) else f"dim_{base}"
        name, count = base, 2
        while name in self._taken:
            name, count = f"{base}_alt{count}", count + 1
        self._taken.add(name)
        return name


def _is_safe(name: str) -> bool:
    return _SAFE.fullmatch(name) is not None and _OURS.fullmatch(name) is None
