"""One sample after the other through two sides: the worst difference of each output, and what is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dovetail._unset_dims import UnsetDim, tell_unset
from dovetail.errors import InputError
from dovetail.inputs.reader import InputReader
from dovetail.loggers import ILogger, Logger
from dovetail.tools.differences import TensorDifference, Tolerance, compare_values
from dovetail.tools.results.odd_elements import OddElements, find_odd_elements

__all__ = ["ComparedSamples", "RunSample", "SampleDifference", "by_feeds", "compare_samples"]

RunSample = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""The name of a sample and its inputs in, outputs by name out."""


@dataclass(frozen=True, kw_only=True)
class SampleDifference:
    """The outputs of one sample beside those of the reference."""

    name: str
    outputs: tuple[TensorDifference, ...]

    @property
    def is_close(self) -> bool:
        """Whether every output is."""
        return all(output.is_close for output in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        outputs = [output.to_dict() for output in self.outputs]
        return {"name": self.name, "is_close": self.is_close, "outputs": outputs}


@dataclass(frozen=True, kw_only=True)
class ComparedSamples:
    """What was found over all samples."""

    inputs: Mapping[str, Any]
    """Of the first sample that differs, or else of the first."""
    samples: tuple[SampleDifference, ...]
    odd: tuple[OddElements, ...] | None
    unset: tuple[UnsetDim, ...]

    def to_fields(self) -> dict[str, Any]:
        """The fields of a result of a comparison."""
        return {
            "inputs": self.inputs,
            "outputs": _find_worst(self.samples),
            "samples": self.samples if len(self.samples) > 1 else (),
            "odd": self.odd,
            "unset": self.unset,
        }


def by_feeds(run: Callable[[Mapping[str, Any]], dict[str, Any]]) -> RunSample:
    """A side to which the name of a sample means nothing."""
    return lambda _, feeds: run(feeds)


def compare_samples(
    candidate: RunSample,
    reference: RunSample,
    reader: InputReader,
    *,
    tolerance: Tolerance,
    logger: ILogger | None = None,
    strict: bool = False,
    validate: bool = False,
) -> ComparedSamples:
    """Run both sides on every sample.

    Raises:
        InputError: The sides have other outputs, or nobody set a size and the comparison is strict.
    """
    found: list[SampleDifference] = []
    odd: list[OddElements] = []
    unset: list[UnsetDim] = []
    shown: Mapping[str, Any] = {}
    for sample in reader.samples():
        sizes = reader.find_unset(sample)
        tell_unset(sizes, logger or Logger(), strict=strict)
        feeds = reader.complete(sample)
        ours, theirs = candidate(sample.name, feeds), reference(sample.name, feeds)
        _require_same_outputs(ours, theirs)
        outputs = tuple(compare_values(name, ours[name], theirs[name], tolerance) for name in theirs)
        difference = SampleDifference(name=sample.name, outputs=outputs)
        if not found or (not difference.is_close and all(each.is_close for each in found)):
            shown, unset = feeds, sizes
        found.append(difference)
        odd += [replace(each, sample=sample.name) for each in find_odd_elements(ours)] if validate else []
    return ComparedSamples(inputs=shown, samples=tuple(found), odd=tuple(odd) if validate else None, unset=tuple(unset))


def _require_same_outputs(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    if not set(theirs) <= set(ours) or not theirs:
        expected, got = ", ".join(ours), ", ".join(theirs) or "no outputs"
        raise InputError("the reference has other outputs", where="compare", expected=expected, got=got)


def _find_worst(samples: Sequence[SampleDifference]) -> tuple[TensorDifference, ...]:
    """Of each output the sample in which it is furthest off; what differs comes before what is close."""
    columns = zip(*(sample.outputs for sample in samples), strict=True)
    return tuple(max(column, key=_badness) for column in columns)


def _badness(difference: TensorDifference) -> tuple[bool, int, float]:
    return not difference.is_close, difference.num_wrong, difference.max_abs or 0.0
