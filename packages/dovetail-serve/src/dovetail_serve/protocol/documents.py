"""What the server says of itself and of its models; HTTP writes it as JSON, gRPC as messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "BatchStatistics",
    "Duration",
    "IndexEntry",
    "ModelConfig",
    "ModelMetadata",
    "ModelStatistics",
    "TensorMetadata",
]


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output as clients see it."""

    name: str
    datatype: str
    """The protocol's name: FP32, INT64, BYTES, ..."""
    shape: tuple[int, ...]
    """-1 where a dimension varies; with the dimension of the batch."""


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What clients need to write a request."""

    name: str
    versions: tuple[str, ...]
    """The versions that are ready, oldest first."""
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """How a model is served."""

    metadata: ModelMetadata
    max_batch_size: int
    """0 where requests are not put together."""
    instances: int
    max_queue_delay_us: int
    max_queue_size: int
    default_timeout_us: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What else the model was configured with."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One version of one model in the repository."""

    name: str
    version: str
    state: str
    """READY, LOADING, UNLOADING, UNAVAILABLE."""
    reason: str = ""
    """Why it is not ready."""


@dataclass(frozen=True, slots=True)
class Duration:
    """How often something was done and how long it took in all."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """The runs over one number of samples."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """What has been asked of one version of a model, since it was loaded."""

    name: str
    version: str
    last_inference_ms: int
    """When the last request came, in milliseconds since 1970; 0 for never."""
    inference_count: int
    """Samples."""
    execution_count: int
    """Runs of the engine."""
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cancelled: int = 0
    rejected: int = 0
    """Requests that the full queue refused."""
    timed_out: int = 0
    queue_size: int = 0
    """Requests that wait now."""
    batches: tuple[BatchStatistics, ...] = ()
    batching: str = ""
    """Whether requests are put together and why, with what was measured."""
