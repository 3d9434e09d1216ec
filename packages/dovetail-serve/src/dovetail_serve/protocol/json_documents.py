"""The documents as JSON has them; gRPC reads its messages from the same, so that both say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dovetail_serve import __version__
from dovetail_serve.protocol.documents import (
    BatchStatistics,
    Duration,
    IndexEntry,
    ModelConfig,
    ModelMetadata,
    ModelStatistics,
    TensorMetadata,
)

__all__ = [
    "EXTENSIONS",
    "config_document",
    "index_document",
    "metadata_document",
    "server_document",
    "statistics_document",
]

EXTENSIONS: Final = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
)
"""The extensions of the protocol that the server has."""

_CONFIG_TYPES: Final = {"BYTES": "TYPE_STRING"}
"""Where a model configuration calls a datatype otherwise."""


def server_document() -> dict[str, Any]:
    """What the server is."""
    return {"name": "dovetail", "version": __version__, "extensions": list(EXTENSIONS)}


def metadata_document(metadata: ModelMetadata) -> dict[str, Any]:
    """What clients need to write a request."""
    return {
        "name": metadata.name,
        "versions": list(metadata.versions),
        "platform": metadata.platform,
        "inputs": [_tensor(each) for each in metadata.inputs],
        "outputs": [_tensor(each) for each in metadata.outputs],
    }


def _tensor(tensor: TensorMetadata) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}


def config_document(config: ModelConfig) -> dict[str, Any]:
    """How the model is served, in the words of the model configuration extension."""
    metadata = config.metadata
    is_batched = config.max_batch_size > 0
    document = {
        "name": metadata.name,
        "platform": metadata.platform,
        "backend": "dovetail",
        "version_policy": {"specific": {"versions": [int(each) for each in metadata.versions if each.isdecimal()]}},
        "max_batch_size": config.max_batch_size,
        "input": [_configured(each, is_batched=is_batched) for each in metadata.inputs],
        "output": [_configured(each, is_batched=is_batched) for each in metadata.outputs],
        "instance_group": [{"name": metadata.name, "kind": "KIND_AUTO", "count": config.instances}],
        "parameters": {key: {"string_value": value} for key, value in config.parameters.items()},
    }
    return {**document, **_scheduling(config)} if is_batched else document


def _configured(tensor: TensorMetadata, *, is_batched: bool) -> dict[str, Any]:
    dims = tensor.shape[1:] if is_batched else tensor.shape
    name = _CONFIG_TYPES.get(tensor.datatype, f"TYPE_{tensor.datatype}")
    return {"name": tensor.name, "data_type": name, "dims": list(dims)}


def _scheduling(config: ModelConfig) -> dict[str, Any]:
    policy = {
        "default_timeout_microseconds": config.default_timeout_us,
        "allow_timeout_override": True,
        "max_queue_size": config.max_queue_size,
    }
    delay = config.max_queue_delay_us
    return {"dynamic_batching": {"max_queue_delay_microseconds": delay, "default_queue_policy": policy}}


def index_document(entries: Sequence[IndexEntry]) -> list[dict[str, Any]]:
    """The models of the repository."""
    return [
        {"name": each.name, "version": each.version, "state": each.state, "reason": each.reason} for each in entries
    ]


def statistics_document(statistics: Sequence[ModelStatistics]) -> dict[str, Any]:
    """What has been asked of models; a client of the extension ignores the keys that are ours."""
    return {"model_stats": [_statistics(each) for each in statistics]}


def _statistics(found: ModelStatistics) -> dict[str, Any]:
    return {
        "name": found.name,
        "version": found.version,
        "last_inference": found.last_inference_ms,
        "inference_count": found.inference_count,
        "execution_count": found.execution_count,
        "inference_stats": {
            "success": _duration(found.success),
            "fail": _duration(found.fail),
            "queue": _duration(found.queue),
            "compute_input": _duration(found.compute_input),
            "compute_infer": _duration(found.compute_infer),
            "compute_output": _duration(found.compute_output),
        },
        "batch_stats": [_batch(each) for each in found.batches],
        "queue_size": found.queue_size,
        "cancelled": found.cancelled,
        "rejected": found.rejected,
        "timed_out": found.timed_out,
        "batching": found.batching,
    }


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}


def _batch(batch: BatchStatistics) -> dict[str, Any]:
    return {
        "batch_size": batch.batch_size,
        "compute_input": _duration(batch.compute_input),
        "compute_infer": _duration(batch.compute_infer),
        "compute_output": _duration(batch.compute_output),
    }
