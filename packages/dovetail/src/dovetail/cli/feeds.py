"""What a model is run on from the command line: arrays from files, random numbers for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.cli.shapes import ShapeBounds
from dovetail.errors import UsageError
from dovetail.loggers import ILogger
from dovetail.near_names import name_known, suggest

if TYPE_CHECKING:
    from dovetail._unset_dims import UnsetDim
    from dovetail.runtime.context import ExecutionContext
    from dovetail.runtime.engine import Engine
    from dovetail.tools.feeds import InputSpec

__all__ = ["Inputs", "make_context", "make_inputs", "read_inputs"]


class Inputs(NamedTuple):
    """One value for each input of an engine, and the sizes that nobody set."""

    values: dict[str, Any]
    unset: list[UnsetDim]


def make_context(engine: Engine, inputs: Mapping[str, Any]) -> ExecutionContext:
    """A context on the first profile that the shapes of the inputs fit, so that nobody has to count profiles."""
    context = engine.create_execution_context()
    for index, profile in enumerate(engine.manifest.profiles):
        bounds = ((inputs[name].shape, shapes) for name, shapes in profile.shapes.items())
        if all(_is_within(shape, low, high) for shape, (low, _, high) in bounds):
            context.set_optimization_profile_async(index)
            break
    return context


def _is_within(shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> bool:
    return len(shape) == len(low) and all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True))


def make_inputs(engine: Engine, args: argparse.Namespace, shapes: Mapping[str, ShapeBounds], logger: ILogger) -> Inputs:
    """One value for each input of an engine; it is told which sizes nobody set.

    Args:
        engine: What will run.
        args: The command line, with ``--inputs``, ``--seed`` and ``--strict``.
        shapes: Shapes by name; the tuned one is taken.
        logger: Who is told.

    Raises:
        UsageError: A name is not an input.
        InputError: A file cannot be read, or nobody set a size and the command is strict.
    """
    from dovetail._unset_dims import tell_unset
    from dovetail.tools.feeds import find_unset, make_feeds, specs_of_manifest

    specs = specs_of_manifest(engine.manifest)
    given = read_inputs(args.inputs, specs)
    names = [spec.name for spec in specs]
    for name in shapes:
        if name not in names:
            expected = name_known(names, nothing="no inputs")
            raise UsageError(
                f"there is no input '{name}'", where="--shapes", expected=expected, fix=suggest(name, names)
            )
    chosen = {name: bounds.opt for name, bounds in shapes.items()}
    unset = find_unset(specs, given=given, shapes=chosen)
    tell_unset(unset, logger, strict=args.strict)
    return Inputs(make_feeds(specs, given=given, shapes=chosen, seed=args.seed), unset)


def read_inputs(texts: Sequence[str], specs: Sequence[InputSpec]) -> dict[str, Any]:
    """The values that files have for inputs; names are known, so colons in them and in paths do no harm.

    Raises:
        UsageError: A name is not an input, or an input has two files.
        InputError: A file cannot be read.
    """
    from dovetail.tools.array_files import read_array, read_arrays

    by_name = {spec.name: spec for spec in specs}
    values: dict[str, Any] = {}
    for text in texts:
        name = _named_input(text, list(by_name))
        if name is not None:
            path = text[len(name) + 1 :] if text.startswith(f"{name}:") else text
            found = {name: read_array(Path(path), by_name[name])}
        elif text.endswith(".npz"):
            found = read_arrays(Path(text), specs)
        else:
            expected = f"name:file.npy for one of {name_known(by_name)}, or a .npz file"
            fix = suggest(text.partition(":")[0], by_name) if ":" in text else None
            raise UsageError("this names no input", where=f"--inputs {text!r}", expected=expected, fix=fix)
        for doubled in found.keys() & values.keys():
            raise UsageError(f"input '{doubled}' has two files", where=f"--inputs {text!r}")
        values |= found
    return values


def _named_input(text: str, names: Sequence[str]) -> str | None:
    """The input that a text is for; the only one needs no name."""
    name = max((n for n in names if text.startswith(f"{n}:")), key=len, default=None)
    if name is None and len(names) == 1 and not text.endswith(".npz"):
        is_file = Path(text).is_file() or (text.endswith(".npy") and ":" not in text)
        return names[0] if is_file else None
    return name
