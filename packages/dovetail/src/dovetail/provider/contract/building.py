"""What a provider gets to build with: the target, shapes, limits, the tuner, workers, and somebody to tell.

A provider proposes candidates in the order they are worth trying. Timing them where they will run, comparing their
results, remembering timings and choosing are the tuner's work, for every provider alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dovetail.loggers import ILogger
from dovetail.provider.devices import Device, Stream
from dovetail.tensors import ShapeRange, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = [
    "BuildContext",
    "Candidate",
    "Chosen",
    "KernelRequest",
    "Reference",
    "RewriteContext",
    "RightOutputs",
    "TuneContext",
    "Tuner",
]

Reference = Callable[["ir.Model", Mapping[str, Any]], Mapping[str, Any]]
"""Runs a model over inputs by name with the kernels of ``cpu`` and gives its outputs by name, as NumPy arrays."""

RightOutputs = Sequence[Any] | Callable[[], Sequence[Any] | None] | None
"""What candidates are compared with, as NumPy arrays; or a function that gives it."""


@dataclass(frozen=True, kw_only=True)
class RewriteContext:
    """What a provider may change when it rewrites a model."""

    is_own: Callable[[ir.Node], bool]
    """Whether a node was given to it; the others are somebody else's."""
    keep: frozenset[str] = frozenset()
    """Weights that a refit may replace, by name: they stay, and nothing may be computed from their numbers."""


@dataclass(frozen=True, kw_only=True)
class KernelRequest:
    """A node that is to become a step of its own."""

    name: str
    op: str
    domain: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[TensorSpec | None]
    """None for an input that is absent."""
    outputs: Sequence[TensorSpec | None]
    constants: Mapping[int, Any] = field(default_factory=dict)
    """The arrays of inputs that are weights, by position."""
    weight_names: Mapping[int, str] = field(default_factory=dict)
    """Their names, for ``PackedWeight.sources``."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to do something."""

    name: str
    """What tells it from the others of its question; plans and timing caches store it."""
    start: Callable[[], Callable[[], None]]
    """Makes it ready, which is not timed, and gives what puts one run on the tuner's stream."""
    results: Callable[[], Sequence[Any]] | None = None
    """Runs once over inputs that are the same for all candidates and gives the outputs as NumPy arrays.

    None for one whose results need no comparison.
    """
    close: Callable[[], None] = lambda: None
    """Gives back what it has; called once, also where ``start`` was not, but not where a run could not be stopped."""
    tolerance: float = 0.0
    """What its arithmetic may be off more than the types of its results say, relative to their largest magnitude."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The candidate to use."""

    name: str
    time_us: float | None
    """None where it was the only one and nothing was timed."""


class Tuner(ABC):
    """Times candidates where they will run, and keeps what it found."""

    @property
    @abstractmethod
    def stream(self) -> Stream | None:
        """Where candidates put their work; None where work is done when a call returns."""

    @abstractmethod
    def choose(self, question: str, candidates: Sequence[Candidate], *, reference: RightOutputs = None) -> Chosen:
        """Choose the fastest candidate that is right.

        Args:
            question: What is to be done, completely: operator, shapes, types. With the device and the version of the
                provider it is the key of the timings.
            candidates: In the order they are worth trying; those past ``max_num_tactics`` are not tried, and those
                that the timing cache knows are not started.
            reference: Right outputs, where they are known, or a function that computes them, which is called only where
                something is timed; else candidates are compared with each other.

        Raises:
            BuildError: No candidate works.
        """


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Everything around the partition or node that is built."""

    device: Device
    """The target; it need not be in this machine when nothing is timed."""
    tuner: Tuner
    reference: Reference
    logger: ILogger
    workers: Executor
    """Threads to compile in, as many as the build may use."""
    profile: int = 0
    shapes: Mapping[str, ShapeRange] = field(default_factory=dict)
    """By name, for inputs at the border whose shapes the profile knows."""
    flags: frozenset[str] = frozenset()
    """Names of the ``BuilderFlag`` that are set, such as ``FP16`` or ``TF32``."""
    keep: frozenset[str] = frozenset()
    """Weights that may be replaced in a loaded engine: they stay whole, or are packed by a recipe."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Output of the network -> the input whose memory it gets; a partition that makes it of that input may write
    what changes and leave the rest (``BuiltPartition.aliases``)."""
    is_open: bool = False
    """Whether shapes have no bounds."""
    is_strict: bool = False
    workspace_limit_bytes: int | None = None
    """How much scratch memory one step may need."""
    memory_limit_bytes: int | None = None
    """How much memory of the device everything may need."""
    candidate_bytes: int = 0
    """How much ``BuiltPartition.candidates`` may take; 0 where none are asked for."""
    report: Callable[[int, int], None] = lambda done, total: None
    """Tells how many of how many steps are done; raises ``BuildCancelledError`` when the build is to stop."""


@dataclass(frozen=True, kw_only=True)
class TuneContext:
    """What a provider chooses with between candidates that a plan carries, on a machine that may build nothing."""

    device: Device
    """The device, which is here."""
    tuner: Tuner
    logger: ILogger
    report: Callable[[int, int], None] = lambda done, total: None
    """As in ``BuildContext``."""
