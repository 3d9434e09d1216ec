"""What the tensors of a model hold in one run of a reference, asked for by name and run only as needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.errors import DovetailError
from dovetail.expr import sizes_from_dims
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.specs import InputSpec, specs_of_model
from dovetail.tools.marks import mark_outputs
from dovetail.tools.sides import Side

__all__ = ["Recorder", "fit_value"]


class Recorder:
    """Values of tensors by name; those of inputs are given, the others come from the first reference that has them.

    Args:
        model: The whole model.
        feeds: Its inputs.
        references: Who may run it, the most trusted first.
        seed: Decides what inputs get for which there is no value at all.
    """

    def __init__(self, model: ir.Model, feeds: Mapping[str, Any], references: Sequence[Side], *, seed: int = 0) -> None:
        self._model = model
        self._feeds = feeds
        self._references = list(references)
        self._seed = seed
        self._known: dict[str, Any] = dict(feeds)
        self._made = {value.name for node in model.graph for value in node.outputs}

    def __call__(self, names: Collection[str]) -> Mapping[str, Any]:
        """What is known of these tensors."""
        missing = [name for name in names if name not in self._known and name in self._made]
        if missing and self._references:
            self._known |= self._run(missing)
        return {name: self._known[name] for name in names if name in self._known}

    def _run(self, names: Sequence[str]) -> Mapping[str, Any]:
        marked = mark_outputs(self._model, names)
        while self._references:
            try:
                results = self._references[0].run(marked, self._feeds)
                return {name: results[name] for name in names}
            except DovetailError:
                # What does not run the whole model now will not do so later either.
                del self._references[0]
        return {}

    def feeds_for(self, model: ir.Model) -> dict[str, Any]:
        """Values for the inputs of a part of the model: what the tensors of their names held, else random numbers."""
        specs = specs_of_model(model)
        known = self([spec.name for spec in specs])
        given = {spec.name: fit_value(known[spec.name], _sizes_of(spec)) for spec in specs if spec.name in known}
        return make_feeds(specs, given=given, seed=self._seed)


def _sizes_of(spec: InputSpec) -> Sequence[int | None] | None:
    return None if spec.dims is None else sizes_from_dims(spec.dims)


def fit_value(value: Any, sizes: Sequence[int | None] | None) -> Any:
    """The first elements of an array along every axis whose size is fixed and smaller.

    >>> fit_value(np.arange(6).reshape(2, 3), [1, 2]).tolist()
    [[0, 1]]
    """
    if not isinstance(value, np.ndarray) or sizes is None or len(sizes) != value.ndim:
        return value
    return np.ascontiguousarray(value[tuple(slice(0, size) for size in sizes)]).reshape(
        [held if size is None else min(size, held) for size, held in zip(sizes, value.shape, strict=True)]
    )
