"""What Compute needs of ONNX Runtime, and what it asks of the object that runs a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["API_FUNCTIONS", "CallFrame", "Shape"]

Shape = tuple[int, ...]

API_FUNCTIONS = (
    "CreateStatus",
    "GetTensorElementTypeAndShapeDataReference",
    "GetTensorMutableData",
    "KernelContext_GetGPUComputeStream",
    "KernelContext_GetInput",
    "KernelContext_GetOutput",
)
"""The functions of OrtApi whose slots `attach` must be told."""


class CallFrame(Protocol):
    """What runs a partition on one thread at a time; several threads mean several frames.

    A frame whose method raises is dropped, and the exception becomes the status of the run. A frame of a state with
    outputs whose address `result` leaves out must also have `fill(index, address)`, which writes the result there.
    """

    def resize(self, shapes: tuple[Shape | None, ...], /) -> Sequence[Shape | None]:
        """Get ready for inputs of these shapes, None being an absent optional input, and say the outputs' shapes.

        In a state that has a stream its handle is a second argument.

        None is an output whose shape only the run tells. Called before the first run and when a shape changed; `run`
        is looked up after it.
        """

    def run(self, addresses: tuple[int, ...], /) -> object:
        """Run on inputs and outputs at these addresses; 0 is what is absent, empty or of unknown shape.

        The handle of ONNX Runtime's stream comes last in a state that has one, 0 when there is none.

        The tuple is the very same object as at the last run of this frame when no address changed.
        """

    def result(self, index: int, /) -> tuple[int | None, Sequence[int]]:
        """Return the address and the shape of an output of unknown shape, contiguous, to be copied.

        With None for the address `fill(index, address)` is called to write it, for memory that a plain copy cannot
        reach.
        """
