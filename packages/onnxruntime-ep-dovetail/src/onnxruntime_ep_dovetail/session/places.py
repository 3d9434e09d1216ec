"""What ONNX Runtime runs in place of a node, and where among the node's inputs and outputs those of an engine are.

It may bring more than the engine reads, and ask for less than that: nothing, where nobody reads what the node makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from onnxruntime_ep_dovetail.graph.values import number_of_dtype
from onnxruntime_ep_dovetail.library.contract import CallFrame, Shape
from onnxruntime_ep_dovetail.session.partition import Partition

__all__ = ["PickingFrame", "PlacedWork", "Places", "make_idle_work", "make_work"]

_NOTHING: Final[Shape] = (0,)
"""The shape given for an output that nobody reads; ONNX Runtime makes nothing for it."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Which of a node's inputs and outputs an engine has, and how many of them a run looks at."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    num_read: int
    num_made: int

    @property
    def is_whole(self) -> bool:
        """Whether the engine has all of them, in order."""
        return self.inputs == tuple(range(self.num_read)) and self.outputs == tuple(range(self.num_made))


def _spread(dtypes: Sequence[np.dtype[Any]], places: Sequence[int], count: int) -> tuple[int, ...]:
    """ONNX Runtime's numbers of element types by position in the node; 0 where the engine has nothing."""
    types = [0] * count
    for place, dtype in zip(places, dtypes, strict=True):
        types[place] = number_of_dtype(dtype)
    return tuple(types)


class PickingFrame:
    """A frame of the engine that sees the inputs and outputs of the node and passes on those of the engine."""

    def __init__(self, frame: CallFrame, places: Places, *, has_stream: bool) -> None:
        self._frame = frame
        self._places = places
        start, end = places.num_read, places.num_read + places.num_made
        self._order = (*places.inputs, *(start + i for i in places.outputs), *((end,) if has_stream else ()))
        self._addresses: tuple[int, ...] = ()
        self._picked: tuple[int, ...] = ()

    def resize(self, shapes: tuple[Shape | None, ...], /, *stream: int) -> tuple[Shape | None, ...]:
        """Take new input shapes."""
        made = self._frame.resize(tuple(shapes[index] for index in self._places.inputs), *stream)
        outputs: list[Shape | None] = [_NOTHING] * self._places.num_made
        for index, shape in zip(self._places.outputs, made, strict=True):
            outputs[index] = shape
        self._addresses = ()
        if self._places.is_whole:
            self.run = self._frame.run  # type: ignore[method-assign] # nothing to leave out
        return tuple(outputs)

    def run(self, addresses: tuple[int, ...], /) -> object:
        """Run once; the engine, too, gets the very same addresses when nothing moved."""
        if addresses is not self._addresses:
            self._picked = tuple([addresses[place] for place in self._order])
            self._addresses = addresses
        return self._frame.run(self._picked)

    def result(self, index: int, /) -> tuple[int | None, Sequence[int]]:
        """Where a result lies whose shape only the run told."""
        return self._frame.result(self._places.outputs.index(index))

    def fill(self, index: int, address: int, /) -> None:
        """Write a result of a device."""
        self._frame.fill(self._places.outputs.index(index), address)  # type: ignore[attr-defined] # it left an address out


@dataclass(frozen=True, kw_only=True)
class PlacedWork:
    """What ONNX Runtime is to run in place of a node: what makes frames, and the element types they take and give."""

    new_frame: Callable[[], CallFrame]
    input_types: tuple[int, ...]
    output_types: tuple[int, ...]
    has_stream: bool


def make_work(partition: Partition, places: Places, new_frame: Callable[[], CallFrame]) -> PlacedWork:
    """The work of a partition; its frames come from ``new_frame``."""
    picking = partial(_pick, new_frame, places, has_stream=partition.has_stream)
    return PlacedWork(
        new_frame=new_frame if places.is_whole else picking,
        input_types=_spread(partition.input_dtypes, places.inputs, places.num_read),
        output_types=_spread(partition.output_dtypes, places.outputs, places.num_made),
        has_stream=partition.has_stream,
    )


def _pick(new_frame: Callable[[], CallFrame], places: Places, *, has_stream: bool) -> CallFrame:
    return PickingFrame(new_frame(), places, has_stream=has_stream)


def make_idle_work(num_inputs: int) -> PlacedWork:
    """The work of a node whose results nobody reads."""
    return PlacedWork(new_frame=_IdleFrame, input_types=(0,) * num_inputs, output_types=(), has_stream=False)


class _IdleFrame:
    """A frame of a node whose results nobody reads: there is nothing to compute."""

    def resize(self, _shapes: tuple[Shape | None, ...], /) -> tuple[Shape | None, ...]:
        """Take new input shapes."""
        return ()

    def run(self, _addresses: tuple[int, ...], /) -> object:
        """Run once."""
        return None

    def result(self, index: int, /) -> tuple[int | None, Sequence[int]]:
        """There is no result."""
        raise IndexError(index)
