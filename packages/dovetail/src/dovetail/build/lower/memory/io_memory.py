"""In whose memory inputs and outputs of an engine lie: where the steps need them, unless the configuration says it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import onnx_ir as ir

from dovetail.build.assign.assigner import Assigner, Group
from dovetail.build.assign.layers import NodeLayer, body_graphs
from dovetail.build.formats.io_formats import io_format
from dovetail.build.lower.program_context import ProgramContext
from dovetail.errors import BuildError, UsageError
from dovetail.network.value_types import object_type
from dovetail.provider.calls import call
from dovetail.provider.interfaces import Provider, TensorSpec
from dovetail.provider.schemas.shape_slots import reads_only_shape
from dovetail.types import TensorFormat

__all__ = ["HOST", "find_io_memory", "is_host_asked"]

HOST: Final = "host"
"""What a configuration calls memory of the host."""
_LOCATION_KEY: Final = "dovetail.location"


def find_io_memory(
    graph: ir.Graph, context: ProgramContext, wanted: Mapping[str, str], shape_inputs: Collection[str]
) -> dict[str, str]:
    """The provider in whose memory each input and output lies, by name; those on the host are left out.

    Args:
        graph: The network.
        context: With the plugins as they were chosen.
        wanted: Tensor -> ``"host"`` or a provider's id, where the caller chose.
        shape_inputs: Inputs whose contents decide shapes; the host reads these.

    Raises:
        UsageError: A choice names no tensor or no provider of the build.
        BuildError: A tensor cannot lie where it was wanted.
    """
    groups = context.assigner.groups(graph)
    _check_names(wanted, [*graph.inputs, *graph.outputs], context.assigner)
    found = {**_memory_of_inputs(graph.inputs, groups, context), **_memory_of_outputs(graph.outputs, groups, context)}
    placed = {}
    for value in (*graph.inputs, *graph.outputs):
        name = value.name or ""
        obstacle = _find_obstacle(value, shape_inputs)
        memory = _choose(name, "" if obstacle or is_host_asked(value) else found.get(name, ""), wanted, obstacle)
        if memory:
            placed[name] = memory
    return placed


def is_host_asked(value: ir.Value) -> bool:
    """Whether the network itself says that a tensor lies on the host."""
    return value.metadata_props.get(_LOCATION_KEY) == HOST


def _check_names(wanted: Mapping[str, str], values: Sequence[ir.Value], assigner: Assigner) -> None:
    names = [value.name or "" for value in values]
    places = [HOST, *(provider.id for provider in assigner.providers if not provider.memory.is_host)]
    for name, place in wanted.items():
        where = f"config.io_memory[{name!a}]"
        if name not in names:
            raise UsageError("there is no such input or output", where=where, expected=", ".join(names))
        if place not in places:
            raise UsageError("no memory of this build", where=where, expected=", ".join(places), got=repr(place))


def _choose(name: str, found: str, wanted: Mapping[str, str], obstacle: str) -> str:
    place = wanted.get(name)
    if place is None:
        return found
    if place != HOST and obstacle:
        raise BuildError(
            f"it cannot lie in the memory of '{place}': {obstacle}",
            where=f"tensor '{name}'",
            fix=f"leave it out of config.io_memory, or choose '{HOST}'",
        )
    return "" if place == HOST else place


def _find_obstacle(value: ir.Value, shape_inputs: Collection[str]) -> str:
    """Why a tensor can lie on the host only; empty where nothing is in the way."""
    if object_type(value):
        return f"it is {object_type(value)}"
    if value.name in shape_inputs:
        return "shapes depend on its contents, which the host reads"
    if io_format(value) is not TensorFormat.LINEAR:
        return f"its format is {io_format(value).name}"
    if value.dtype is None or value.dtype.bitwidth < 8:
        return "two of its elements share a byte"
    return ""


# who needs what where


def _memory_of_inputs(inputs: Sequence[ir.Value], groups: Sequence[Group], context: ProgramContext) -> dict[str, str]:
    """Inputs whose contents steps of one device read, and nobody else."""
    readers: dict[ir.Value, set[str]] = {}
    for group in groups:
        for value, memory in _find_reads(group, context):
            readers.setdefault(value, set()).add(memory)
    only = {value.name or "": readers.get(value, set()) for value in inputs}
    return {name: next(iter(memories)) for name, memories in only.items() if len(memories) == 1}


def _memory_of_outputs(outputs: Sequence[ir.Value], groups: Sequence[Group], context: ProgramContext) -> dict[str, str]:
    """Outputs that a device makes."""
    made = {
        value: context.assigner.provider(layer.provider).memory_name
        for group in groups
        for layer in group.layers
        for value in layer.node.outputs
        if layer.entry is None or _is_ready(layer, value, context)
    }
    return {value.name or "": made.get(value, "") for value in outputs}


def _find_reads(group: Group, context: ProgramContext) -> Iterator[tuple[ir.Value, str]]:
    """What a step reads, and the memory it needs it in."""
    layer = group.layers[0]
    memory = context.assigner.provider(group.provider if group.builds else layer.provider).memory_name
    if group.builds and group.border is not None:
        yield from ((value, memory) for value in group.border.inputs)
    elif layer.entry is not None:
        yield from _find_plugin_reads(layer, memory, context)
    elif layer.is_control:
        yield from ((value, "") for value in _reads_with_bodies(layer.node))
    else:
        yield from _find_kernel_reads(layer, memory, context)


def _find_kernel_reads(layer: NodeLayer, memory: str, context: ProgramContext) -> Iterator[tuple[ir.Value, str]]:
    if not memory and reads_only_shape(layer.op, layer.domain):
        return
    provider = context.assigner.provider(layer.provider)
    on_host = (
        call(provider.id, "host_inputs", provider.host_inputs, layer.op, layer.domain, layer.opset)
        if memory
        else frozenset[int]()
    )
    for slot, value in enumerate(layer.node.inputs):
        if value is not None:
            yield value, "" if slot in on_host else memory


def _find_plugin_reads(layer: NodeLayer, memory: str, context: ProgramContext) -> Iterator[tuple[ir.Value, str]]:
    """A plugin's inputs; one that it writes to, or that the device cannot bring to its format, comes from the host."""
    chosen, entry = context.chosen[layer.node], layer.entry
    count = 0 if entry is None else entry.num_inputs
    for slot, value in enumerate(layer.node.inputs):
        if value is not None:
            is_near = slot < count and slot not in chosen.aliases and _is_ready(layer, value, context)
            yield value, memory if is_near else ""


def _is_ready(layer: NodeLayer, value: ir.Value, context: ProgramContext) -> bool:
    """Whether a plugin takes or gives a value row by row in the network's type, or its device changes the format."""
    combination = context.chosen[layer.node].combination
    count = 0 if layer.entry is None else layer.entry.num_inputs
    values = [*layer.node.inputs[:count], *layer.node.outputs]
    own, provider = context.place(value), context.assigner.provider(layer.provider)
    places = [layout for port, layout in zip(values, combination, strict=True) if port is value]
    return all(place == own or _can_change(value, own, place, context, provider) for place in places)


def _can_change(
    value: ir.Value, own: TensorSpec, place: TensorSpec, context: ProgramContext, provider: Provider
) -> bool:
    dims = context.dims(value)
    return not provider.memory.is_host and all(
        context.can_reformat(dims, source, target, provider) for source, target in ((own, place), (place, own))
    )


def _reads_with_bodies(node: ir.Node) -> Iterator[ir.Value]:
    yield from (value for value in node.inputs if value is not None)
    for graph in body_graphs(node):
        for inner in graph:
            yield from _reads_with_bodies(inner)
        yield from graph.outputs
