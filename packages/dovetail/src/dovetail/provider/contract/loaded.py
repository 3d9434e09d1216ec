"""What loading gives: kernels and partitions that can be bound to the shapes, the stream and the memory of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.plugin.kernels import LaunchShape
from dovetail.provider.devices import Stream

__all__ = ["BindContext", "BoundPartition", "CompiledKernel", "DeviceKernel", "LaunchShape", "LoadedPartition"]

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class BindContext:
    """What one bound run of one context has for a step."""

    stream: Stream | None = None
    """Where its work goes; None where steps end before they return.

    Callers may change the stream of a context between runs, so ``handle`` or ``current`` is to be read in every run.
    """
    workspace: int = 0
    """The address of scratch memory in the provider's memory, as much as was asked for; others use it between runs."""
    workspace_bytes: int = 0
    input_shapes: Sequence[Shape | None] = ()
    """None where only the run tells."""
    output_shapes: Sequence[Shape | None] = ()
    find_lane: Callable[[int], Stream | None] = lambda number: None
    """Gives further streams of the context by number, made once and closed with it; work on them must be waited for
    on ``stream`` before the step returns."""


class CompiledKernel:
    """One node made ready to run: what ``Provider.load_kernel`` gives.

    Args:
        compute: Arrays in, one array or a tuple of arrays out.
        write: The same with the output arrays as further arguments, which it writes; what it returns is not looked at.
            It is called for inputs of shapes and types that ``compute`` gave a result of the outputs' shapes and types
            for, so it checks nothing. On a device it is called from the first run on.
    """

    __slots__ = ("compute", "write")

    def __init__(self, compute: Callable[..., Any], write: Callable[..., Any] | None = None) -> None:
        self.compute = compute
        self.write = write

    def __call__(self, *arrays: Any) -> Any:
        """Run once, for callers that have no memory for results."""
        return self.compute(*arrays)

    def bind(self, context: BindContext) -> CompiledKernel:
        """The kernel for one bound run; by default the kernel itself."""
        return self


class BoundPartition(ABC):
    """A compiled partition over the shapes of one bound run of one context."""

    is_capturable: bool = False
    """Whether all its work goes on streams and can be recorded once and replayed, outputs being arrays."""

    @abstractmethod
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        """Run once.

        An output that is an array is written; one that is None is replaced by a new array, which belongs to the
        caller. Arrays of callers must not be kept alive after the run.
        """

    def make_interruptible(self) -> Callable[[], None]:
        """A function that ends a run that is under way, which then raises; it is called from another thread.

        It is asked for only where runs have a limit of time. The default: runs cannot be ended.
        """
        return lambda: None

    def close(self) -> None:
        """Give back what was taken for the bound run."""
        return


class LoadedPartition(ABC):
    """A compiled partition of one engine; every bound run of a context binds it for itself."""

    note: str | None = None
    """What whoever loads the plan should know."""

    @abstractmethod
    def bind(self, context: BindContext) -> BoundPartition:
        """The partition for one bound run."""

    def workspace_bytes(self, input_shapes: Sequence[Shape | None]) -> int:
        """How much scratch memory it needs for these shapes, in an engine without bounds; else the plan says it."""
        return 0

    def refit(self, name: str, array: Any) -> None:
        """Take a new array for a weight, for providers that refit in place."""
        return

    def close(self) -> None:
        """Let go of everything."""
        return


class DeviceKernel(ABC):
    """A kernel that a plugin brought, loaded on a device: what ``Provider.load_device_kernel`` gives."""

    @abstractmethod
    def launch(self, shape: LaunchShape, parameters: Sequence[int], stream: int) -> None:
        """Put it on a stream; parameters are addresses and 32-bit integers, in the order that the kernel takes them."""

    def close(self) -> None:
        """Let go of its code."""
        return
