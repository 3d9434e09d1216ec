"""Modules of PyTorch into onnx-ir models, by PyTorch's own exporter; for users who have PyTorch installed.

A module is traced with ``torch.export`` over example inputs, and the program it gives is translated by
``torch.onnx.export``. Dimensions that the caller's shapes vary are exported as dynamic ones. Custom operators become
nodes of their own namespace, which are then plugin layers.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.errors import DovetailError, ModelError, UsageError

__all__ = ["export_torch", "is_torch_model"]


def is_torch_model(model: object) -> bool:
    """Whether it is a module or an exported program; PyTorch is not imported to find out."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module | torch.export.ExportedProgram)


def export_torch(model: Any, example_inputs: Any, bounds: Mapping[str, Sequence[Sequence[int]]]) -> ir.Model:
    """The model that a module or an exported program computes.

    Args:
        model: The module, in evaluation mode, or the exported program.
        example_inputs: For a module: the arguments of ``forward``, as a tuple, a mapping by name, or one tensor.
        bounds: Input -> shapes that it must allow; a dimension that differs between them is a dynamic one.

    Raises:
        UsageError: There are no example inputs for a module, or there are some for an exported program.
        ModelError: PyTorch cannot export it.
    """
    import torch

    if isinstance(model, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise UsageError("an exported program has its inputs already", where="example_inputs", fix="leave them out")
        return _translate(model)
    exported = _translate(_trace(model, example_inputs, bounds))
    exported.graph.name = type(model).__name__
    return exported


def _trace(module: Any, example_inputs: Any, bounds: Mapping[str, Sequence[Sequence[int]]]) -> Any:
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        fix = "give the module that it was made of"
        raise UsageError("this is a module of TorchScript, which torch.export does not take", where="model", fix=fix)
    if module.training:
        raise UsageError(
            f"the module {type(module).__name__} is in training mode", where="model", fix="call module.eval() first"
        )
    args, kwargs = _split_inputs(example_inputs)
    if any(isinstance(value, np.ndarray) for value in (*args, *kwargs.values())):
        fix = "convert it: torch.from_numpy(x)"
        raise UsageError("an example is an array of NumPy", where="example_inputs", expected="tensors", fix=fix)
    dynamic = _find_dynamic(_bind(module, args, kwargs), bounds)
    fix = "see what torch.export.export(module, args) says; sizes of dynamic dimensions are best 2 or more in examples"
    with _judging("torch.export cannot trace the module", fix), _quiet():
        return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic)


def _split_inputs(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if example_inputs is None:
        raise UsageError(
            "a module is exported over example inputs, and there are none",
            where="example_inputs",
            fix="pass the arguments of its forward: compile(module, (x,))",
        )
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    return (tuple(example_inputs), {}) if isinstance(example_inputs, tuple | list) else ((example_inputs,), {})


def _bind(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs by the names of the parameters of ``forward``."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"the example inputs do not fit {type(module).__name__}.forward: {error}", where="example_inputs"
        ) from error
    return dict(bound.arguments)


def _find_dynamic(
    given: Mapping[str, Any], bounds: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, dict[int, Any] | None] | None:
    """For each input the dimensions that are to be dynamic; None when nothing is."""
    found = {name: _varying_axes(name, bounds.get(name, ()), given[name]) for name in given}
    return {name: axes or None for name, axes in found.items()} if any(found.values()) else None


def _varying_axes(name: str, shapes: Sequence[Sequence[int]], example: Any) -> dict[int, Any]:
    from torch.export import Dim

    sizes = [tuple(shape) for shape in shapes]
    if not sizes:
        return {}
    rank = getattr(example, "ndim", None)
    if any(len(shape) != rank for shape in sizes):
        raise UsageError("its example has another rank", where=f"input '{name}'", expected=len(sizes[0]), got=rank)
    return {axis: Dim.DYNAMIC for axis in range(len(sizes[0])) if len({shape[axis] for shape in sizes}) > 1}


def _translate(program: Any) -> ir.Model:
    import torch

    from dovetail.network.pytorch.custom_ops import find_translations

    table = find_translations(program)
    fix = "write the operator as a torch.library.custom_op and a plugin of the same name, or rewrite that part"
    with _judging("torch.onnx.export cannot translate the program", fix), _quiet():
        exported = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=table)
    model: ir.Model = exported.model
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what PyTorch says about its own code, and about packages that no model asked for."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _judging(what: str, fix: str) -> Iterator[None]:
    """Have what PyTorch raises be one error that names the cause."""
    try:
        yield
    except DovetailError:
        raise
    except Exception as error:
        raise ModelError(f"{what}: {_find_cause(error)}", where="model", fix=fix) from error


def _find_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:400]}"
