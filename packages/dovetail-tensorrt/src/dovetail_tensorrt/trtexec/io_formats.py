"""Types and formats of inputs and outputs: ``--inputIOFormats`` and ``--outputIOFormats``.

Each is a list of ``type:format``, one for all tensors or one for each of them in their order; several formats are
joined by ``+``, and the build takes one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import dovetail
from dovetail import DataType, TensorFormat
from dovetail.errors import UsageError
from dovetail_tensorrt.trtexec.words import Options

__all__ = ["asks_io_formats", "set_io_formats"]

_TYPES: Final = {
    "fp32": DataType.FLOAT,
    "fp16": DataType.HALF,
    "bf16": DataType.BF16,
    "int8": DataType.INT8,
    "int32": DataType.INT32,
    "int64": DataType.INT64,
    "uint8": DataType.UINT8,
    "bool": DataType.BOOL,
}
_FORMATS: Final = {
    "chw": TensorFormat.LINEAR,
    "chw2": TensorFormat.CHW2,
    "chw4": TensorFormat.CHW4,
    "chw16": TensorFormat.CHW16,
    "chw32": TensorFormat.CHW32,
    "cdhw32": TensorFormat.CDHW32,
    "hwc": TensorFormat.HWC,
    "hwc8": TensorFormat.HWC8,
    "hwc16": TensorFormat.HWC16,
    "dhwc": TensorFormat.DHWC,
    "dhwc8": TensorFormat.DHWC8,
    "dla_linear": TensorFormat.DLA_LINEAR,
    "dla_hwc4": TensorFormat.DLA_HWC4,
}
_INPUTS: Final = "inputIOFormats"
_OUTPUTS: Final = "outputIOFormats"


def asks_io_formats(options: Options) -> bool:
    """Whether a flag sets a type or a format."""
    return options.has(_INPUTS) or options.has(_OUTPUTS)


def set_io_formats(network: dovetail.Network, options: Options) -> None:
    """Give the inputs and outputs of a network what the flags say."""
    for flag, count, get in (
        (_INPUTS, network.num_inputs, network.get_input),
        (_OUTPUTS, network.num_outputs, network.get_output),
    ):
        if options.has(flag):
            tensors = [get(index) for index in range(count)]
            for tensor, word in zip(tensors, _one_each(options.get(flag), tensors, flag), strict=True):
                tensor.dtype, tensor.allowed_formats = _read(word, flag)


def _one_each(words: Sequence[str], tensors: Sequence[Any], flag: str) -> Sequence[str]:
    if len(words) == 1:
        return list(words) * len(tensors)
    if len(words) != len(tensors):
        raise UsageError(
            "the number of types and formats is not that of the tensors",
            where=f"--{flag}",
            expected=f"one for all, or one for each of {', '.join(tensor.name for tensor in tensors)}",
            got=len(words),
        )
    return words


def _read(word: str, flag: str) -> tuple[DataType, int]:
    """The type, and the mask of formats.

    >>> _read("fp16:chw+hwc8", "inputIOFormats")
    (<DataType.HALF: 1>, 5)
    """
    kind, colon, formats = word.partition(":")
    if not colon:
        raise UsageError("a type and a format are needed", where=f"--{flag}", expected="such as fp16:chw", got=word)
    mask = 0
    for each in formats.split("+"):
        mask |= 1 << _choose(each, _FORMATS, flag)
    return _choose(kind, _TYPES, flag), mask


def _choose(text: str, known: Mapping[str, Any], flag: str) -> Any:
    if text not in known:
        raise UsageError("there is no such type or format", where=f"--{flag}", expected=", ".join(known), got=text)
    return known[text]
