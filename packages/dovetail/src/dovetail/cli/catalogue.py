"""The commands: those of Dovetail, and those that installed packages offer by the entry points ``dovetail.commands``.

An entry point names a module with a function ``declare``, as the modules of this folder have it. Packages are looked
for when a list of all commands is shown or when a command is none of Dovetail's; listing imports nothing of theirs, and
a command is imported when it is the one to run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail._extras import install_line
from dovetail.errors import DovetailError, PluginError, ResourceError, UsageError

if TYPE_CHECKING:
    import argparse

    from dovetail.entry_points import Offer

__all__ = [
    "COMMANDS",
    "PACKAGE_COMMANDS",
    "OfferedCommand",
    "PackageCommand",
    "list_offered",
    "load_declare",
    "summarize",
]

Declare = Callable[["argparse.ArgumentParser"], None]

COMMANDS: Final = {
    "build": "build a plan from an ONNX model, tuned by measuring",
    "tune": "choose between the candidates that a plan carries, by measuring on its device",
    "run": "run a plan or a model, on one sample or on many, and show or store its outputs",
    "bench": "time a plan or a model",
    "compare": "compare the outputs of a model or a plan with those of a reference, a plan or a saved run",
    "reduce": "shrink a model that fails to the smallest that still fails",
    "inspect": "show what a plan or a model holds, and what would run it, without running any code of it",
    "report": "draw an engine, or the difference of two, as one page for a browser",
    "refit": "put other weights into a plan, without building it again",
    "replace": "replace a part of an ONNX model by one node, for a plugin to take",
    "check": "take a plugin through its whole life and judge it by every rule",
    "plan": "judge plan files",
    "provider": "look at back ends",
    "plugin": "look at custom layers, or start a new one",
    "parity": "compare what two back ends cover: operators, versions and types",
    "include-dir": "print the folder of the C++ headers, for a compiler's -I",
    "runtime-flags": "print what a compiler needs for C++ programs that run plans",
    "completion": "print what completes commands and options in a shell",
    "env": "describe this installation, ready to paste into a report",
}
"""Each command and what it is for; the module of the same name, with _ for -, declares its arguments and runs it."""


class PackageCommand(NamedTuple):
    """A command of a package that belongs to Dovetail."""

    package: str
    summary: str


PACKAGE_COMMANDS: Final = {
    "batch": PackageCommand("dovetail-serve", "run a model over files, on one machine or on Ray"),
    "lint": PackageCommand(
        "dovetail-tensorrt", "judge plugin sources, in Python and C++, by what is known to go wrong"
    ),
    "migrate": PackageCommand("dovetail-tensorrt", "rewrite V2 plugins of a Python file to V3"),
    "serve": PackageCommand("dovetail-serve", "serve models over HTTP and gRPC"),
    "trtexec": PackageCommand("dovetail-tensorrt", "build, run and time a model with the flags of trtexec"),
}
"""Commands of packages that are known; what they are for is listed without importing these."""


class OfferedCommand(NamedTuple):
    """A command as it can be listed without importing it."""

    offer: Offer
    problem: str | None
    """Why it cannot be run, as far as that shows without importing it."""


def list_offered() -> list[OfferedCommand]:
    """Every command that an installed package offers, sorted by name."""
    from dovetail.entry_points import COMMAND_GROUP, find_offers

    offers = find_offers(COMMAND_GROUP)
    return [OfferedCommand(offer, _find_problem(offer, offers)) for offer in offers]


def summarize(offer: Offer) -> str:
    """What a command of a package is for, as far as that is known without importing it."""
    known = PACKAGE_COMMANDS.get(offer.name)
    if known is not None and known.package == offer.distribution:
        return f"{known.summary} ({offer.origin})"
    return f"a command of {offer.origin}"


def _find_problem(offer: Offer, offers: list[Offer]) -> str | None:
    from dovetail.entry_points import COMMAND_GROUP, loading_policy

    if offer.name in COMMANDS:
        return "the name is that of a command of Dovetail"
    others = [other.origin for other in offers if other.name == offer.name and other != offer]
    if others:
        return f"{', '.join(others)} offers the same name"
    if offer.module is None or offer.attribute is not None:
        return f"the entry point is '{offer.target}' and not a module"
    return loading_policy().refusal(COMMAND_GROUP, offer.name)


def load_declare(name: str) -> Declare | None:
    """The function that declares a command, its module imported; None when nobody has such a command.

    Raises:
        UsageError: A package offers it, and it may not be imported.
        PluginError: The package does not keep the contract, or its code fails.
        ResourceError: The package that has it is not installed, or lacks another one.
    """
    if name in COMMANDS:
        declare: Declare = importlib.import_module(f"dovetail.cli.commands.{name.replace('-', '_')}").declare
        return declare
    offered = next((command for command in list_offered() if command.offer.name == name), None)
    if offered is not None:
        return _import_declare(*offered)
    if name in PACKAGE_COMMANDS:
        raise _missing(name)
    return None


def _missing(name: str) -> DovetailError:
    from dovetail.entry_points import COMMAND_GROUP, loading_policy

    refusal = loading_policy().refusal(COMMAND_GROUP, name)
    if refusal is not None:
        return UsageError(f"commands of packages cannot be run: {refusal}", where=f"command '{name}'")
    what = f"this is a command of the package '{PACKAGE_COMMANDS[name].package}', which is not installed"
    return ResourceError(what, where=f"command '{name}'", fix=install_line(package=PACKAGE_COMMANDS[name].package))


def _import_declare(offer: Offer, problem: str | None) -> Declare:
    where = f"command '{offer.name}' of {offer.origin}"
    if problem is not None or offer.module is None:
        raise UsageError(f"it cannot be run: {problem}", where=where)
    try:
        module: Any = importlib.import_module(offer.module)
    except ImportError as error:
        what = f"its module '{offer.module}' cannot be imported: {error}"
        raise ResourceError(what, where=where, fix=install_line(package=offer.distribution)) from error
    except Exception as error:  # the code of others, which may raise anything
        raise PluginError(f"importing it failed: {type(error).__name__}: {error}", where=where) from error
    declare: Declare | None = vars(module).get("declare")
    if not callable(declare):
        what = "its module does not say what arguments the command takes"
        raise PluginError(what, where=where, expected=f"a function 'declare' in '{offer.module}'")
    return partial(_declare_theirs, declare, where)


def _declare_theirs(declare: Declare, where: str, parser: argparse.ArgumentParser) -> None:
    try:
        declare(parser)
    except DovetailError:
        raise
    except Exception as error:  # the code of others, which may raise anything
        raise PluginError(f"declaring it failed: {type(error).__name__}: {error}", where=where) from error
