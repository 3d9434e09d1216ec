"""Memory of the engine's inputs and outputs: that of the first provider, unless a type or the caller requires another.

The location depends on the types of tensors and on the caller's request only. It never depends on which provider runs a
step: callers bind addresses by it, and an unsupported operator must not change the kind of memory that they bind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import onnx_ir as ir

from dovetail.build.formats.io_formats import io_format
from dovetail.errors import BuildError, UsageError
from dovetail.network.value_types import object_type
from dovetail.provider.interfaces import Provider
from dovetail.types import TensorFormat

__all__ = ["HOST", "find_io_memory", "is_host_requested"]

HOST: Final = "host"
"""Name of host memory in a configuration."""
_LOCATION_KEY: Final = "dovetail.location"


def find_io_memory(
    graph: ir.Graph,
    providers: Sequence[Provider],
    requested: Mapping[str, str],
    shape_inputs: Collection[str],
) -> dict[str, str]:
    """Return the provider of the memory of each input and output, by name; tensors in host memory are left out.

    Args:
        graph: The network.
        providers: The providers of the build in the caller's order; the first one decides where tensors are.
        requested: Tensor -> ``"host"`` or a provider's id, where the caller chose.
        shape_inputs: Inputs whose contents decide shapes, which the host reads.

    Raises:
        UsageError: A request names no tensor or no provider of the build.
        BuildError: A tensor cannot be in the memory that was requested.
    """
    tensors = [*graph.inputs, *graph.outputs]
    _check_requests(requested, tensors, providers)
    default = providers[0].memory_name
    memories = {}
    for value in tensors:
        name = value.name or ""
        obstacle = _find_obstacle(value, shape_inputs)
        if name in requested:
            memory = _check_request(name, requested[name], obstacle)
        else:
            memory = "" if obstacle or is_host_requested(value) else default
        if memory:
            memories[name] = memory
    return memories


def is_host_requested(value: ir.Value) -> bool:
    """True if the network itself places a tensor in host memory (``tensor.location``)."""
    return value.metadata_props.get(_LOCATION_KEY) == HOST


def _check_requests(requested: Mapping[str, str], tensors: Sequence[ir.Value], providers: Sequence[Provider]) -> None:
    names = [value.name or "" for value in tensors]
    memories = [HOST, *(provider.id for provider in providers if not provider.memory.is_host)]
    for name, memory in requested.items():
        where = f"config.io_memory[{name!a}]"
        if name not in names:
            raise UsageError("there is no such input or output", where=where, expected=", ".join(names))
        if memory not in memories:
            raise UsageError("no memory of this build", where=where, expected=", ".join(memories), got=repr(memory))


def _check_request(name: str, memory: str, obstacle: str) -> str:
    if memory == HOST:
        return ""
    if obstacle:
        raise BuildError(
            f"it cannot be in the memory of '{memory}': {obstacle}",
            where=f"tensor '{name}'",
            fix=f"leave it out of config.io_memory, or choose '{HOST}'",
        )
    return memory


def _find_obstacle(value: ir.Value, shape_inputs: Collection[str]) -> str:
    """Return why a tensor can be in host memory only; empty if a device can hold it."""
    if object_type(value):
        return f"it is {object_type(value)}"
    if value.name in shape_inputs:
        return "shapes depend on its contents, which the host reads"
    if io_format(value) is not TensorFormat.LINEAR:
        return f"its format is {io_format(value).name}"
    if value.dtype is None or value.dtype.bitwidth < 8:
        return "two of its elements share a byte"
    return ""
