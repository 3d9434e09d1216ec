"""Builds that fail or are cancelled: the message, and which plugin objects are destroyed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import onnx

import dovetail as dt
from replay.cpu_models import Run
from replay.cpu_plugins import make_plugin_chain, mark_outputs
from replay.recorder import BuildRecorder

__all__ = ["ERROR_CASES"]

ERROR_CASES: dict[str, Run] = {}
_METHODS = (
    "get_output_shapes",
    "supports_format_combination",
    "configure_plugin",
    "get_valid_tactics",
    "set_tactic",
    "get_workspace_size",
    "enqueue",
    "attach_to_context",
    "get_fields_to_serialize",
    "on_shape_change",
    "clone",
    "destroy",
)


def _case(run: Run) -> Run:
    ERROR_CASES[run.__name__.lstrip("_")] = run
    return run


def _make_raising(method: str) -> Callable[..., Any]:
    def raising(self: Any, *arguments: Any) -> Any:
        self.note("raises", method)
        raise RuntimeError(method)

    return raising


def _build_raising(method: str, r: BuildRecorder) -> None:
    network = r.create_network()
    tensor = network.add_input("x", dt.float32, (2, 3))
    for _ in range(2):
        tensor = network.add_plugin_v3([tensor], [], r.make_plugin()).get_output(0)
    stored = network.get_layer(1).plugin
    # The clone of the network shares its class with other cases, so it gets a class of its own.
    stored.__class__ = type("Broken", (type(stored),), {method: _make_raising(method)})
    r.build(mark_outputs(network, tensor))


for _method in _METHODS:
    ERROR_CASES[f"error_{_method}"] = partial(_build_raising, _method)


@_case
def _error_no_format(r: BuildRecorder) -> None:
    network = r.create_network()
    x = network.add_input("x", dt.float32, (2, 3))
    layer = network.add_plugin_v3([x], [], r.make_plugin(types=(dt.int8,)))
    r.build(mark_outputs(network, layer.get_output(0)))


@_case
def _error_no_profile(r: BuildRecorder) -> None:
    r.build(make_plugin_chain(r, (-1, 3, 4, 4)))


@_case
def _error_profile_of_unknown_input(r: BuildRecorder) -> None:
    r.add_profile(z=((1, 3), (2, 3), (3, 3)))
    r.build(make_plugin_chain(r, (-1, 3, 4, 4)))


@_case
def _error_strict(r: BuildRecorder) -> None:
    r.config.strict = True
    r.build(make_plugin_chain(r, (-1, 3, -1, 4)), is_open=True)


@_case
def _error_timing_cache_miss(r: BuildRecorder) -> None:
    r.config.set_flag(dt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    r.build(make_plugin_chain(r))


@_case
def _error_io_memory(r: BuildRecorder) -> None:
    r.config.io_memory = {"x": "nowhere"}
    r.build(make_plugin_chain(r))


@_case
def _error_provider_option(r: BuildRecorder) -> None:
    r.config.provider_options = {"cpu": {"colour": "red"}}
    r.build(make_plugin_chain(r))


@_case
def _error_unknown_op(r: BuildRecorder) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20, "other" : 1]> g (float[2] x) => (float[2] y) { y = other.Unknown(x) }'
    )
    r.build_model(onnx.parser.parse_model(text))


def _build_cancelled(num_steps: int, r: BuildRecorder) -> None:
    r.monitor.num_steps_left = num_steps
    r.add_profile(x=((1, 3, 4, 4), (2, 3, 4, 4), (8, 3, 4, 4)))
    r.add_profile(x=((9, 3, 4, 4), (16, 3, 4, 4), (32, 3, 4, 4)))
    r.build(make_plugin_chain(r, (-1, 3, 4, 4)))


for _num_steps in range(1, 17):
    ERROR_CASES[f"cancel_{_num_steps:02}"] = partial(_build_cancelled, _num_steps)
