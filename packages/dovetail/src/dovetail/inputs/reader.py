"""The reader: texts in, samples out, complete with what nobody gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail._unset_dims import UnsetDim
from dovetail.errors import InputError
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.image_options import ImageOptions
from dovetail.inputs.raw_files import RawFile
from dovetail.inputs.sizes import find_unset, learn_sizes
from dovetail.inputs.sources import InputSources, find_sources
from dovetail.inputs.specs import InputSpec

__all__ = ["InputReader", "InputSample", "open_inputs"]


class InputSample(NamedTuple):
    """One run's worth of inputs."""

    name: str
    """What its file is called, or its number; empty where there is one sample."""
    given: dict[str, Any]
    """What somebody gave; values that need a shape first are ``MadeValue`` objects."""


class InputReader:
    """Samples for the inputs of a model; iterating gives complete ones, as mappings from name to value.

    Args:
        specs: The inputs.
        sources: Where values come from.
        shapes: Shapes by name, for what is made up.
        seed: Decides the random numbers.
    """

    def __init__(
        self, specs: Sequence[InputSpec], sources: InputSources, shapes: Mapping[str, Sequence[int]], seed: int
    ) -> None:
        self.specs = list(specs)
        self._sources = sources
        self._shapes = dict(shapes)
        self._seed = seed

    @property
    def is_single(self) -> bool:
        """Whether there is one sample, and not several."""
        return self._sources.is_single

    @property
    def count(self) -> int | None:
        """How many samples there are; None where only the data loader knows."""
        return self._sources.count()

    @property
    def skipped(self) -> Sequence[str]:
        """Files of folders that are no kind of input."""
        return tuple(self._sources.skipped)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each sample in turn, with a value for every input."""
        for sample in self.samples():
            yield self.complete(sample)

    def samples(self) -> Iterator[InputSample]:
        """Each sample in turn, with what was given.

        Raises:
            InputError: A file cannot be read, or there is no sample at all.
        """
        is_empty = True
        for name, values in self._sources.samples():
            is_empty = False
            yield InputSample(name, self._read_raw(values))
        if is_empty:
            raise InputError("the data loader yields no samples", where=self._sources.option)

    def first(self) -> InputSample:
        """The first sample."""
        return next(self.samples())

    def complete(self, sample: InputSample) -> dict[str, Any]:
        """A value for every input, in order; the same seed gives the same values."""
        return make_feeds(self.specs, given=sample.given, shapes=self._shapes, seed=self._seed)

    def find_unset(self, sample: InputSample) -> list[UnsetDim]:
        """The sizes that have to be made up for a sample."""
        return find_unset(self.specs, given=sample.given, shapes=self._shapes)

    def _read_raw(self, values: dict[str, Any]) -> dict[str, Any]:
        """Read files whose shape the other values and the model decide."""
        if not any(isinstance(value, RawFile) for value in values.values()):
            return values
        sizes = learn_sizes(self.specs, values, self._shapes)
        read = dict(values)
        for spec in self.specs:
            value = values.get(spec.name)
            if isinstance(value, RawFile):
                shape = self._shapes.get(spec.name)
                read[spec.name] = value.read(spec, sizes.known_dims(spec) if shape is None else shape)
                sizes.learn(spec, read[spec.name].shape)
        return read


def open_inputs(
    texts: Iterable[str],
    specs: Sequence[InputSpec],
    *,
    images: Mapping[str, ImageOptions] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    option: str = "--inputs",
) -> InputReader:
    """A reader of what texts name, as they are written after ``--inputs``.

    >>> from dovetail.expr import Constant
    >>> spec = InputSpec(name="x", dtype="float32", dims=[Constant(3)])
    >>> [feeds["x"].tolist() for feeds in open_inputs(["x=[1,2,3]"], [spec])]
    [[1.0, 2.0, 3.0]]

    Args:
        texts: ``NAME=VALUE``, ``NAME:WHAT``, files, folders, or a data loader.
        specs: The inputs.
        images: How images become inputs, by name.
        shapes: Shapes by name, for what is made up and for raw bytes.
        seed: Decides the random numbers.
        option: What the texts were written after, for messages.

    Raises:
        UsageError: A text names no input, or an input has two values.
        InputError: A file cannot be read.
    """
    return InputReader(specs, find_sources(texts, specs, images, option), shapes or {}, seed)
