"""What a session may ask of the execution provider, read from entries ``ep.dovetailexecutionprovider.*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dovetail import UsageError
from dovetail.near_names import suggest
from onnxruntime_ep_dovetail.compiled.options import ContextOptions, read_context_options

__all__ = ["AVAILABLE", "EP_NAME", "PREFIX", "EpOptions", "is_option", "read_options"]

EP_NAME: Final = "DovetailExecutionProvider"
PREFIX: Final = f"ep.{EP_NAME.lower()}."

_ALIKE: Final = "ep.dovetail"
"""What no other execution provider's options begin with."""
_CLAIMS: Final = ("auto", "custom", "all")
_ROUTES: Final = ("compile", "kernels")
MAX_WARM_UP_RUNS: Final = 6
AVAILABLE: Final = -1
"""Stands for a budget of what the device has left."""
_LAYERS: Final = "session.layer_assignment_settings"
_NAMES: Final = "session.name_based_layer_assignment"
_BUDGET: Final = "session.resource_cuda_partitioning_settings"
_SWITCHES: Final = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, kw_only=True)
class EpOptions:
    """The options of one session."""

    claim: str = "auto"
    """Which nodes to take: ``custom`` for plugins and what ONNX Runtime lacks, ``all`` for everything that runs here,
    ``auto`` for the first on a CPU and the second on a device."""
    route: str = "compile"
    """``compile`` runs whole partitions, ``kernels`` one kernel a node."""
    providers: tuple[str, ...] = ()
    """Dovetail's own back ends, in order; empty for that of the device and then ``cpu``."""
    override: tuple[str, ...] = ()
    """Operators that are plugins although ONNX has them."""
    exclude: tuple[str, ...] = ()
    """Operators that stay with ONNX Runtime."""
    prefer_nhwc: bool = False
    graph_capture: bool = False
    capture_after_runs: int = 2
    """How many runs a graph is warmed up with before it is captured."""
    backend: str = ""
    """The back end to run on, where the session has several devices of ours, or none because we were named and not our
    device; values then lie in memory of the host."""
    arena: Mapping[str, str] = field(default_factory=dict)
    """From entries ``arena.<key>``: how this session's memory on a device grows."""
    provider_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """From entries ``provider.<name>.<key>``."""
    budget_bytes: int | None = None
    """What the nodes that are taken may cost, from ONNX Runtime's entry about resources; ``AVAILABLE``, or None for any
    amount."""
    layer_rules: str = ""
    """Which annotated nodes go where, from ONNX Runtime's entry."""
    name_rules: str = ""
    """The same by the names of nodes."""
    context: ContextOptions = field(default_factory=ContextOptions)
    """What the session says of compiled models."""


def read_options(entries: Mapping[str, str]) -> EpOptions:
    """The options among the entries of a session; those of others are left alone.

    >>> read_options({"ep.dovetailexecutionprovider.claim": "all", "session.x": "1"}).claim
    'all'
    """
    own = {key[len(PREFIX) :]: value for key, value in entries.items() if key.lower().startswith(PREFIX)}
    odd = [key for key in entries if key.lower().startswith(_ALIKE) and not key.lower().startswith(PREFIX)]
    if odd:
        raise UsageError(f"unknown option {odd[0]}", where=EP_NAME, expected=f"{PREFIX}<option>")
    nested: dict[str, dict[str, str]] = {}
    plain: dict[str, str] = {}
    arena: dict[str, str] = {}
    for key, value in own.items():
        if key.startswith("provider."):
            _, name, *rest = key.split(".", 2)
            nested.setdefault(name, {})[".".join(rest)] = value
        elif key.startswith("arena."):
            arena[key] = value
        else:
            plain[key] = value
    unknown = plain.keys() - _READERS.keys()
    if unknown:
        raise UsageError(
            f"unknown option(s) {', '.join(sorted(unknown))}",
            where=EP_NAME,
            expected=", ".join(sorted(_READERS)) + ", arena.<key> or provider.<name>.<key>",
            fix=suggest(min(unknown), _READERS),
        )
    values = {key: _READERS[key](key, value) for key, value in plain.items()}
    return EpOptions(
        provider_options=nested,
        arena=arena,
        context=read_context_options(entries),
        budget_bytes=_read_budget(entries.get(_BUDGET, "")),
        layer_rules=entries.get(_LAYERS, ""),
        name_rules=entries.get(_NAMES, ""),
        **values,  # type: ignore[arg-type]
    )


def is_option(key: str) -> bool:
    """Whether a session can have an option of this name.

    >>> is_option("claim"), is_option("provider.cpu.threads"), is_option("colour")
    (True, True, False)
    """
    return key in _READERS or key.startswith(("provider.", "arena."))


def _read_budget(text: str) -> int | None:
    """The limit of ONNX Runtime's entry about resources, which is in kilobytes, and may have a file of statistics.

    >>> _read_budget("300,"), _read_budget(","), _read_budget("")
    (307200, -1, None)
    """
    limit, _, statistics = (part.strip() for part in text.partition(","))
    if statistics:
        raise UsageError(
            "costs are taken from the model, and no file of statistics is read",
            where=f"option {_BUDGET}",
            got=statistics,
            fix="leave the file out: <kilobytes>,",
        )
    if limit and not limit.isdigit():
        raise UsageError("not a number of kilobytes", where=f"option {_BUDGET}", expected="<kilobytes>,", got=limit)
    return int(limit) * 1024 if limit else AVAILABLE if text else None


def _choice(allowed: tuple[str, ...], key: str, value: str) -> str:
    if value not in allowed:
        raise UsageError("not a choice", where=f"option {PREFIX}{key}", expected=" or ".join(allowed), got=value)
    return value


def _switch(key: str, value: str) -> bool:
    if value.lower() not in _SWITCHES:
        raise UsageError("not a switch", where=f"option {PREFIX}{key}", expected="0 or 1", got=value)
    return _SWITCHES[value.lower()]


def _names(key: str, value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if value.strip() and not names:
        raise UsageError(
            "no names", where=f"option {PREFIX}{key}", expected="names, with commas between them", got=value
        )
    return names


def _text(_key: str, value: str) -> str:
    return value


def _count(key: str, value: str) -> int:
    if not value.isdigit():
        raise UsageError("not a number", where=f"option {PREFIX}{key}", expected="0 or more", got=value)
    return int(value)


def _warm_up_runs(key: str, value: str) -> int:
    number = _count(key, value)
    if number > MAX_WARM_UP_RUNS:
        expected = f"0 to {MAX_WARM_UP_RUNS}: ONNX Runtime makes no more runs within one"
        raise UsageError("too many", where=f"option {PREFIX}{key}", expected=expected, got=value)
    return number


_READERS = {
    "claim": lambda key, value: _choice(_CLAIMS, key, value),
    "route": lambda key, value: _choice(_ROUTES, key, value),
    "providers": _names,
    "override": _names,
    "exclude": _names,
    "prefer_nhwc": _switch,
    "graph_capture": _switch,
    "capture_after_runs": _warm_up_runs,
    "backend": _text,
}
