"""Operators on images in the layout that channels end: convolutions, pools and others of com.ms.internal.nhwc.

Each is the op of ONNX around which the layout rewrite left out two transposes, so each is made from that kernel: images
come and go with their channels last, filters and vectors are as in ONNX. An op may also carry the activation of its
result. Indices of MaxPool keep the numbering of channels-first memory, because what consumes them was not rewritten.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._channels import channels_first, channels_last
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._fused import activate, parameter_names
from dovetail.providers.cpu.kernels.onnx.convolution import conv, conv_transpose
from dovetail.providers.cpu.kernels.onnx.gridsample import grid_sample, grid_sample_16
from dovetail.providers.cpu.kernels.onnx.normalization import (
    normalize_batch,
    normalize_batch_by_outputs,
    normalize_local_response,
)
from dovetail.providers.cpu.kernels.onnx.pooling import (
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from dovetail.providers.cpu.kernels.onnx.shaping import depth_to_space, space_to_depth
from dovetail.providers.cpu.registry import kernel

__all__ = ["DOMAIN"]

DOMAIN: Final = "com.ms.internal.nhwc"
_FLOATS: Final = ("float32", "float64", "float16")
_ACTIVATIONS: Final = frozenset(("Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"))
_Function = Callable[..., Any]


def _add(
    op: str,
    function: _Function,
    *,
    since: int,
    until: int | None = None,
    types: Mapping[str, Sequence[str]],
    images: int = 1,
    activates: bool = True,
) -> None:
    """Register the kernel of an op whose first outputs, as many as ``images``, are images."""

    @functools.wraps(function)
    def run(
        x: Array,
        *others: Array | None,
        activation: str | None = None,
        activation_params: Sequence[float] | None = None,
        **attributes: Any,
    ) -> Any:
        result = function(channels_first(op, x), *others, **attributes)
        outputs = result if isinstance(result, tuple) else (result,)
        moved = (*(channels_last(np.asarray(y)) for y in outputs[:images]), *outputs[images:])
        if activation is not None:
            moved = (_activate(op, moved[0], activation, activation_params), *moved[1:])
        return moved if isinstance(result, tuple) else moved[0]

    if activates:
        _add_parameters(run, function)
    # The function within widens narrow floats by itself; what wraps() copied of it must not be called in our place.
    run.__dict__.pop("plain", None)
    kernel(op, domain=DOMAIN, since=since, until=until, types=types)(run)


def _add_parameters(run: _Function, function: _Function) -> None:
    """Say in the signature, which is what the registry reads, that the op also takes an activation."""
    signature = inspect.signature(function)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in ("activation", "activation_params")
    ]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *extra]
    )


def _activate(op: str, y: Array, activation: str, values: Sequence[float] | None) -> Array:
    names = parameter_names(op, activation, _ACTIVATIONS)
    given = list(values or ())
    require(len(given) == len(names), op, "'activation_params' has the wrong length", expected=len(names), got=given)
    return activate(op, y, activation, dict(zip(names, given, strict=True)))


def _gather_blocks(x: Array, *, blocksize: int) -> Array:
    """SpaceToDepth as ONNX Runtime has it in this domain, where it has no modes."""
    return space_to_depth(x, blocksize=blocksize)


_add("Conv", conv, since=1, types={"T": _FLOATS})
_add("ConvTranspose", conv_transpose, since=1, types={"T": _FLOATS})
_add("BatchNormalization", normalize_batch_by_outputs, since=9, until=13, types={"T": _FLOATS})
_add("BatchNormalization", normalize_batch, since=14, until=14, types={"T": FLOATS, "U": FLOATS})
_add("BatchNormalization", normalize_batch, since=15, types={"T": FLOATS, "T1": FLOATS, "T2": FLOATS})
_add("MaxPool", max_pool, since=1, until=11, types={"T": _FLOATS}, images=2)
_add("MaxPool", max_pool, since=12, types={"T": (*_FLOATS, "int8", "uint8")}, images=2)
_add("AveragePool", average_pool, since=7, types={"T": _FLOATS})
_add("LpPool", lp_pool, since=11, types={"T": _FLOATS}, activates=False)
_add("GlobalAveragePool", global_average_pool, since=1, types={"T": _FLOATS}, activates=False)
_add("GlobalMaxPool", global_max_pool, since=1, types={"T": _FLOATS}, activates=False)
_add("GlobalLpPool", global_lp_pool, since=2, types={"T": _FLOATS}, activates=False)
_add("LRN", normalize_local_response, since=1, types={"T": FLOATS}, activates=False)
_add("DepthToSpace", depth_to_space, since=1, types={}, activates=False)
_add("SpaceToDepth", _gather_blocks, since=1, types={}, activates=False)
_add("GridSample", grid_sample_16, since=16, until=19, types={}, activates=False)
_add("GridSample", grid_sample, since=20, types={}, activates=False)
