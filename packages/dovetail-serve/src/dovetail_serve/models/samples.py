"""What a model runs on before it takes requests: arrays of files, or made up for shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dovetail import Engine
from dovetail.files import open_regular
from dovetail_serve.models.ports import ModelPorts, Port
from dovetail_serve.repository.problems import ModelConfigError
from dovetail_serve.repository.settings import WarmUpSample

__all__ = ["guess_shapes", "make_sample", "read_sample"]

Array = Any
_SEED: Final = 0
_MOST_BYTES: Final = 1 << 30


def guess_shapes(engine: Engine, ports: ModelPorts) -> dict[str, tuple[int, ...]] | None:
    """A shape for each input: its fixed one, the usual one of the first profile, or 1 where a size varies.

    None where nobody can know, as for inputs whose contents are shapes.
    """
    if any(tensor.is_shape for tensor in engine.manifest.inputs) or any(port.sizes is None for port in ports.inputs):
        return None
    usual = engine.manifest.profiles[0].shapes if engine.manifest.profiles else {}
    return {
        port.name: tuple(usual[port.name][1])
        if port.name in usual
        else tuple(max(n, 1) if n else 0 for n in port.sizes)
        for port in ports.inputs
        if port.sizes is not None
    }


def make_sample(ports: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]) -> tuple[Array, ...]:
    """An array of each shape: zeros for integers, random numbers between -1 and 1, empty texts.

    Raises:
        ModelConfigError: A shape is too large to make something up for.
    """
    rng = np.random.default_rng(_SEED)
    return tuple(_make(port, shapes[port.name], rng) for port in ports)


def read_sample(sample: WarmUpSample, number: int, ports: ModelPorts, folder: Path) -> tuple[Array, ...]:
    """The arrays that a warm-up sample of the config names.

    Args:
        sample: What the config says.
        number: Which of the samples it is, for messages.
        ports: The inputs.
        folder: The folder of the model, which its files are in.

    Raises:
        ModelConfigError: An input is missing or unknown, or a file cannot be read.
    """
    where = f"config.toml, 'warmup[{number}]'"
    names = [port.name for port in ports.inputs]
    for name in (*sample.shapes, *sample.files):
        if name not in names:
            raise ModelConfigError(f"there is no input '{name}'", where=where, expected=", ".join(names))
    rng = np.random.default_rng(_SEED)
    arrays = []
    for port in ports.inputs:
        if port.name in sample.files:
            arrays.append(_read_file(folder, sample.files[port.name], f"{where}, input '{port.name}'"))
        else:
            arrays.append(_make(port, _find_shape(port, sample, where), rng))
    return tuple(arrays)


def _find_shape(port: Port, sample: WarmUpSample, where: str) -> tuple[int, ...]:
    if port.name in sample.shapes:
        return sample.shapes[port.name]
    if port.sizes is None or -1 in port.sizes:
        fix = f"add it to shapes or files of [[warmup]], such as shapes = {{ {port.name} = [1, 3] }}"
        raise ModelConfigError(f"input '{port.name}' has no shape", where=where, got=list(port.sizes or ()), fix=fix)
    return port.sizes


def _make(port: Port, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if math.prod(shape) * port.dtype.itemsize > _MOST_BYTES:
        expected = f"at most {_MOST_BYTES} bytes"
        raise ModelConfigError("nothing is made up of this size", where=f"input '{port.name}'", expected=expected)
    if port.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    if port.dtype.kind in "iub":
        return np.zeros(shape, port.dtype)
    return rng.uniform(-1.0, 1.0, shape).astype(np.float32).astype(port.dtype)


def _read_file(folder: Path, name: str, where: str) -> Array:
    """An array of a .npy file; no part of its path may be a link."""
    path = folder
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise ModelConfigError(f"'{name}' is reached by a link, and links are not followed", where=where)
    try:
        with open_regular(path) as file:
            if path.stat().st_size > _MOST_BYTES:
                raise ModelConfigError(f"'{name}' is too large", where=where, expected=f"at most {_MOST_BYTES} bytes")
            return np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise ModelConfigError(f"'{name}' cannot be read: {error.strerror}", where=where) from error
    except (ValueError, EOFError, MemoryError) as error:
        raise ModelConfigError(f"'{name}' is no .npy file of numbers", where=where) from error
