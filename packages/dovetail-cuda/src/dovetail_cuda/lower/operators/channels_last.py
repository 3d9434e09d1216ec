"""Operators of com.ms.internal.nhwc: images come and go with their channels last, all else is as in ONNX.

``ALLOWED`` is the one list of them. Each is made of the operator of ONNX, which sees its image through a view with the
channels first, and whose result is stored through another: nothing is moved in memory for either.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dovetail_cuda.lower.images import NHWC_DOMAIN, turn_first
from dovetail_cuda.lower.indexing import transpose_to
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, Tensor
from dovetail_cuda.lower.types import FLOATS, TYPES

if TYPE_CHECKING:
    from dovetail.provider.interfaces import Kernel

__all__ = ["ALLOWED", "register_channels_last"]

_NARROW: Final = ("float16", "float32", "float64")
ALLOWED: Final[Mapping[str, Sequence[str]]] = {
    "AveragePool": _NARROW,
    "BatchNormalization": FLOATS,
    "Conv": _NARROW,
    "ConvTranspose": _NARROW,
    "DepthToSpace": TYPES,
    "GlobalAveragePool": _NARROW,
    "GlobalMaxPool": _NARROW,
    "GridSample": _NARROW,
    "InstanceNormalization": _NARROW,
    "LRN": FLOATS,
    "LpPool": _NARROW,
    "MaxPool": _NARROW,
    "SpaceToDepth": TYPES,
}
"""The operators that are rewritten, with the types that they have in that domain."""
_LACKING: Final = {"SpaceToDepth": {"mode"}}
"""Attributes that they do not have there."""


def register_channels_last() -> None:
    """Register the operators of the list, once those of ONNX are registered."""
    for kernel in [kernel for kernel in registry if kernel.op in ALLOWED and not kernel.domain]:
        _register(kernel)


def _register(kernel: Kernel) -> None:
    """Register an operator of ONNX once more, for images with their channels last."""

    @functools.wraps(kernel.function)
    def lower(x: Tensor, *others: Any, **attributes: Any) -> Any:
        made = kernel.function(turn_first(x), *others, **attributes)
        return (_turn_last(made[0]), *made[1:]) if isinstance(made, tuple) else _turn_last(made)

    signature = inspect.signature(kernel.function)
    kept = [each for each in signature.parameters.values() if each.name not in _LACKING.get(kernel.op, ())]
    lower.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    types = {name: [each for each in types if each in ALLOWED[kernel.op]] for name, types in kernel.types.items()}
    registry.register(kernel.op, domain=NHWC_DOMAIN, since=kernel.since, until=kernel.until, types=types)(lower)


def _turn_last(made: Lowered) -> Lowered:
    """A result with its channels last."""
    rank = len(made.shape)
    order = (0, *range(2, rank), 1)
    if isinstance(made, Tensor):
        return transpose_to(made, order)
    finish, spread = made.finish, made.spread

    def spread_last(at: Sequence[Any]) -> Sequence[Any]:
        own = spread(at)
        return [own[axis] for axis in order]

    return replace(made, finish=lambda result: transpose_to(finish(result), order), spread=spread_last)
