"""From the words of a command line to samples: what each text names, and how several of them go together.

A text is ``NAME=VALUE``, ``NAME:WHAT`` or a file for all inputs. ``NAME`` is known, so colons in names and in paths do
no harm; a model with one input needs none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from dovetail.errors import InputError, UsageError
from dovetail.files import open_regular
from dovetail.inputs.array_files import read_array, read_arrays
from dovetail.inputs.element_values import convert_value
from dovetail.inputs.image_options import ImageOptions
from dovetail.inputs.images import IMAGE_SUFFIXES, read_image
from dovetail.inputs.json_files import parse_literal, read_json_samples, read_json_value
from dovetail.inputs.loaders import LoaderFunction, split_loader
from dovetail.inputs.made_values import Filled, parse_made_value
from dovetail.inputs.raw_files import RAW_SUFFIXES, RawFile
from dovetail.inputs.specs import InputSpec
from dovetail.near_names import name_known, suggest

__all__ = ["InputSources", "find_sources"]

Values = dict[str, Any]
ReadSample = Callable[[], Values]

_ARRAYS: Final = (".npy", ".npz")
_KINDS: Final = (*_ARRAYS, ".json", *RAW_SUFFIXES, *IMAGE_SUFFIXES)
_MOST_FILES: Final = 1_000_000


@dataclass
class InputSources:
    """What the texts of a command line give, apart from what is made up."""

    common: Values = field(default_factory=dict)
    """What every sample has."""
    files: list[Mapping[str, ReadSample]] = field(default_factory=list)
    """For each folder, or file of several samples, the samples by name."""
    loader: LoaderFunction | None = None
    skipped: list[str] = field(default_factory=list)
    """Files of folders that are no kind of input."""
    option: str = "--inputs"
    """What the texts were written after, for messages."""

    @property
    def is_single(self) -> bool:
        """Whether there is one sample, and not several or a stream of them."""
        return not self.files and self.loader is None

    def samples(self) -> Iterator[tuple[str, Values]]:
        """The samples with their names.

        Raises:
            UsageError: Sources do not go together.
            InputError: A file cannot be read.
        """
        if self.is_single:
            yield "", dict(self.common)
        elif self.loader is not None:
            for index, values in enumerate(self.loader):
                yield f"{index:06}", _merge([self.common, values], f"{self.option}, sample {index}")
        else:
            for name in self.files[0]:
                found = [read[name]() for read in self.files]
                yield name, _merge([self.common, *found], f"{self.option}, sample '{name}'")

    def count(self) -> int | None:
        """How many samples there are; None where only the loader knows."""
        return 1 if self.is_single else None if self.loader is not None else len(self.files[0])

    def check(self) -> None:
        """Refuse sources that cannot be put together."""
        if self.loader is not None and self.files:
            raise UsageError("a data loader and a folder are both several samples", expected="one of them")
        names = [set(each) for each in self.files]
        for other in names[1:]:
            missing = sorted(names[0] ^ other)
            if missing:
                what = f"folders do not have the same files: '{missing[0]}' is in one of them only"
                raise InputError(what, where=self.option, expected="files of the same names, whatever their kinds")


def find_sources(
    texts: Iterable[str],
    specs: Sequence[InputSpec],
    images: Mapping[str, ImageOptions] | None = None,
    option: str = "--inputs",
) -> InputSources:
    """What texts name.

    Args:
        texts: The words of a command line.
        specs: The inputs.
        images: How images become inputs, by name.
        option: What the texts were written after.

    Raises:
        UsageError: A text names no input, or an input has two values.
        InputError: A file cannot be read.
    """
    finder = _SourceFinder(specs, images or {}, option)
    for text in texts:
        finder.add(text)
    finder.sources.check()
    return finder.sources


class _SourceFinder:
    """Takes one text after the other."""

    def __init__(self, specs: Sequence[InputSpec], images: Mapping[str, ImageOptions], option: str) -> None:
        self.sources = InputSources(option=option)
        self._option = option
        self._specs = specs
        self._known = {spec.name: spec for spec in specs}
        self._images = images

    def add(self, text: str) -> None:
        name, mark, what = self._split(text)
        if name is not None and mark == "=":
            self._set({name: self._read_literal(self._known[name], what, text)}, text)
        elif name is not None:
            self._add_named(self._known[name], what, text)
        else:
            self._add_all(text)

    def _split(self, text: str) -> tuple[str | None, str, str]:
        """The input that a text is for, the mark after it, and the rest; the only input needs no name."""
        found = [name for name in self._known if text.startswith((f"{name}:", f"{name}="))]
        name = max(found, key=len, default=None)
        if name is not None:
            return name, text[len(name)], text[len(name) + 1 :]
        loader = split_loader(text)
        is_single = len(self._known) == 1 and loader is None and not Path(text).is_dir()
        if is_single and not text.endswith(".npz") and (Path(text).is_file() or _is_file_name(text)):
            only = next(iter(self._known))
            return None if self._has_names(text) else only, ":", text
        return None, "", text

    def _has_names(self, text: str) -> bool:
        """Whether a file has values by name, although the only input needs none."""
        if not text.endswith(".json") or not Path(text).is_file():
            return False
        with open_regular(text, follow=True) as file:
            start = file.read(4096).lstrip()
        return start.startswith(b"{") or start.removeprefix(b"[").lstrip().startswith(b"{")

    def _read_literal(self, spec: InputSpec, text: str, whole: str) -> Any:
        where = f"{self._option} {whole[:80]!r}"
        value = parse_literal(text)
        if value is None and spec.dtype == "object" and spec.is_tensor:
            value = text
        if value is None:
            fix = f"for a file write {spec.name}:{text[:80]}" if Path(text[:200]).exists() else None
            raise UsageError("this is no value", where=where, expected="a number or [1,2,3] after =", fix=fix)
        if isinstance(value, list | dict) or not spec.is_tensor:
            converted = convert_value(value, spec, where=where)
            _require_rank(converted, spec, text, where)
            return converted
        convert_value(value, spec, where=where)  # what does not fit is told with the text
        return Filled(value)

    def _add_named(self, spec: InputSpec, what: str, text: str) -> None:
        made = parse_made_value(what, spec)
        if made is not None:
            self._set({spec.name: made}, text)
        elif Path(what).is_dir():
            self._add_folder(Path(what), lambda path: {spec.name: self._read_file(path, spec)})
        else:
            self._set({spec.name: self._read_file(Path(what), spec)}, text)

    def _add_all(self, text: str) -> None:
        path, loader = Path(text), split_loader(text)
        if loader is not None:
            if self.sources.loader is not None:
                raise UsageError("there are two data loaders", where=f"{self._option} {text!r}", expected="one")
            self.sources.loader = LoaderFunction(*loader, self._specs)
        elif path.is_dir():
            self._add_folder(path, self._read_sample)
        elif text.endswith(".npz"):
            self._set(read_arrays(path, self._specs), text)
        elif text.endswith(".json"):
            self._add_json(path, text)
        else:
            expected = f"name:file, name=value for one of {name_known(self._known)}, a folder, or a .npz or .json file"
            word = text.partition("=" if "=" in text else ":")[0]
            raise UsageError(
                "this names no input",
                where=f"{self._option} {text!r}",
                expected=expected,
                fix=suggest(word, self._known) if word != text else None,
            )

    def _add_json(self, path: Path, text: str) -> None:
        samples = read_json_samples(path, self._specs)
        if len(samples) == 1:
            self._set(samples[0], text)
        else:
            names = [f"{path.stem}-{index:06}" for index in range(len(samples))]
            self.sources.files.append({name: sample.copy for name, sample in zip(names, samples, strict=True)})

    def _add_folder(self, folder: Path, read: Callable[[Path], Values]) -> None:
        paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
        known = [path for path in paths if path.suffix.lower() in _KINDS]
        if not known or len(known) > _MOST_FILES:
            expected = f"files of the kinds {', '.join(_KINDS)}"
            raise InputError("the folder has no inputs", where=f"'{folder}'", expected=expected)
        named = {name: partial(read, path) for name, path in zip(_name_files(known), known, strict=True)}
        self.sources.files.append(named)
        self.sources.skipped += [str(path) for path in paths if path.suffix.lower() not in _KINDS]

    def _read_sample(self, path: Path) -> Values:
        """One file of a folder: values by name, or the value of the only input."""
        suffix = path.suffix.lower()
        if suffix == ".npz":
            return read_arrays(path, self._specs)
        if len(self._known) == 1 and not self._has_names(str(path)):
            (spec,) = self._specs
            return {spec.name: self._read_file(path, spec)}
        if suffix == ".json":
            samples = read_json_samples(path, self._specs)
            if len(samples) == 1:
                return samples[0]
            raise InputError("a file of a folder is one sample", where=f"'{path}'", got=f"{len(samples)} samples")
        raise InputError(
            "this is one value, and the model has several inputs",
            where=f"'{path}'",
            expected=".npz or .json, with values by name",
            fix=f"name the input of the folder: {next(iter(self._known), 'NAME')}:{path.parent}",
        )

    def _read_file(self, path: Path, spec: InputSpec) -> Any:
        suffix = path.suffix.lower()
        if suffix == ".json":
            return read_json_value(path, spec)
        if suffix in RAW_SUFFIXES:
            return RawFile(path)
        if suffix in IMAGE_SUFFIXES:
            return read_image(path, spec, self._images.get(spec.name))
        return read_array(path, spec)

    def _set(self, values: Values, text: str) -> None:
        for doubled in values.keys() & self.sources.common.keys():
            raise UsageError(f"input '{doubled}' has two values", where=f"{self._option} {text!r}")
        self.sources.common |= values


def _require_rank(value: Any, spec: InputSpec, text: str, where: str) -> None:
    """Check the nesting of a list, so that the message can say how to write it."""
    missing = len(spec.dims) - value.ndim if spec.dims is not None and isinstance(value, np.ndarray) else 0
    if missing:
        nested = f"{'[' * missing}{text[:60]}{']' * missing}"
        fix = f"write {spec.name}={nested}" if missing > 0 else None
        expected = f"lists nested {len(spec.dims or ())} deep"
        raise InputError(
            "the value has another rank than the input", where=where, expected=expected, got=value.ndim, fix=fix
        )


def _name_files(paths: Sequence[Path]) -> list[str]:
    """The names of samples: without the suffix, unless two files differ in nothing else."""
    counts = Counter(path.stem for path in paths)
    return [path.stem if counts[path.stem] == 1 else path.name for path in paths]


def _is_file_name(text: str) -> bool:
    """Whether a text that names no file was meant to."""
    return ":" not in text and "=" not in text and Path(text).suffix.lower() in _KINDS


def _merge(parts: Sequence[Mapping[str, Any]], where: str) -> Values:
    merged: Values = {}
    for part in parts:
        for doubled in merged.keys() & part.keys():
            raise UsageError(f"input '{doubled}' has two values", where=where)
        merged |= part
    return merged
