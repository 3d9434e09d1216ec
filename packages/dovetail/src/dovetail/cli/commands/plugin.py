"""``dovetail plugin``: which custom layers are registered or offered by packages, and the start of a new one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import add_load, add_plugins, add_subcommand, open_subcommands
from dovetail.cli.screen import Screen
from dovetail.cli.starters import FORMS, make_starter
from dovetail.cli.targets import load_libraries
from dovetail.errors import PluginError, UsageError
from dovetail.files import write_file

if TYPE_CHECKING:
    from dovetail.entry_points import Offer
    from dovetail.plugin.registry import PluginRegistry

__all__ = ["declare", "run", "run_new"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = open_subcommands(parser)
    verb = add_subcommand(
        verbs,
        "list",
        "list the plugins that are registered, and those of the libraries you name",
        run,
    )
    add_plugins(verb)
    add_load(verb)
    verb = add_subcommand(verbs, "new", "write a custom layer that passes 'dovetail check', and its test", run_new)
    verb.add_argument("name", metavar="NAME", help="the operator: MyOp, or with a domain acme::MyOp")
    verb.add_argument("-o", "--output", default=".", metavar="DIR", help="the folder to write to (default: this one)")
    verb.add_argument(
        "--form",
        choices=FORMS,
        default=FORMS[0],
        help="a function on arrays (layer, the default), or a class under the IPluginV3 contract (class)",
    )


def run(args: argparse.Namespace) -> Reply:
    """List plugins by name, version and namespace."""
    from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

    registry = PluginRegistry(parent=get_plugin_registry())
    load_libraries(args.plugins, registry)
    installed = _describe_installed(registry, load=args.load)
    origins = {id(creator): library.path for library in registry.libraries for creator in library.creators}
    plugins = [_describe(creator, origins.get(id(creator))) for creator in registry.all_creators_recursive]
    plugins.sort(key=lambda plugin: (plugin["namespace"], plugin["name"], plugin["version"]))
    return Reply(document={"plugins": plugins, "installed": installed}, show=_show)


def run_new(args: argparse.Namespace) -> Reply:
    """Write the files of a new plugin; none that is there is replaced."""
    files = {Path(args.output) / name: text for name, text in make_starter(args.name, args.form).items()}
    for path in files:
        if path.exists():
            raise UsageError("the file is there already", where=f"'{path}'", fix="choose another name, or -o DIR")
    for path, text in files.items():
        write_file(path, text.encode(), option="-o")
    return Reply(document={"files": [str(path) for path in files]}, show=_show_new)


def _show_new(document: Document, screen: Screen) -> None:
    library, test = document["files"]
    for path in document["files"]:
        screen.line(f"wrote {path}")
    screen.line(f"next: dovetail check {library}; pytest {test}")


def _describe_installed(registry: PluginRegistry, *, load: bool) -> list[dict[str, Any]]:
    """What installed packages offer; one that cannot be loaded is listed with the reason."""
    from dovetail.entry_points import PLUGIN_GROUP, find_offers

    return [
        {"name": offer.name, "origin": offer.origin, "module": offer.target} | _load_installed(offer, registry, load)
        for offer in find_offers(PLUGIN_GROUP)
    ]


def _load_installed(offer: Offer, registry: PluginRegistry, load: bool) -> dict[str, Any]:
    if any(library.name == offer.name and library.module_name == offer.module for library in registry.libraries):
        return {"imported": True, "reason": None}
    if not load:
        return {"imported": False, "reason": "not imported"}
    try:
        registry.load_entry_points([offer.name])
    except PluginError as error:
        return {"imported": False, "reason": f"cannot be used: {str(error).partition(chr(10))[0]}"}
    return {"imported": True, "reason": None}


def _describe(creator: Any, library: str | None) -> dict[str, Any]:
    from dovetail.plugin.fields import iterate_fields

    fields = [{"name": field.name, "type": field.type.name} for field in iterate_fields(creator.field_names)]
    return {
        "name": creator.name,
        "version": creator.plugin_version,
        "namespace": creator.plugin_namespace,
        "fields": fields,
        "library": library,
    }


def _show(document: Document, screen: Screen) -> None:
    if document["plugins"]:
        _show_plugins(document, screen)
    else:
        screen.line("no plugin is registered; name libraries with --plugins")
    if document["installed"]:
        screen.title("Plugin libraries of installed packages")
        rows = [
            (library["name"], library["origin"], library["module"], library["reason"] or "imported")
            for library in document["installed"]
        ]
        screen.table(("library", "from", "module", "state"), rows, prose=(3,))
        screen.line("--load imports all of them, --plugins @NAME one; their code runs")


def _show_plugins(document: Document, screen: Screen) -> None:
    rows = [
        (
            plugin["name"],
            plugin["version"],
            plugin["namespace"],
            ", ".join(f"{field['name']}: {field['type']}" for field in plugin["fields"]),
            plugin["library"] or "-",
        )
        for plugin in document["plugins"]
    ]
    screen.table(("plugin", "version", "namespace", "fields", "library"), rows, prose=(3,))
