"""The decorators: ``register`` a plugin by its shape function, then say how it runs and what may be tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dovetail_tensorrt.trt.plugin.creator import ensure_registered
from dovetail_tensorrt.trt.plugin.definitions import definitions

__all__ = ["aot_impl", "autotune", "impl", "register"]

Function = TypeVar("Function", bound=Callable[..., Any])


def register(plugin_id: str, lazy_register: bool = False) -> Callable[[Function], Function]:
    """Define a plugin by the function that gives its outputs: ``(TensorDesc..., attributes...) -> TensorDesc(s)``.

    Args:
        plugin_id: ``namespace::name``.
        lazy_register: Whether the plugin registry hears of it only when the plugin is first called; an ONNX model
            finds it only then.
    """

    def decorate(function: Function) -> Function:
        made = definitions.define(plugin_id, function)
        if not lazy_register:
            try:
                ensure_registered(made)
            except BaseException:
                definitions.forget(plugin_id)
                raise
        return function

    return decorate


def impl(plugin_id: str) -> Callable[[Function], Function]:
    """Say how a plugin runs: ``(Tensor..., some attributes, outputs, stream[, tactic])``, called in every run.

    The attributes that it takes are the ones that plans store.
    """
    return _complete(plugin_id, "impl")


def aot_impl(plugin_id: str) -> Callable[[Function], Function]:
    """Give the kernel of a plugin: its name, its PTX or cubin, how it is launched, and extra arguments.

    The function runs while a plan is built. The plan holds the kernel, and runs without this code.
    """
    return _complete(plugin_id, "aot_impl")


def autotune(plugin_id: str) -> Callable[[Function], Function]:
    """Give the types, layouts and tactics that may be tried: ``(TensorDesc..., some attributes, outputs)``."""
    return _complete(plugin_id, "autotune")


def _complete(plugin_id: str, kind: str) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        definitions.complete(plugin_id, kind, function)
        return function

    return decorate
