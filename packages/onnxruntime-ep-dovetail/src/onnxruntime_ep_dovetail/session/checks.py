"""Options that are right by themselves and cannot be meant so: for a back end, provider or plugin that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from dovetail import UsageError, get_plugin_registry
from dovetail.near_names import suggest
from dovetail.network.onnx_schema import find_schema
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.shared import get_device
from onnxruntime_ep_dovetail.session.options import PREFIX, EpOptions

__all__ = ["check_options", "describe_idle_options", "find_unknown_operators"]

_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
_NEWEST = 2**31 - 1


def check_options(options: EpOptions, backend: Backend) -> None:
    """Refuse what nothing in the session can follow.

    Raises:
        UsageError: It says which option, and what there is.
    """
    if options.arena:
        if not backend.has_device_memory:
            raise UsageError(
                f"back end '{backend.name}' takes memory of the host, of which this session has no arena",
                where=f"option {PREFIX}{min(options.arena)}",
                fix="leave it out, or give the session a device",
            )
        get_device(backend.name).read_arena(options.arena)
    used = backend.provider_names(options)
    for name in options.provider_options:
        if name not in used:
            raise UsageError(
                f"the session does not use provider '{name}'",
                where=f"option {PREFIX}provider.{name}",
                expected=" or ".join(used),
                fix=f"name it in {PREFIX}providers, or leave the option out",
            )
    _check_plugins(options.override)


def _check_plugins(names: Iterable[str]) -> None:
    known = {key.name for key in get_plugin_registry().creator_keys}
    for name in names:
        if name not in known:
            raise UsageError(
                f"no plugin '{name}' is registered",
                where=f"option {PREFIX}override",
                fix=suggest(name, known) or "register it before the session is made",
            )


def describe_idle_options(options: EpOptions) -> Iterator[str]:
    """What the session was told that changes nothing."""
    if options.capture_after_runs != EpOptions().capture_after_runs and not options.graph_capture:
        yield f"option {PREFIX}capture_after_runs changes nothing without graph_capture=1"


def find_unknown_operators(options: EpOptions, graph: ir.Graph) -> Iterator[str]:
    """Names of excluded operators that neither the model has nor anybody knows."""
    here = {node.op_type for node in graph.all_nodes()}
    plugins = {key.name for key in get_plugin_registry().creator_keys}
    for name in options.exclude:
        is_known = any(find_schema(name, domain, _NEWEST) is not None for domain in _DOMAINS)
        if name not in here | plugins and not is_known:
            hint = suggest(name, here)
            yield f"option {PREFIX}exclude: there is no operator '{name}'" + (f"; {hint}" if hint else "")
