"""What a model is run on from the command line: the options, and the reader of what they name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.cli.shapes import ShapeBounds
from dovetail.cli.streams import messages
from dovetail.errors import InputError, UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.near_names import name_known, suggest

if TYPE_CHECKING:
    from dovetail._unset_dims import UnsetDim
    from dovetail.inputs.image_options import ImageOptions
    from dovetail.inputs.reader import InputReader, InputSample
    from dovetail.inputs.specs import InputSpec
    from dovetail.runtime.engine import Engine

__all__ = [
    "Inputs",
    "make_inputs",
    "open_reader",
    "read_images",
    "refuse_idle_images",
    "take_first",
    "take_sample",
    "tell_skipped",
]


class Inputs(NamedTuple):
    """One value for each input of an engine, and the sizes that nobody set."""

    values: dict[str, Any]
    unset: list[UnsetDim]


def open_reader(
    specs: Sequence[InputSpec], args: argparse.Namespace, shapes: Mapping[str, ShapeBounds], logger: ILogger
) -> InputReader:
    """The reader of what a command line names.

    Args:
        specs: The inputs.
        args: The command line, with ``--inputs``, ``--image``, ``--seed`` and ``--strict``.
        shapes: Shapes by name; the tuned one is taken.
        logger: Who is told of files that are no inputs.

    Raises:
        UsageError: A name is not an input.
        InputError: A file cannot be read, or is no input and the command is strict.
    """
    from dovetail.inputs.reader import open_inputs

    names = [spec.name for spec in specs]
    for name in shapes:
        _require_input(name, names, "--shapes")
    chosen = {name: bounds.opt for name, bounds in shapes.items()}
    images = read_images(args.image, names)
    refuse_idle_images(images, args.inputs, "--inputs")
    reader = open_inputs(args.inputs, specs, images=images, shapes=chosen, seed=args.seed)
    tell_skipped(reader, logger, "--inputs", strict=args.strict)
    return reader


def _require_input(name: str, names: Sequence[str], option: str) -> None:
    if name not in names:
        expected = name_known(names, nothing="no inputs")
        raise UsageError(f"there is no input '{name}'", where=option, expected=expected, fix=suggest(name, names))


def read_images(texts: Sequence[str], names: Sequence[str]) -> dict[str, ImageOptions]:
    """How images become inputs; the only input needs no name."""
    from dovetail.inputs.image_options import parse_image_options

    images: dict[str, ImageOptions] = {}
    for text in texts:
        where = f"--image {text[:80]!r}"
        name = max((each for each in names if text.startswith(f"{each}:")), key=len, default=None)
        rest = text if name is None else text[len(name) + 1 :]
        if name is None:
            before = text.partition("=")[0].rpartition(":")[0]
            if before or len(names) != 1:
                _require_input(before, names, where)
            name = names[0]
        if name in images:
            raise UsageError(f"input '{name}' is named twice", where=where)
        images[name] = parse_image_options(rest, where=where)
    return images


def refuse_idle_images(images: Mapping[str, ImageOptions], texts: Sequence[str], option: str) -> None:
    """Refuse to hear how images become an input that gets none.

    Raises:
        UsageError: No text names an image, or a folder of them, for an input of ``images``.
    """
    for name in images:
        if not any(_has_images(text.removeprefix(f"{name}:")) for text in texts):
            fix = f"give one, as in {option} {name}:photo.png, or leave it out"
            raise UsageError(f"this has no effect: input '{name}' gets no image", where="--image", fix=fix)


def _has_images(text: str) -> bool:
    from dovetail.inputs.images import IMAGE_SUFFIXES

    path = Path(text)
    files = path.iterdir() if path.is_dir() else (path,)
    return any(each.suffix.lower() in IMAGE_SUFFIXES for each in files)


def tell_skipped(reader: InputReader, logger: ILogger, option: str, *, strict: bool) -> None:
    """Tell of files in folders that are no kind of input.

    Raises:
        InputError: There are some and the command is strict.
    """
    if not reader.skipped:
        return
    what = f"{len(reader.skipped)} file(s) are no kind of input: {', '.join(reader.skipped[:5])}"
    if strict:
        raise InputError(what, where=option, fix="move them elsewhere")
    logger.log(Severity.WARNING, f"{what}; they are left out")


def take_sample(reader: InputReader, sample: InputSample, logger: ILogger, *, strict: bool) -> Inputs:
    """One value for each input; it is told which sizes nobody set.

    Raises:
        InputError: Nobody set a size and the command is strict.
    """
    from dovetail._unset_dims import tell_unset

    unset = reader.find_unset(sample)
    tell_unset(unset, logger, strict=strict)
    return Inputs(reader.complete(sample), unset)


def take_first(reader: InputReader, *, command: str) -> InputSample:
    """The first sample, for a command that runs on one; that there are others is told."""
    sample = reader.first()
    if not reader.is_single:
        count = "several samples" if reader.count is None else f"{reader.count} samples"
        print(f"note: there are {count}, and {command} takes the first, '{sample.name}'", file=messages())
    return sample


def make_inputs(engine: Engine, args: argparse.Namespace, shapes: Mapping[str, ShapeBounds], logger: ILogger) -> Inputs:
    """One value for each input of an engine, of the first sample where there are several.

    Raises:
        UsageError: A name is not an input.
        InputError: A file cannot be read, or nobody set a size and the command is strict.
    """
    from dovetail.inputs.specs import specs_of_manifest

    reader = open_reader(specs_of_manifest(engine.manifest), args, shapes, logger)
    return take_sample(reader, take_first(reader, command="the benchmark"), logger, strict=args.strict)
