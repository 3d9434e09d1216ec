"""Inputs in JSON: an object of values by name, a list of such objects, or a request of the Open Inference Protocol.

``{"x": [[1, 2]], "rate": 16000}`` is one sample and a list of these are several. A request has ``inputs`` with
``name``, ``shape``, ``datatype`` and ``data``, as servers take it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.decoding import decode
from dovetail.errors import InputError, UsageError
from dovetail.files import read_bytes
from dovetail.inputs.element_values import convert_value
from dovetail.inputs.specs import InputSpec
from dovetail.near_names import name_known, suggest

__all__ = ["parse_literal", "read_json_samples", "read_json_value"]

_MOST_BYTES: Final = 64 << 20
_DECODER: Final = msgspec.json.Decoder()
_FORM: Final = '{"name": value}, a list of these, or {"inputs": [{"name", "shape", "datatype", "data"}]}'


def parse_literal(text: str) -> Any:
    """The value that JSON of a command line has; None where it is no JSON."""
    try:
        return _DECODER.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def read_json_value(path: Path, spec: InputSpec) -> Any:
    """The value of one input from a file.

    Raises:
        InputError: The file cannot be read, or does not fit.
    """
    where = f"'{path}', for {spec.where}"
    return convert_value(_read(path, where), spec, where=where)


def read_json_samples(path: Path, specs: Sequence[InputSpec]) -> list[dict[str, Any]]:
    """The samples of a file, each with values by name.

    Raises:
        UsageError: The file names something that is no input.
        InputError: The file cannot be read, or does not fit.
    """
    where = f"'{path}'"
    content = _read(path, where)
    several = content if isinstance(content, list) else [content]
    if not several or not all(isinstance(each, Mapping) for each in several):
        raise InputError("this holds no values by name", where=where, expected=_FORM)
    return [_read_sample(each, specs, where) for each in several]


def _read(path: Path, where: str) -> Any:
    try:
        content = read_bytes(path, _MOST_BYTES, follow=True)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error
    if len(content) > _MOST_BYTES:
        fix = "store large arrays as .npy or .npz"
        raise InputError("the file is too large", where=where, expected=f"at most {_MOST_BYTES} bytes", fix=fix)
    return decode(_DECODER, content, lambda reason: InputError(f"this is no JSON: {reason}", where=where))


def _read_sample(content: Mapping[str, Any], specs: Sequence[InputSpec], where: str) -> dict[str, Any]:
    known = {spec.name: spec for spec in specs}
    if "inputs" not in known and isinstance(content.get("inputs"), list):
        return dict(_read_tensor(tensor, known, where) for tensor in content["inputs"])
    return {
        name: convert_value(value, _find(name, known, where), where=f"{where}, input '{name}'")
        for name, value in content.items()
    }


def _read_tensor(tensor: Any, known: Mapping[str, InputSpec], where: str) -> tuple[str, Any]:
    """One tensor of a request: its data, flat or nested, in the shape it names."""
    if not isinstance(tensor, Mapping) or not isinstance(tensor.get("name"), str) or "data" not in tensor:
        raise InputError("this is no tensor of a request", where=where, expected=_FORM, got=repr(tensor)[:60])
    name = tensor["name"]
    spec = _find(name, known, where)
    array = convert_value(tensor["data"], spec, where=f"{where}, input '{name}'")
    shape = tensor.get("shape", list(array.shape))
    is_shape = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
    if not is_shape or math.prod(shape) != array.size:
        expected = f"a shape of {array.size} elements"
        raise InputError("shape and data do not fit", where=f"{where}, input '{name}'", expected=expected, got=shape)
    return name, array.reshape(shape)


def _find(name: str, known: Mapping[str, InputSpec], where: str) -> InputSpec:
    if name not in known:
        expected = name_known(known, nothing="no inputs at all")
        raise UsageError(f"{name!r} is no input", where=where, expected=expected, fix=suggest(name, known))
    return known[name]
