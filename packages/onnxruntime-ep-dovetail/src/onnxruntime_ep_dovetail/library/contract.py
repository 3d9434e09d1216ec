"""What the two implementations of Compute offer, and what they ask of the object that runs a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

__all__ = ["API_FUNCTIONS", "Compute", "Frame", "Shape"]

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


class Frame(Protocol):
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


class Compute(Protocol):
    """The functions that a module with Compute has; `_compute` and `fallback` both do."""

    @property
    def KERNEL_STATE_OFFSET(self) -> int:  # noqa: N802 - a constant of the module
        """How many bytes after the start of an OrtKernelImpl the address of its state lies."""

    def attach(self, api_address: int, slots: Mapping[str, int], /) -> None:
        """Take the functions of one OrtApi table; slots gives the place of each of API_FUNCTIONS."""

    def create_state(
        self,
        new_frame: Callable[[], Frame],
        num_inputs: int,
        num_outputs: int,
        input_types: Sequence[int],
        output_types: Sequence[int],
        api_address: int | None = None,
        has_stream: bool = False,
    ) -> int:
        """Make the state of one partition and return its address; without a table it uses the one attached last.

        With ``has_stream`` the addresses of a run end with the handle of the stream that ONNX Runtime runs it on.
        """

    def release_state(self, address: int, /) -> None:
        """Free a state and its frames. No run of it may be under way."""

    def compute_address(self) -> int:
        """Return the address of the function for OrtNodeComputeInfo::Compute."""

    def kernel_compute_address(self) -> int:
        """Return the address of the function for OrtKernelImpl::Compute."""
