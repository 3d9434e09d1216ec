"""Arguments that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from dovetail.cli.answers import Reply

__all__ = [
    "add_image",
    "add_load",
    "add_model_options",
    "add_plugins",
    "add_shapes",
    "add_subcommand",
    "add_target",
    "add_trust",
    "describe",
    "finish_command",
    "non_negative_float",
    "open_subcommands",
    "positive_float",
    "positive_int",
    "seed",
]

N = TypeVar("N", int, float)
Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

_MAX_DIGITS: Final = 40
_MAX_NUMBER: Final = 1e15
_BELOW: Final = f" and below {_MAX_NUMBER:g}"


def describe(summary: str) -> str:
    """The sentence that the help of a command starts with."""
    return f"{summary[0].upper()}{summary[1:]}."


def finish_command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Reply]) -> None:
    """Give a command its function, and ``--json``, which every command has."""
    parser.add_argument("--json", action="store_true", help="write one JSON document to the standard output")
    parser.set_defaults(run=run)


def open_subcommands(parser: argparse.ArgumentParser) -> Verbs:
    """Make a command a noun, to which ``add_subcommand`` gives its verbs."""
    return parser.add_subparsers(metavar="COMMAND", required=True, title="commands")


def add_subcommand(
    verbs: Verbs, name: str, summary: str, run: Callable[[argparse.Namespace], Reply]
) -> argparse.ArgumentParser:
    """Give a command that is a noun a verb."""
    subparser = verbs.add_parser(name, help=summary, description=describe(summary), allow_abbrev=False)
    finish_command(subparser, run)
    return subparser


def add_target(parser: argparse.ArgumentParser) -> None:
    """The plan or model that a command runs, and what it takes to load it."""
    parser.add_argument("target", metavar="PLAN|MODEL", help="a plan, or an ONNX model, which is built first")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """What it takes to load a plan: plugin libraries, and the code that it may bring."""
    add_plugins(parser)
    parser.add_argument(
        "--host-code",
        action="store_true",
        help="import plugin libraries that the plan carries: only for plans from people you trust",
    )
    parser.add_argument(
        "--no-device-code", action="store_true", help="refuse a plan that carries code for an accelerator"
    )


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Plugin libraries to load first."""
    parser.add_argument(
        "--plugins",
        nargs="+",
        action="extend",
        default=[],
        metavar="LIB",
        help="plugin libraries to import first (Python files, package folders, C++ libraries, or @NAME for one that "
        "an installed package offers); their code runs",
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    """Whether a list may import what installed packages offer."""
    parser.add_argument(
        "--load",
        action="store_true",
        help="import what installed packages offer as entry points, to show it in full; their code runs",
    )


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Shapes of dynamic inputs."""
    parser.add_argument(
        "--shapes",
        action="append",
        default=[],
        metavar="NAME:SHAPE[,...]",
        help="shapes of dynamic inputs: x:1x3x224x224, or min:opt:max as x:1x3x8x8:2x3x8x8:4x3x8x8; may be repeated",
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What running needs besides the target: shapes, files for inputs, and a seed for the others."""
    add_shapes(parser)
    parser.add_argument(
        "--inputs",
        nargs="+",
        action="extend",
        default=[],
        metavar="INPUT",
        help="what inputs get: x:file (.npy, .json, .bin, an image), x=3, x=[1,2,3], x:uniform(0,255), a folder, or "
        "for all inputs file.npz, file.json, a folder, loader.py:load_data; others get random numbers",
    )
    add_image(parser)
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="decides the random numbers (default 0)")


def add_image(parser: argparse._ActionsContainer) -> None:
    """How images become inputs."""
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="NAME:OPTION=VALUE[,...]",
        help="how images become an input: x:resize=320,mean=0.5,std=0.5,layout=nchw; also short, letterbox, crop, "
        "scale, color, filter; may be repeated",
    )


def positive_int(text: str) -> int:
    """An argument that counts something."""
    return _read(int, text, lambda number: number > 0, "a whole number above 0")


def seed(text: str) -> int:
    """An argument that decides random numbers."""
    return _read(int, text, lambda number: number >= 0, "a whole number of at least 0")


def positive_float(text: str) -> float:
    """An argument that is a time or a size."""
    return _read(float, text, lambda number: 0 < number < _MAX_NUMBER, "a number above 0" + _BELOW)


def non_negative_float(text: str) -> float:
    """An argument that is a time or a size and may be nothing."""
    return _read(float, text, lambda number: 0 <= number < _MAX_NUMBER, "a number of at least 0" + _BELOW)


def _read(kind: Callable[[str], N], text: str, is_valid: Callable[[N], bool], expected: str) -> N:
    try:
        number = kind(text[:_MAX_DIGITS])
    except ValueError:
        number = None
    if number is None or len(text) > _MAX_DIGITS or not is_valid(number):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text[:_MAX_DIGITS]!r}")
    return number
