"""The messages of the protocol, by the names and numbers that its clients know."""

from __future__ import annotations

from typing import Any, Final

from dovetail_serve.grpc.descriptors import make_messages

__all__ = ["HEALTH", "INFERENCE"]

_NAMED: Final = ("name string 1", "version string 2")

_SERVER: Final[dict[str, tuple[str, ...]]] = {
    "ServerLiveRequest": (),
    "ServerLiveResponse": ("live bool 1",),
    "ServerReadyRequest": (),
    "ServerReadyResponse": ("ready bool 1",),
    "ServerMetadataRequest": (),
    "ServerMetadataResponse": ("name string 1", "version string 2", "extensions [string] 3"),
}

_METADATA: Final[dict[str, tuple[str, ...]]] = {
    "ModelReadyRequest": _NAMED,
    "ModelReadyResponse": ("ready bool 1",),
    "ModelMetadataRequest": _NAMED,
    "ModelMetadataResponse": (
        "name string 1",
        "versions [string] 2",
        "platform string 3",
        "inputs [ModelMetadataResponse.TensorMetadata] 4",
        "outputs [ModelMetadataResponse.TensorMetadata] 5",
    ),
    "ModelMetadataResponse.TensorMetadata": ("name string 1", "datatype string 2", "shape [int64] 3"),
}

_INFER: Final[dict[str, tuple[str, ...]]] = {
    "InferParameter": (
        "?bool_param bool 1",
        "?int64_param int64 2",
        "?string_param string 3",
        "?double_param double 4",
        "?uint64_param uint64 5",
    ),
    "InferTensorContents": (
        "bool_contents [bool] 1",
        "int_contents [int32] 2",
        "int64_contents [int64] 3",
        "uint_contents [uint32] 4",
        "uint64_contents [uint64] 5",
        "fp32_contents [float] 6",
        "fp64_contents [double] 7",
        "bytes_contents [bytes] 8",
    ),
    "ModelInferRequest": (
        "model_name string 1",
        "model_version string 2",
        "id string 3",
        "parameters {InferParameter} 4",
        "inputs [ModelInferRequest.InferInputTensor] 5",
        "outputs [ModelInferRequest.InferRequestedOutputTensor] 6",
        "raw_input_contents [bytes] 7",
    ),
    "ModelInferRequest.InferInputTensor": (
        "name string 1",
        "datatype string 2",
        "shape [int64] 3",
        "parameters {InferParameter} 4",
        "contents InferTensorContents 5",
    ),
    "ModelInferRequest.InferRequestedOutputTensor": ("name string 1", "parameters {InferParameter} 2"),
    "ModelInferResponse": (
        "model_name string 1",
        "model_version string 2",
        "id string 3",
        "parameters {InferParameter} 4",
        "outputs [ModelInferResponse.InferOutputTensor] 5",
        "raw_output_contents [bytes] 6",
    ),
    "ModelInferResponse.InferOutputTensor": (
        "name string 1",
        "datatype string 2",
        "shape [int64] 3",
        "parameters {InferParameter} 4",
        "contents InferTensorContents 5",
    ),
    "ModelStreamInferResponse": ("error_message string 1", "infer_response ModelInferResponse 2"),
}

_CONFIG: Final[dict[str, tuple[str, ...]]] = {
    "ModelConfigRequest": _NAMED,
    "ModelConfigResponse": ("config ModelConfig 1",),
    "ModelConfig": (
        "name string 1",
        "platform string 2",
        "version_policy ModelVersionPolicy 3",
        "max_batch_size int32 4",
        "input [ModelInput] 5",
        "output [ModelOutput] 6",
        "instance_group [ModelInstanceGroup] 7",
        "dynamic_batching ModelDynamicBatching 11",
        "parameters {ModelParameter} 14",
        "backend string 17",
    ),
    "ModelInput": ("name string 1", "data_type DataType 2", "dims [int64] 4"),
    "ModelOutput": ("name string 1", "data_type DataType 2", "dims [int64] 3"),
    # The only member that is written is KIND_AUTO, the number 0.
    "ModelInstanceGroup": ("name string 1", "count int32 2"),
    "ModelVersionPolicy": ("specific ModelVersionPolicy.Specific 3",),
    "ModelVersionPolicy.Specific": ("versions [int64] 1",),
    "ModelDynamicBatching": ("max_queue_delay_microseconds uint64 2", "default_queue_policy ModelQueuePolicy 6"),
    "ModelQueuePolicy": (
        "default_timeout_microseconds uint64 2",
        "allow_timeout_override bool 3",
        "max_queue_size uint32 4",
    ),
    "ModelParameter": ("string_value string 1",),
}

_STATISTICS: Final[dict[str, tuple[str, ...]]] = {
    "ModelStatisticsRequest": _NAMED,
    "ModelStatisticsResponse": ("model_stats [ModelStatistics] 1",),
    "ModelStatistics": (
        "name string 1",
        "version string 2",
        "last_inference uint64 3",
        "inference_count uint64 4",
        "execution_count uint64 5",
        "inference_stats InferStatistics 6",
        "batch_stats [InferBatchStatistics] 7",
    ),
    "InferStatistics": (
        "success StatisticDuration 1",
        "fail StatisticDuration 2",
        "queue StatisticDuration 3",
        "compute_input StatisticDuration 4",
        "compute_infer StatisticDuration 5",
        "compute_output StatisticDuration 6",
    ),
    "InferBatchStatistics": (
        "batch_size uint64 1",
        "compute_input StatisticDuration 2",
        "compute_infer StatisticDuration 3",
        "compute_output StatisticDuration 4",
    ),
    "StatisticDuration": ("count uint64 1", "ns uint64 2"),
}

_REPOSITORY: Final[dict[str, tuple[str, ...]]] = {
    "RepositoryIndexRequest": ("repository_name string 1", "ready bool 2"),
    "RepositoryIndexResponse": ("models [RepositoryIndexResponse.ModelIndex] 1",),
    "RepositoryIndexResponse.ModelIndex": ("name string 1", "version string 2", "state string 3", "reason string 4"),
    "ModelRepositoryParameter": (
        "?bool_param bool 1",
        "?int64_param int64 2",
        "?string_param string 3",
        "?bytes_param bytes 4",
    ),
    "RepositoryModelLoadRequest": (
        "repository_name string 1",
        "model_name string 2",
        "parameters {ModelRepositoryParameter} 3",
    ),
    "RepositoryModelLoadResponse": (),
    "RepositoryModelUnloadRequest": (
        "repository_name string 1",
        "model_name string 2",
        "parameters {ModelRepositoryParameter} 3",
    ),
    "RepositoryModelUnloadResponse": (),
}

_TYPES: Final = "INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 STRING BF16"

INFERENCE: Final[dict[str, Any]] = make_messages(
    "inference",
    {**_SERVER, **_METADATA, **_INFER, **_CONFIG, **_STATISTICS, **_REPOSITORY},
    {"DataType": [f"TYPE_{name}" for name in _TYPES.split()]},
)
"""The classes of the inference service, by name."""

HEALTH: Final[dict[str, Any]] = make_messages(
    "grpc.health.v1",
    {
        "HealthCheckRequest": ("service string 1",),
        "HealthCheckResponse": ("status ServingStatus 1",),
    },
    {"ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")},
)
"""The classes of the health service, by name."""
