"""Runs that a graph was captured of: each launch has the shapes and addresses of the capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dovetail

__all__ = ["keep_bindings"]


@dataclass(frozen=True, kw_only=True)
class _Bindings:
    shapes: dict[str, tuple[int, ...]]
    addresses: dict[str, int]


def keep_bindings(
    context: dovetail.ExecutionContext, names: Sequence[str], run: Callable[[], bool]
) -> Callable[[], bool]:
    """The run as it is bound now, whatever is bound when it is called."""
    kept = _read(context, names)

    def run_as_kept() -> bool:
        now = _read(context, names)
        if now == kept:
            return run()
        _write(context, kept)
        try:
            return run()
        finally:
            _write(context, now)

    return run_as_kept


def _read(context: dovetail.ExecutionContext, names: Sequence[str]) -> _Bindings:
    mode = context.engine.get_tensor_mode
    inputs = [name for name in names if mode(name) is dovetail.TensorIOMode.INPUT]
    shapes = {name: tuple(context.get_tensor_shape(name)) for name in inputs}
    return _Bindings(
        shapes={name: shape for name, shape in shapes.items() if min(shape, default=0) >= 0},
        addresses={name: context.get_tensor_address(name) for name in names},
    )


def _write(context: dovetail.ExecutionContext, bindings: _Bindings) -> None:
    for name, shape in bindings.shapes.items():
        context.set_input_shape(name, shape)
    for name, address in bindings.addresses.items():
        context.set_tensor_address(name, address)
