"""Engines: what a plan says of itself, and contexts to run it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import dovetail
from dovetail_tensorrt.trt.answers import DeprecatedContext, Reporter
from dovetail_tensorrt.trt.enums import (
    EngineStat,
    ExecutionContextAllocationStrategy,
    HardwareCompatibilityLevel,
)
from dovetail_tensorrt.trt.execution.context import IExecutionContext
from dovetail_tensorrt.trt.execution.debugging import debug_name, is_debug_name
from dovetail_tensorrt.trt.execution.inspector import EngineInspector
from dovetail_tensorrt.trt.execution.layouts import describe_format, vector_length, vectorized_dim
from dovetail_tensorrt.trt.execution.settings import IRuntimeConfig, ISerializationConfig

__all__ = ["ICudaEngine"]

T = TypeVar("T")
F = TypeVar("F")


class ICudaEngine(DeprecatedContext):
    """A loaded plan; made by ``Runtime.deserialize_cuda_engine`` and ``Builder.build_engine_with_config``."""

    __slots__ = ("_names", "_reporter", "_streaming_budget", "engine")

    def __init__(self, engine: dovetail.Engine, reporter: Reporter) -> None:
        _check_io_types(engine)
        self.engine = engine
        """The engine itself, with all that Dovetail offers."""
        self._reporter = reporter
        self._names = [name for name in engine.tensor_names if not is_debug_name(name)]
        self._streaming_budget = 0

    def __del__(self) -> None:
        """Nothing: the contract has the name."""

    # what it is

    @property
    def name(self) -> str:
        """The network's name."""
        return self.engine.name

    @property
    def num_layers(self) -> int:
        """How many steps it has, those of all profiles together."""
        return sum(len(program.steps) for program in self.engine.manifest.programs)

    @property
    def num_io_tensors(self) -> int:
        """How many inputs and outputs there are."""
        return len(self._names)

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles it was built for."""
        return self.engine.num_optimization_profiles

    @property
    def refittable(self) -> bool:
        """Whether weights can be replaced."""
        return self.engine.refittable

    @property
    def engine_capability(self) -> dovetail.EngineCapability:
        """STANDARD: there is one kind of engine."""
        return dovetail.EngineCapability.STANDARD

    @property
    def profiling_verbosity(self) -> dovetail.ProfilingVerbosity:
        """How much an inspector shows."""
        return dovetail.ProfilingVerbosity[self.engine.manifest.build.get("profiling_verbosity", "LAYER_NAMES_ONLY")]

    @property
    def hardware_compatibility_level(self) -> HardwareCompatibilityLevel:
        """NONE: a plan says itself on which devices it runs."""
        return HardwareCompatibilityLevel.NONE

    @property
    def has_implicit_batch_dimension(self) -> bool:
        """False: every dimension is explicit; of version 10."""
        return False

    @property
    def tactic_sources(self) -> int:
        """0: tactics are the providers' own."""
        return 0

    @property
    def num_aux_streams(self) -> int:
        """0: contexts have their own streams."""
        return 0

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder | None:
        """Where errors are recorded too."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder

    # tensors

    def __getitem__(self, index: int) -> str:
        return self._names[index]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Any:
        return iter(self._names)

    def get_tensor_name(self, index: int) -> str | None:
        """The name of an input or output by number."""
        if 0 <= index < len(self._names):
            return self._names[index]
        self._reporter.refuse("ICudaEngine.get_tensor_name", f"there is no tensor {index}, only {len(self._names)}")
        return None

    def get_tensor_mode(self, name: str) -> dovetail.TensorIOMode:
        """Whether a tensor is an input or an output; NONE when there is none of the name."""
        return self._ask("get_tensor_mode", lambda: self.engine.get_tensor_mode(name), dovetail.TensorIOMode.NONE)

    def get_tensor_dtype(self, name: str) -> dovetail.DataType:
        """The element type of a tensor; FLOAT when there is none of the name."""
        return self._ask("get_tensor_dtype", lambda: self.engine.get_tensor_dtype(name), dovetail.DataType.FLOAT)

    def get_tensor_shape(self, name: str) -> dovetail.Dims:
        """The shape, with -1 where it is not fixed; invalid when there is no such tensor."""
        return self._ask("get_tensor_shape", lambda: self.engine.get_tensor_shape(name), dovetail.Dims.invalid())

    def get_tensor_location(self, name: str) -> dovetail.TensorLocation:
        """Where the bytes of a tensor are expected: on the host where its contents decide shapes."""

        def find() -> dovetail.TensorLocation:
            if self.engine.is_shape_inference_io(name):
                return dovetail.TensorLocation.HOST
            return self.engine.get_tensor_location(name)

        return self._ask("get_tensor_location", find, dovetail.TensorLocation.DEVICE)

    def get_tensor_format(self, name: str, profile_index: int = 0) -> dovetail.TensorFormat:
        """The layout of a tensor."""
        return self._ask("get_tensor_format", lambda: self.engine.get_tensor_format(name), dovetail.TensorFormat.LINEAR)

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        """The layout in words."""

        def describe() -> str:
            return describe_format(self.engine.get_tensor_format(name), self.engine.get_tensor_dtype(name))

        return self._ask("get_tensor_format_desc", describe, "")

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """Bytes of one element of a vector; -1 where the format has none."""

        def find() -> int:
            has_vectors = vector_length(self.engine.get_tensor_format(name)) > 0
            return int(self.engine.get_tensor_dtype(name).itemsize) if has_vectors else -1

        return self._ask("get_tensor_bytes_per_component", find, -1)

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:
        """Elements of a vector; -1 where the format has none."""
        return self._ask(
            "get_tensor_components_per_element", lambda: vector_length(self.engine.get_tensor_format(name)), -1
        )

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        """The dimension that is split into vectors; -1 where none is."""

        def find() -> int:
            return vectorized_dim(self.engine.get_tensor_format(name), len(self.engine.get_tensor_shape(name)))

        return self._ask("get_tensor_vectorized_dim", find, -1)

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[dovetail.Dims]:
        """Min, opt and max of an input in a profile; the shape three times where it is fixed."""

        def find() -> list[dovetail.Dims]:
            shape = self.engine.get_tensor_shape(name)
            is_fixed = all(size >= 0 for size in shape)
            found = [] if is_fixed else self.engine.get_tensor_profile_shape(name, profile_index)
            return found or [shape] * 3

        return self._ask("get_tensor_profile_shape", find, [dovetail.Dims.invalid()] * 3)

    def get_tensor_profile_values(self, name: Any, profile_index: Any) -> list[list[int]]:
        """Min, opt and max contents of a shape input in a profile; older scripts give the profile first."""
        tensor, profile = (profile_index, name) if isinstance(name, int) else (name, profile_index)
        return self._ask(
            "get_tensor_profile_values", lambda: self.engine.get_tensor_profile_values(tensor, profile), []
        )

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether shapes depend on the contents of the tensor."""
        return self._ask("is_shape_inference_io", lambda: self.engine.is_shape_inference_io(name), failure=False)

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input whose memory an output shares."""
        return self._ask("get_aliased_input_tensor", lambda: self.engine.get_aliased_input_tensor(name), None)

    def is_debug_tensor(self, name: str) -> bool:
        """Whether a tensor was marked for debugging."""
        return debug_name(name) in self.engine.tensor_names

    def _ask(self, call: str, action: Callable[[], T], failure: F) -> T | F:
        return self._reporter.attempt(f"ICudaEngine.{call}", action, failure)

    # running and writing

    def create_execution_context(self, strategy: Any = None) -> IExecutionContext | None:
        """A context; None when there is no memory, or a plugin cannot be attached.

        Args:
            strategy: An ``ExecutionContextAllocationStrategy``, or an ``IRuntimeConfig`` with one.
        """
        settings = strategy if isinstance(strategy, IRuntimeConfig) else IRuntimeConfig()
        if strategy is not None and not isinstance(strategy, IRuntimeConfig):
            settings.set_execution_context_allocation_strategy(ExecutionContextAllocationStrategy(strategy))

        def create() -> IExecutionContext:
            return IExecutionContext(self, self.engine.create_execution_context(), settings, self._reporter)

        return self._ask("create_execution_context", create, None)

    def create_execution_context_without_device_memory(self) -> IExecutionContext | None:
        """The same with USER_MANAGED; version 10's name."""
        return self.create_execution_context(ExecutionContextAllocationStrategy.USER_MANAGED)

    def create_runtime_config(self) -> IRuntimeConfig:
        """Settings for contexts."""
        return IRuntimeConfig()

    def create_engine_inspector(self) -> EngineInspector:
        """What shows the layers."""
        return EngineInspector(self.engine, self._reporter)

    def serialize(self) -> dovetail.IHostMemory | None:
        """The plan with the weights of now."""
        return self._ask("serialize", self.engine.serialize, None)

    def create_serialization_config(self) -> ISerializationConfig:
        """Settings for ``serialize_with_config``."""
        return ISerializationConfig()

    def serialize_with_config(self, config: ISerializationConfig) -> dovetail.IHostMemory | None:
        """The plan, with or without the weights that a refit can give back."""
        return self._ask(
            "serialize_with_config", lambda: self.engine.serialize(exclude_weights=config.excludes_weights), None
        )

    # memory

    @property
    def device_memory_size_v2(self) -> int:
        """Bytes that a context needs in the profile that needs most."""
        return max(program.arena_bytes for program in self.engine.manifest.programs)

    @property
    def device_memory_size(self) -> int:
        """The same; version 10's name."""
        return self.device_memory_size_v2

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        """Bytes that a context needs in a profile; 0 when there is none of the number."""
        programs = self.engine.manifest.programs
        if 0 <= profile_index < len(programs):
            return programs[profile_index].arena_bytes
        self._reporter.refuse(
            "ICudaEngine.get_device_memory_size_for_profile_v2", f"there is no profile {profile_index}"
        )
        return 0

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        """The same; version 10's name."""
        return self.get_device_memory_size_for_profile_v2(profile_index)

    def get_engine_stat(self, stat: EngineStat) -> int:
        """A number of the engine, in bytes; -1 for stripped weights of an engine that has all of its own."""
        blobs = [record for record in self.engine.manifest.blobs.values() if record.kind == "weights"]
        is_stripped = EngineStat(stat) is EngineStat.STRIPPED_WEIGHTS_SIZE
        counted = [record for record in blobs if record.stripped or not is_stripped]
        if is_stripped and not counted:
            return -1
        return sum(_size_bytes(record.dtype, record.shape) for record in counted)

    # weight streaming, which nothing needs: weights are mapped from the plan

    @property
    def streamable_weights_size(self) -> int:
        """0: no weights are streamed."""
        return 0

    @property
    def weight_streaming_budget_v2(self) -> int:
        """What was set, which has no effect: no weights are streamed."""
        return self._streaming_budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget_bytes: int) -> None:
        if budget_bytes < 0:
            self._reporter.refuse("ICudaEngine.weight_streaming_budget_v2", f"{budget_bytes} bytes are no budget")
            return
        self._streaming_budget = int(budget_bytes)
        if budget_bytes:
            text = f"a budget of {budget_bytes} bytes has no effect: no weights are streamed, they are mapped"
            self._reporter.warn(f"ICudaEngine.weight_streaming_budget_v2: {text}")

    @property
    def weight_streaming_budget(self) -> int:
        """The same; version 10's name."""
        return self.weight_streaming_budget_v2

    @weight_streaming_budget.setter
    def weight_streaming_budget(self, budget_bytes: int) -> None:
        self.weight_streaming_budget_v2 = budget_bytes

    @property
    def minimum_weight_streaming_budget(self) -> int:
        """0: no weights are streamed; of version 10."""
        return 0

    def get_weight_streaming_automatic_budget(self) -> int:
        """0: no weights are streamed."""
        return 0

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        """0: no weights are streamed."""
        return 0


def _check_io_types(engine: dovetail.Engine) -> None:
    """Refuse a plan with inputs or outputs that this API has no type for, so that no caller sizes memory for another.

    Raises:
        PlanError: The plan was built from a model with such an input or output.
    """
    for name in engine.tensor_names:
        try:
            engine.get_tensor_dtype(name)
        except dovetail.UsageError as error:
            raise dovetail.PlanError(
                "its element type is none of this API",
                where=f"tensor '{name}'",
                expected=", ".join(member.name for member in dovetail.DataType),
                got=error.what,
                fix="build the plan with OnnxParser, or load it with dovetail.load",
            ) from error


def _size_bytes(dtype: str, shape: list[int]) -> int:
    import ml_dtypes
    import numpy as np

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return math.prod(shape) * kind.itemsize
