"""``dovetail plugin list``: which custom layers are registered, here or by the libraries that are named."""

from __future__ import annotations

import argparse
from typing import Any

from dovetail.cli.answers import Answer, Document
from dovetail.cli.options import add_plugins, add_subcommand
from dovetail.cli.screen import Screen
from dovetail.cli.targets import load_libraries

__all__ = ["declare", "run"]


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verb = add_subcommand(
        parser, "list", "list the plugins that are registered, and those of the libraries you name", run
    )
    add_plugins(verb)


def run(args: argparse.Namespace) -> Answer:
    """List plugins by name, version and namespace."""
    from dovetail.plugin.registry import PluginRegistry, get_plugin_registry

    registry = PluginRegistry(parent=get_plugin_registry())
    load_libraries(args.plugins, registry)
    origins = {id(creator): library.path for library in registry.libraries for creator in library.creators}
    plugins = [_describe(creator, origins.get(id(creator))) for creator in registry.all_creators_recursive]
    plugins.sort(key=lambda plugin: (plugin["namespace"], plugin["name"], plugin["version"]))
    return Answer(document={"plugins": plugins}, show=_show)


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
    if not document["plugins"]:
        screen.line("no plugin is registered; name libraries with --plugins")
        return
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
    screen.table(("plugin", "version", "namespace", "fields", "library"), rows)
