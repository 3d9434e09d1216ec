"""Inputs from the user's own code: a function of a Python file that yields a mapping of arrays for each sample.

``loader.py:load_data`` names the file and the function, ``loader.py`` alone a function ``load_data``. The file is
imported, so its code runs with the rights of the user.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dovetail.decoding import first_line
from dovetail.errors import DovetailError, InputError, UsageError
from dovetail.inputs.specs import InputSpec
from dovetail.near_names import name_known, suggest

__all__ = ["LoaderFunction", "split_loader"]

_DEFAULT: Final = "load_data"
_FORM: Final = "a function without arguments that yields a mapping of arrays by name, one for each sample"


def split_loader(text: str) -> tuple[Path, str] | None:
    """The file and the function that a text names; None where it names no Python file.

    >>> split_loader("data/loader.py:load_data")[1], split_loader("x.npy")
    ('load_data', None)
    """
    path, colon, function = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        path, function = text, _DEFAULT
    return (Path(path), function) if path.endswith(".py") else None


class LoaderFunction:
    """A function that yields samples; each iteration calls it anew.

    Raises:
        UsageError: There is no such file or function.
        InputError: The file cannot be imported.
    """

    def __init__(self, path: Path, function: str, specs: Sequence[InputSpec]) -> None:
        self._where = f"'{path}:{function}'"
        self._specs = {spec.name: spec for spec in specs}
        self._function = _find_function(path, function, self._where)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each sample in turn."""
        for index, sample in enumerate(self._call()):
            where = f"{self._where}, sample {index}"
            if not isinstance(sample, Mapping):
                raise InputError("this is no sample", where=where, expected=_FORM, got=type(sample).__name__)
            yield {name: self._check(name, value, where) for name, value in sample.items()}

    def _call(self) -> Iterator[Any]:
        try:
            found = self._function()
            if isinstance(found, Mapping) or not isinstance(found, Iterable):
                raise InputError("this yields no samples", where=self._where, expected=_FORM, got=type(found).__name__)
            yield from found
        except DovetailError:
            raise
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise InputError(f"it raised {_describe(error)}", where=self._where) from error

    def _check(self, name: Any, value: Any, where: str) -> Any:
        spec = self._specs.get(name) if isinstance(name, str) else None
        if spec is None:
            expected = name_known(self._specs, nothing="no inputs at all")
            fix = suggest(str(name), self._specs)
            raise InputError(f"{name!r} is no input", where=where, expected=expected, fix=fix)
        if not spec.is_tensor:
            return value
        array = np.asarray(value)
        if array.dtype.kind == "O" and spec.dtype != "object":
            got = f"{type(value).__name__} of Python objects"
            raise InputError("this is no array", where=f"{where}, {spec.where}", expected=spec.dtype, got=got)
        return array


def _find_function(path: Path, name: str, where: str) -> Callable[[], Any]:
    if not path.is_file():
        raise UsageError("there is no such file", where=where, expected="a Python file with a data loader")
    spec = importlib.util.spec_from_file_location(f"_dovetail_loader_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError("this cannot be imported", where=where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # what its dataclasses and annotations look themselves up in
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # a loader may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise InputError(f"importing it raised {_describe(error)}", where=where) from error
    finally:
        sys.path.remove(folder)
    function: Callable[[], Any] | None = vars(module).get(name)
    if not callable(function):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        fix = suggest(name, known)
        raise UsageError(f"there is no function '{name}' in it", where=where, expected=_FORM, fix=fix)
    return function


def _describe(error: BaseException) -> str:
    """The exception, and the line of the user's code that it came from."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f" (line {frames[-1].lineno} of '{frames[-1].filename}')" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{place}"
