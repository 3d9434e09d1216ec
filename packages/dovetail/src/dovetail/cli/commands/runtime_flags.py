"""``dovetail runtime-flags``: what a compiler needs for C++ programs that run plans."""

from __future__ import annotations

import argparse
import sys
import sysconfig
from pathlib import Path

import dovetail
from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen
from dovetail.errors import ResourceError, UsageError

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--compile", action="store_true", help="only the flags for compiling")
    parts.add_argument("--link", action="store_true", help="only the flags for linking")
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Find the headers and the library of this interpreter."""
    document = {
        "compile": [] if args.link else _compile_flags(),
        "link": [] if args.compile else _link_flags(),
    }
    return Reply(document=document, show=_show)


def _compile_flags() -> list[str]:
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        raise ResourceError(
            "the headers of Python are not installed",
            where=str(headers / "Python.h"),
            fix="install them, such as with the package python3-dev",
        )
    include = Path(dovetail.__file__).parent / "include"
    return ["-std=c++17", f"-I{include}", f"-isystem{headers}", f'-DDOVETAIL_PYTHON="{sys.executable}"']


def _link_flags() -> list[str]:
    """A shared library of Python where there is one, else the static one with its symbols for extension modules."""
    values = sysconfig.get_config_vars()
    name = f"python{values['LDVERSION']}"
    if values.get("Py_ENABLE_SHARED"):
        folder = _require_library(Path(values["LIBDIR"]), values["LDLIBRARY"])
        return [f"-L{folder}", f"-Wl,-rpath,{folder}", f"-l{name}", "-lpthread"]
    folder = _require_library(Path(values["LIBPL"]), values["LIBRARY"])
    return [f"-L{folder}", f"-l{name}", "-rdynamic", *f"{values['LIBS']} {values['SYSLIBS']}".split(), "-lpthread"]


def _require_library(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        raise ResourceError(
            "the library of Python is not installed",
            where=str(folder / name),
            fix="install it, such as with the package libpython3-dev, or use another build of Python",
        )
    return folder


def _show(document: Document, screen: Screen) -> None:
    flags = [*document["compile"], *document["link"]]
    spaced = next((flag for flag in flags if any(character.isspace() for character in flag)), None)
    if spaced is not None:
        raise UsageError(
            "a path has a space in it, and a shell would take it apart",
            got=spaced,
            fix="ask with --json, or use CMake: find_package(Dovetail COMPONENTS runtime)",
        )
    screen.line(" ".join(flags))
