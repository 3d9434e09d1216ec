"""Pages of the API: every public name under its topic, described by the docstrings of the source."""

from __future__ import annotations

import importlib
from pathlib import Path

from dovetail._exports import ALIASES, EXPORTS
from tools.docs_site.gather import write_page

__all__ = ["TOPICS", "group_names", "write_api"]

TOPICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "build": ("Build", ("dovetail.api", "dovetail.build", "dovetail.growth")),
    "run": (
        "Run",
        ("dovetail.runtime", "dovetail.session", "dovetail.exchange", "dovetail.host_memory", "dovetail.allocators"),
    ),
    "plan": ("Plans", ("dovetail.plan",)),
    "network": (
        "Networks",
        ("dovetail.network.api.definition", "dovetail.network.api.tensor", "dovetail.network.surgery"),
    ),
    "layers": (
        "Layers",
        ("dovetail.network.api.layers", "dovetail.network.api.loops", "dovetail.network.api.conditionals"),
    ),
    "layer-options": ("Options of layers", ("dovetail.network.api.enums",)),
    "plugins": ("Plugins", ("dovetail.plugin",)),
    "types": (
        "Types and shapes",
        ("dovetail.types", "dovetail.expr", "dovetail.contract_enum", "dovetail.strict_attributes"),
    ),
    "errors": ("Errors and logs", ("dovetail.errors", "dovetail.loggers")),
    "providers": ("Providers", ("dovetail.provider",)),
}
"""The page of each topic: its title, and the modules that its names are defined in."""

MODULES = {
    "check": ("The checker", "dovetail.plugin.check"),
    "provider-contract": ("The provider contract", "dovetail.provider.interfaces"),
    "testing": ("Tests of providers", "dovetail.testing"),
    "compare": ("Comparisons", "dovetail.tools.compare"),
    "server": ("The server", "dovetail_serve.server"),
    "server-options": ("Options of the server", "dovetail_serve.options"),
}
"""Modules besides ``dovetail`` itself whose names are public; each is a page."""

_FOLDER = "reference/api"


def group_names() -> dict[str, list[str]]:
    """The full names of ``dovetail``'s public names by topic."""
    groups: dict[str, list[str]] = {topic: [] for topic in TOPICS}
    for name, module in sorted(EXPORTS.items()):
        groups[_find_topic(name, module)].append(f"{module}.{name}")
    return groups


def _find_topic(name: str, module: str) -> str:
    for topic, (_, prefixes) in TOPICS.items():
        if any(f"{module}.".startswith(f"{prefix}.") for prefix in prefixes):
            return topic
    raise SystemExit(f"error: tools/docs_site/api.py has no topic for {name} of {module}")


def write_api(target: Path) -> None:
    """Write a page for each topic and each public module, and one that lists them."""
    groups = group_names()
    for topic, names in groups.items():
        write_page(target / _FOLDER / f"{topic}.md", _show(TOPICS[topic][0], "dovetail", names))
    for topic, (title, module) in MODULES.items():
        names = [_find_definition(module, name) for name in sorted(importlib.import_module(module).__all__)]
        write_page(target / _FOLDER / f"{topic}.md", _show(title, module, names))
    write_page(target / _FOLDER / "index.md", _show_index(groups))


def _find_definition(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    home = getattr(value, "__module__", module)
    return f"{home}.{name}" if home.startswith("dovetail") else f"{module}.{name}"


def _show(title: str, module: str, names: list[str]) -> str:
    directives = "\n\n".join(f"::: {name}" for name in names)
    return f"# {title}\n\nNames of `{module}`.\n\n{directives}\n"


def _shorten(name: str) -> str:
    return f"`{name.rpartition('.')[2]}`"


def _show_index(groups: dict[str, list[str]]) -> str:
    rows = [
        f"| [{TOPICS[topic][0]}]({topic}.md) | {', '.join(map(_shorten, names))} |" for topic, names in groups.items()
    ]
    rows += [f"| [{title}]({topic}.md) | the names of `{module}` |" for topic, (title, module) in MODULES.items()]
    aliases = "\n".join(f"| `{alias}` | `{path}` |" for alias, (_, path) in sorted(ALIASES.items()))
    return (
        "# The API\n\nEvery public name; what may change between versions is in [Stability](../../stability.md). Names "
        "without another module are those of `dovetail`.\n\n| topic | names |\n|---|---|\n"
        + "\n".join(rows)
        + f"\n\n## Short names\n\n| name | stands for |\n|---|---|\n{aliases}\n"
    )
