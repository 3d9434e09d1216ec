"""Plans for the C++ header: loading, and what it is told of tensors and profiles.

The header calls these functions by name and is compiled into programs of others, so what they take and return changes
only together with ``VERSION``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.element_types import BY_NAME
from dovetail.expr import sizes_from_dims, sizes_or_unknown
from dovetail.loggers import ILogger, Severity
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import TensorRecord
from dovetail.runtime.embedded.context import EmbeddedContext
from dovetail.runtime.engine import Engine
from dovetail.runtime.loading import Runtime

__all__ = ["VERSION", "EmbeddedEngine", "open_engine"]

VERSION: Final = 2
"""The version of these calls, which the header compares with its own."""

TensorFacts = tuple[str, bool, str, int, str, tuple[int, ...] | None, str, str]
"""Name, whether it is an input, type, bits of an element, format, shape, memory, and the input whose memory it has."""

_LogFunction: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)


class FunctionLogger(ILogger):
    """Gives messages to a C function.

    Args:
        function: The address of ``void f(void* user, int32_t severity, char const* text)``.
        user: What it gets first.
    """

    def __init__(self, function: int, user: int) -> None:
        super().__init__()
        self._call, self._user = _LogFunction(function), user

    def log(self, severity: Severity, msg: str) -> None:
        """Hand one message over."""
        self._call(self._user, int(severity), msg.encode())


def open_engine(
    plan: str | tuple[int, int],
    host_code: bool,
    device_code: bool,
    libraries: Sequence[str],
    provider_options: Mapping[str, Mapping[str, str]],
    log: tuple[int, int] | None,
) -> EmbeddedEngine:
    """Load a plan.

    Args:
        plan: The path of a file, or the address and the size in bytes of one in memory, which is copied.
        host_code: Whether libraries that the plan carries may be loaded.
        device_code: Whether code for accelerators that it carries may be loaded.
        libraries: The paths of plugin libraries to load before it.
        provider_options: Provider -> option -> value.
        log: The address of a function for messages and what it gets first.
    """
    runtime = Runtime(None if log is None else FunctionLogger(*log), provider_options=provider_options)
    runtime.engine_host_code_allowed = host_code
    runtime.engine_device_code_allowed = device_code
    registry = runtime.get_plugin_registry()
    registry.logger = runtime.logger
    for library in libraries:
        registry.load_library(library)
    if isinstance(plan, tuple):
        return EmbeddedEngine(runtime.deserialize_cuda_engine(_copy_plan(*plan)), runtime)
    return EmbeddedEngine(runtime.load_engine(plan), runtime)


def _copy_plan(address: int, size_bytes: int) -> bytes:
    """Copy a plan once its header says that it has this size."""
    memory = memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")
    PlanFile.from_bytes(memory).close()
    return bytes(memory)


class EmbeddedEngine:
    """An engine as the header sees it. It may be shared by threads."""

    def __init__(self, engine: Engine, runtime: Runtime) -> None:
        self._engine = engine
        self._runtime = runtime
        """Its registry has the creators of the libraries."""

    def describe(self) -> tuple[str, int, tuple[TensorFacts, ...]]:
        """Name, number of profiles, and inputs, then outputs."""
        engine = self._engine
        inputs = [_facts(tensor, is_input=True) for tensor in engine.manifest.inputs]
        outputs = [_facts(tensor, is_input=False) for tensor in engine.manifest.outputs]
        return engine.name, engine.num_optimization_profiles, (*inputs, *outputs)

    def profile_shapes(self, name: str, profile: int) -> tuple[tuple[int, ...], ...]:
        """Min, opt and max of an input in a profile; nothing where the input has one shape or no bounds."""
        return tuple(tuple(shape) for shape in self._engine.get_tensor_profile_shape(name, profile))

    def make_context(self) -> EmbeddedContext:
        """A context for one thread at a time."""
        return EmbeddedContext(self._engine)

    def close(self) -> None:
        """Destroy plugins and contexts, and unload libraries."""
        try:
            self._engine.close()
        finally:
            self._runtime.get_plugin_registry().close()


def _facts(tensor: TensorRecord, *, is_input: bool) -> TensorFacts:
    shape = None if tensor.dims is None else sizes_or_unknown(sizes_from_dims(tensor.dims))
    bits = 0 if tensor.type else BY_NAME[tensor.dtype].bits
    kind = tensor.type or tensor.dtype
    return (tensor.name, is_input, kind, bits, tensor.format, shape, tensor.memory, tensor.alias or "")
