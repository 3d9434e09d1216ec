"""The first stage: from the chosen layers of a graph to steps that say what they read and where they want it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import onnx_ir as ir

from dovetail.build.assign.assigner import Group
from dovetail.build.assign.layers import NodeLayer
from dovetail.build.built_checks import StepOwner
from dovetail.build.lower.attributes import attribute_records
from dovetail.build.lower.blobs import array_from_tensor
from dovetail.build.lower.drafts import DraftProgram, DraftStep, Read, place_of
from dovetail.build.lower.kernels import build_kernel
from dovetail.build.lower.memory.aliases import find_slots
from dovetail.build.lower.plugin_shapes import PluginShapes, find_plugin_shapes
from dovetail.build.lower.program_context import ChosenPlugin, ProgramContext
from dovetail.errors import InternalError
from dovetail.expr import Dim, dims_from_sizes, symbols_of
from dovetail.network.inference.shapes import size_symbols
from dovetail.network.plugins import PluginEntry
from dovetail.plan.manifest import ProgramRecord, StepRecord, SymbolRecord, ValueRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import PackedWeight, Provider, TensorSpec
from dovetail.provider.origins import find_layers, find_passes
from dovetail.provider.schemas.shape_slots import reads_only_shape

__all__ = ["Emission", "LowerBody"]

LowerBody = Callable[[ir.Graph], tuple[ProgramRecord, Sequence[ir.Value]]]
"""Lowers a body; gives its program, and the values that it captures, in the order of its captures."""


class Emission:
    """Turns one graph into a draft, in which each tensor of the network is one value where it is made.

    Args:
        context: What all programs of the profile share.
        graph: The network, or the body of a loop or branch.
        lower_body: What bodies inside it are lowered with.
        is_body: Whether values may come from outside.
    """

    def __init__(self, context: ProgramContext, graph: ir.Graph, lower_body: LowerBody, *, is_body: bool) -> None:
        self._context, self._graph, self._lower_body, self._is_body = context, graph, lower_body, is_body
        self._values: list[ValueRecord] = []
        self._dims: list[tuple[Dim, ...] | None] = []
        self._numbers: dict[ir.Value, int] = {}
        self._steps: list[DraftStep] = []
        self.captured: dict[ir.Value, int] = {}
        """Values of a body that come from outside -> their number inside."""

    def emit(self) -> DraftProgram:
        """The whole graph as a draft."""
        inputs = [self._add_input(value) for value in self._graph.inputs]
        for group in self._context.assigner.groups(self._graph):
            self._emit(group)
        outputs = [self._read_output(value) for value in self._graph.outputs]
        return DraftProgram(
            values=self._values,
            dims=self._dims,
            origins=range(len(self._values)),
            inputs=inputs,
            steps=self._steps,
            outputs=outputs,
            symbols=[] if self._is_body else self._static_symbols(inputs),
            captured=list(self.captured.values()),
            is_body=self._is_body,
        )

    def _static_symbols(self, inputs: Sequence[int]) -> list[SymbolRecord]:
        """All but elements of inputs that no shape depends on: a run that changes only those changes no shape."""
        dims = [dim for known in self._dims for dim in known or () if dim is not None]
        dims += [size.upper for node in self._graph.all_nodes() for size in size_symbols(node)]
        used = frozenset[str]().union(*map(symbols_of, dims))
        return [
            SymbolRecord(name=name, source=symbol.source, value=inputs[symbol.input_index], index=symbol.index)
            for name, symbol in self._context.static.items()
            if symbol.source != "element" or name in used
        ]

    # values

    def _add(self, value: ir.Value, record: ValueRecord) -> int:
        dims = self._context.dims(value)
        self._values.append(record)
        self._dims.append(None if dims is None else tuple(dims))
        return self._numbers.setdefault(value, len(self._values) - 1)

    def _add_input(self, value: ir.Value) -> int:
        context, dims = self._context, self._context.dims(value)
        place = context.place(value) if self._is_body else context.io_place(value)
        known = tuple(dims) if dims is not None and context.is_static(dims) and not self._is_body else None
        return self._add(value, context.make_value(value.name or "", place, "input", dims=known))

    def _add_result(self, value: ir.Value, *, memory: str = "", is_dynamic: bool = False) -> int:
        """The number of what a step makes; -1 where nobody reads it and nothing is known of it."""
        if not value.name or (value.dtype is None and not value.uses() and not value.is_graph_output()):
            return -1
        place = msgspec.structs.replace(self._context.place(value), memory=memory)
        record = self._context.plan_value(
            value.name, place, self._context.dims(value), can_plan=not (is_dynamic or self._is_body)
        )
        return self._add(value, record)

    def _number(self, value: ir.Value, memory: str) -> int:
        """The number of a value; constants and what comes from outside get one when it is first asked for."""
        known = self._numbers.get(value)
        if known is not None:
            return known
        tensor, producer = ir.convenience.get_const_tensor(value), value.producer()
        if tensor is not None and (producer is None or producer.op_type == "Constant"):
            return self._add(value, self._make_constant(value, tensor, memory))
        if not self._is_body:
            raise InternalError("a value is used before it is made", where=f"value '{value.name}'")
        place = self._context.place(value)
        kind = "object" if place.type else "dynamic"
        self.captured[value] = self._add(value, self._context.make_value(value.name or "", place, kind))
        return self.captured[value]

    def _make_constant(self, value: ir.Value, tensor: ir.TensorProtocol, memory: str) -> ValueRecord:
        blob = self._context.blobs.add_constant(value.name or "", tensor)
        place = msgspec.structs.replace(self._context.place(value), memory=memory)
        dims = None if place.type else dims_from_sizes(array_from_tensor(tensor).shape)
        return self._context.make_value(value.name or "", place, "constant", dims=dims, blob=blob)

    # what steps read

    def _read(self, value: ir.Value | None, place: TensorSpec | None = None) -> Read:
        """A value in a place; by default row by row in its own type, on the host."""
        if value is None:
            return Read(value=-1)
        wanted = self._context.place(value) if place is None else place
        return Read(value=self._number(value, wanted.memory), place=wanted)

    def _read_in(self, value: ir.Value | None, memory: str) -> Read:
        """A value row by row in a memory."""
        if value is None:
            return Read(value=-1)
        return self._read(value, msgspec.structs.replace(self._context.place(value), memory=memory))

    def _read_shape(self, value: ir.Value | None) -> Read:
        """A value of which only the shape matters, wherever it is."""
        number = None if value is None else self._numbers.get(value)
        if number is None or not self._values[number].is_linear:
            return self._read(value)
        return Read(value=number)

    def _read_output(self, value: ir.Value) -> Read:
        return self._read(value) if self._is_body else self._read(value, self._context.io_place(value))

    # steps

    def _emit(self, group: Group) -> None:
        layer = group.layers[0]
        if group.builds:
            step = self._make_partition(group)
        elif layer.entry is not None:
            step = self._make_plugin(layer, layer.entry, self._context.chosen[layer.node])
        elif layer.is_control:
            step = self._make_control(layer)
        else:
            step = self._make_kernel(layer)
        self._steps.append(step)

    def _make_kernel(self, layer: NodeLayer) -> DraftStep:
        provider = self._context.assigner.provider(layer.provider)
        owner = StepOwner(provider=provider, name=layer.name)
        built = build_kernel(layer, provider, self._context)
        inputs = [
            self._add_packed(slot, value, layer, owner, built.weights[slot])
            if value is not None and slot in built.weights
            else self._read_slot(slot, value, layer, provider)
            for slot, value in enumerate(layer.node.inputs)
        ]
        record = StepRecord(
            name=layer.name,
            kind="kernel",
            provider=layer.provider,
            op=layer.op,
            domain=layer.domain,
            opset=layer.opset,
            attributes=attribute_records(layer.node, self._context.blobs),
            inputs=[],
            outputs=[],
            workspace_bytes=built.workspace_bytes,
            kernel=self._context.store.kernel_record(owner, built),
            **_describe_origins(layer.node),
        )
        outputs = [self._add_result(value, memory=provider.memory_name) for value in layer.node.outputs]
        aliases = self._find_kernel_slots(layer, provider)
        return DraftStep(record=record, inputs=tuple(inputs), outputs=_trim(outputs), aliases=aliases)

    def _find_kernel_slots(self, layer: NodeLayer, provider: Provider) -> tuple[int, ...]:
        """Kernels of the host may be given any input's memory for a result; those of devices are not asked to."""
        if not provider.memory.is_host or self._is_body:
            return ()
        inputs = ["" if value is None else value.name or "" for value in layer.node.inputs]
        return find_slots(self._context.aliases, inputs, [value.name or "" for value in layer.node.outputs])

    def _add_packed(self, slot: int, value: ir.Value, layer: NodeLayer, owner: StepOwner, weight: PackedWeight) -> Read:
        """A constant in the form that the kernel wants it, in the memory that it reads it from."""
        name, array = value.name or "", weight.array
        blob = self._context.store.add_packed(owner, name, weight)
        place = TensorSpec(dtype=array.dtype.name, memory=self._slot_memory(slot, layer, owner.provider))
        dims = dims_from_sizes(array.shape)
        self._values.append(self._context.make_value(name, place, "constant", dims=dims, blob=blob))
        self._dims.append(dims)
        return Read(value=len(self._values) - 1)

    def _read_slot(self, slot: int, value: ir.Value | None, layer: NodeLayer, provider: Provider) -> Read:
        """An input of a kernel, in the memory that it reads it from."""
        if provider.memory.is_host:
            return self._read_shape(value) if reads_only_shape(layer.op, layer.domain) else self._read(value)
        return self._read_in(value, self._slot_memory(slot, layer, provider))

    def _slot_memory(self, slot: int, layer: NodeLayer, provider: Provider) -> str:
        on_host = call(provider.id, "host_inputs", provider.host_inputs, layer.op, layer.domain, layer.opset)
        return "" if slot in on_host else provider.memory_name

    def _make_partition(self, group: Group) -> DraftStep:
        """A compiled partition; its weights are stored once for all programs."""
        border, built = group.border, group.find_built(self._context.profile)
        if border is None or built is None:
            raise InternalError("a partition without a border", where=f"provider '{group.provider}'")
        provider = self._context.assigner.provider(group.provider)
        names = [layer.name for layer in group.layers]
        name = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)} layers)"
        partition = self._context.store.partition_record(
            StepOwner(provider=provider, name=name),
            built,
            inputs=[value.name or "" for value in border.inputs],
            outputs=[value.name or "" for value in border.outputs],
            layers=names,
            constants=border.constants,
        )
        record = StepRecord(
            name=name,
            kind="partition",
            provider=group.provider,
            op="Partition",
            inputs=[],
            outputs=[],
            workspace_bytes=built.workspace_bytes,
            partition=partition,
        )
        inputs = [self._read_in(value, provider.memory_name) for value in border.inputs]
        outputs = [self._add_result(value, memory=provider.memory_name) for value in border.outputs]
        aliases = find_slots(built.aliases, partition.inputs, partition.outputs)
        return DraftStep(record=record, inputs=tuple(inputs), outputs=tuple(outputs), aliases=aliases)

    def _make_control(self, layer: NodeLayer) -> DraftStep:
        inputs = [self._read(value) for value in layer.node.inputs]
        lowered = [self._lower_body(graph) for graph in _bodies(layer.node)]
        captures = [tuple(self._read(value) for value in outside) for _, outside in lowered]
        record = StepRecord(
            name=layer.name,
            kind="control",
            provider=layer.provider,
            op=layer.op,
            opset=layer.opset,
            attributes=attribute_records(layer.node, self._context.blobs),
            inputs=[],
            outputs=[],
            bodies=[program for program, _ in lowered],
        )
        outputs = [self._add_result(value, is_dynamic=True) for value in layer.node.outputs]
        return DraftStep(record=record, inputs=tuple(inputs), outputs=_trim(outputs), captures=tuple(captures))

    def _make_plugin(self, layer: NodeLayer, entry: PluginEntry, chosen: ChosenPlugin) -> DraftStep:
        node, count = layer.node, entry.num_inputs
        provider = self._context.assigner.provider(layer.provider)
        memory = provider.memory_name
        owner = StepOwner(provider=provider, name=layer.name)
        places = [msgspec.structs.replace(place_of(layout), memory=memory) for layout in chosen.combination]
        inputs = [self._read(value, place) for value, place in zip(node.inputs[:count], places[:count], strict=True)]
        shape_inputs = [self._read(value) for value in node.inputs[count:]]
        shapes = find_plugin_shapes(node, entry, chosen.handle, self._context, f"step{len(self._steps)}")
        record = StepRecord(
            name=layer.name,
            kind="plugin",
            provider=layer.provider,
            op=chosen.record.name,
            domain=node.domain,
            inputs=[],
            outputs=[],
            tactic=chosen.tactic,
            workspace_bytes=chosen.workspace_bytes,
            asks_workspace=chosen.asks_workspace,
            plugin=chosen.record,
            kernel=None if chosen.kernel is None else self._context.store.kernel_record(owner, chosen.kernel),
            sizes=dict(shapes.bounds),
        )
        return DraftStep(
            record=record,
            inputs=tuple(inputs),
            shape_inputs=tuple(shape_inputs),
            outputs=tuple(self._add_plugin_outputs(node, places[count:], shapes)),
            symbols=tuple(shapes.symbols),
            aliases=chosen.aliases,
        )

    def _add_plugin_outputs(self, node: ir.Node, places: Sequence[TensorSpec], shapes: PluginShapes) -> list[int]:
        numbers = []
        for value, place, dims in zip(node.outputs, places, shapes.outputs, strict=True):
            known = self._context.dims(value)
            record = self._context.plan_value(value.name or "", place, known, can_plan=not self._is_body)
            if record.kind == "dynamic":
                record = msgspec.structs.replace(record, dims=tuple(dims))
            numbers.append(self._add(value, record))
        return numbers


def _describe_origins(node: ir.Node) -> dict[str, Any]:
    """What a step says of the layers and passes that it comes from, where a pass made it."""
    passes = find_passes(node)
    return {"layers": find_layers(node), "made_by": ", ".join(passes)} if passes else {}


def _bodies(node: ir.Node) -> list[ir.Graph]:
    names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
    return [node.attributes[name].as_graph() for name in names]


def _trim(outputs: list[int]) -> tuple[int, ...]:
    while outputs and outputs[-1] < 0:
        outputs = outputs[:-1]
    return tuple(outputs)
