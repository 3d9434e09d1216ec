"""From chosen layers to a program: values with their kinds, steps in order, reformats, copies, and the memory plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from dovetail.build.assign.assigner import Assigner, Group
from dovetail.build.assign.layers import NodeLayer
from dovetail.build.lower.attributes import attribute_records
from dovetail.build.lower.blobs import array_from_tensor
from dovetail.build.lower.built_records import StepOwner
from dovetail.build.lower.drafts import Draft, encode_dims, plan_memory
from dovetail.build.lower.kernels import build_kernel
from dovetail.build.lower.program_context import ChosenPlugin, Place, ProgramContext, place_of
from dovetail.errors import BuildError, InternalError
from dovetail.expr import Constant, Expr, SizeTensor, Symbol, encode_expr, symbols_of
from dovetail.network.inference.shapes import size_symbols
from dovetail.network.plugins import PluginEntry
from dovetail.plan.manifest import ProgramRecord, StepRecord, SymbolRecord
from dovetail.provider.calls import call
from dovetail.provider.interfaces import PackedWeight, Provider
from dovetail.provider.schemas.shape_slots import reads_only_shape
from dovetail.types import TensorFormat

__all__ = ["Lowering"]


class Lowering:
    """Turns one graph into one program; bodies of control flow are lowered by children."""

    def __init__(self, context: ProgramContext, graph: ir.Graph, parent: Lowering | None = None) -> None:
        self._context = context
        self._graph = graph
        self._parent = parent
        self._drafts: list[Draft] = []
        self._index: dict[tuple[ir.Value, Place], int] = {}
        self._home: dict[ir.Value, Place] = {}
        self._steps: list[StepRecord] = []
        self._symbols: dict[str, SymbolRecord] = {}
        self._captures: list[tuple[int, int]] = []
        self._groups = context.assigner.groups(graph)
        self._consumers = _last_uses(self._groups)
        self._position = 0
        self.aliases: dict[ir.Value, ir.Value] = {}
        """Network outputs that share memory with a network input."""

    def lower(self) -> ProgramRecord:
        """The whole program, with memory planned when there is a profile."""
        inputs = [self._add_input(value) for value in self._graph.inputs]
        if self._parent is None:
            self._add_static_symbols(inputs)
        for position, group in enumerate(self._groups):
            self._position = position
            self._emit(group)
        self._position = len(self._groups)
        outputs = [self._add_output(value) for value in self._graph.outputs]
        if self._parent is not None:
            self._note_dims(outputs)
        program = ProgramRecord(
            inputs=inputs,
            outputs=outputs,
            values=[draft.record() for draft in self._drafts],
            steps=self._steps,
            symbols=self._kept_symbols(),
            captures=self._captures,
        )
        return program if self._parent is not None or self._context.is_open else plan_memory(program)

    def _kept_symbols(self) -> list[SymbolRecord]:
        """All but elements of inputs that no shape depends on: a run that changes only those changes no shape."""
        dims = [dim for value, _ in self._index for dim in self._context.dims(value) or ()]
        dims += [size.upper for node in self._graph.all_nodes() for size in size_symbols(node)]
        used = frozenset[str]().union(*(symbols_of(dim) for dim in dims if dim is not None))
        return [
            symbol
            for name, symbol in self._symbols.items()
            if symbol.source != "element" or name not in self._context.static or name in used
        ]

    # values

    def _add(self, value: ir.Value, place: Place, draft: Draft) -> int:
        self._drafts.append(draft)
        self._index[value, place] = len(self._drafts) - 1
        self._home.setdefault(value, place)
        return len(self._drafts) - 1

    def _add_input(self, value: ir.Value) -> int:
        place = self._context.io_place(value) if self._parent is None else self._context.place(value)
        dims = self._context.dims(value)
        stored = encode_dims(dims) if self._context.is_static(dims) and self._parent is None else None
        return self._add(value, place, Draft(value.name or "", place, "input", stored))

    def _add_static_symbols(self, inputs: Sequence[int]) -> None:
        for name, symbol in self._context.static.items():
            index = inputs[symbol.input_index]
            self._symbols[name] = SymbolRecord(name=name, source=symbol.source, value=index, index=symbol.index)

    def _draft(self, value: ir.Value, place: Place) -> Draft:
        """A new value: planned when its size is known before the run, else dynamic."""
        if place.type:
            return Draft(value.name or "", place, "object")
        dims = self._context.dims(value)
        static = self._parent is None and self._context.is_static(dims)
        bound = self._context.ranges.bound(dims or ()) if static else None
        is_planned = static and (self._context.is_open or bound is not None)
        if is_planned:
            return Draft(value.name or "", place, "planned", encode_dims(dims), bound=bound)
        return Draft(value.name or "", place, "dynamic")

    def _need(self, value: ir.Value | None, place: Place | None = None) -> int:
        """The number of a value in a place, reformatting and copying it when it is only elsewhere."""
        if value is None:
            return -1
        place = self._context.place(value) if place is None else place
        known = self._index.get((value, place))
        if known is not None:
            return known
        if value not in self._home and not self._bring_in(value, place.memory):
            raise InternalError("a value is used before it is made", where=f"value '{value.name}'")
        known = self._index.get((value, place))
        return self._move(value, place) if known is None else known

    def _need_in(self, value: ir.Value | None, memory: str) -> int:
        """The number of a value row by row in a memory."""
        return -1 if value is None else self._need(value, replace(self._context.place(value), memory=memory))

    def _need_shape(self, value: ir.Value | None) -> int:
        """The number of a value of which only the shape matters, wherever it is."""
        home = None if value is None else self._home.get(value)
        if value is None or home is None or home.format is not TensorFormat.LINEAR:
            return self._need(value)
        return self._index[value, home]

    def _bring_in(self, value: ir.Value, memory: str) -> bool:
        tensor = ir.convenience.get_const_tensor(value)
        producer = value.producer()
        if tensor is not None and (producer is None or producer.op_type == "Constant"):
            blob = self._context.blobs.add_constant(value.name or "", tensor)
            place = replace(self._context.place(value), memory=memory)
            dims = None if place.type else list(array_from_tensor(tensor).shape)
            self._add(value, place, Draft(value.name or "", place, "constant", dims, blob=blob))
            return True
        if self._parent is None:
            return False
        outside = self._parent._need(value)
        place = self._context.place(value)
        inside = self._add(value, place, Draft(value.name or "", place, "object" if place.type else "dynamic"))
        self._captures.append((outside, inside))
        return True

    def _move(self, value: ir.Value, place: Place) -> int:
        """Bring a value to another memory, another format, or both.

        Who has the value changes its format; a device that cannot leaves that to the host.
        """
        home = self._home[value]
        draft = self._drafts[self._index[value, home]]
        if (home.dtype, home.format) != (place.dtype, place.format):
            memory = self._find_reformatter(value, home, place)
            source, target = replace(home, memory=memory), replace(place, memory=memory)
            self._need(value, source)
            index = self._index.get((value, target))
            index = self._reformat(value, source, target) if index is None else index
            return index if target == place else self._transfer(value, target, place)
        if draft.kind == "constant":
            return self._add(value, place, Draft(draft.name, place, "constant", draft.dims, blob=draft.blob))
        return self._transfer(value, home, place)

    def _find_reformatter(self, value: ir.Value, source: Place, target: Place) -> str:
        """The memory in which a format is changed: where the value is, or the host's."""
        if not source.memory:
            return ""
        provider = self._context.assigner.provider(source.memory)
        return source.memory if self._context.can_reformat(value, source, target, provider) else ""

    def _reformat(self, value: ir.Value, source: Place, place: Place) -> int:
        target = self._add(value, place, self._draft(value, place))
        name = f"Reformat {value.name} {source.dtype}:{source.format.name} -> {place.dtype}:{place.format.name}"
        provider = place.memory or None
        self._append(name, "reformat", "Reformat", [self._index[value, source]], [target], provider=provider)
        return target

    def _transfer(self, value: ir.Value, source: Place, place: Place) -> int:
        """Copy a value to another memory; by way of the host between devices that do not know each other."""
        provider = _find_copier(self._context.assigner, source.memory, place.memory)
        if provider is None:
            source = replace(source, memory="")
            self._need(value, source)
        index = self._index[value, source]
        target = self._add(value, place, self._draft(value, place))
        name = f"Copy {value.name} {source.memory or 'host'} -> {place.memory or 'host'}"
        self._append(name, "copy", "Copy", [index], [target], provider=provider or place.memory)
        return target

    def _copy(self, value: ir.Value, place: Place, source: int, kind: str | None = None) -> int:
        """A second value with the same contents and memory of its own."""
        draft = self._draft(value, place)
        if kind is not None and draft.kind == "planned":
            draft.kind = kind
        self._drafts.append(draft)
        target = len(self._drafts) - 1
        if place.memory:
            self._append(f"Copy {value.name}", "copy", "Copy", [source], [target], provider=place.memory)
        elif place.format is TensorFormat.LINEAR:
            self._append(f"Copy {value.name}", "kernel", "Identity", [source], [target], opset=16)
        else:
            self._append(f"Copy {value.name}", "reformat", "Reformat", [source], [target])
        return target

    def _append(
        self,
        name: str,
        kind: str,
        op: str,
        inputs: list[int],
        outputs: list[int],
        *,
        opset: int = 1,
        provider: str | None = None,
    ) -> None:
        used = provider or self._context.provider.id
        self._steps.append(
            StepRecord(name=name, kind=kind, provider=used, op=op, opset=opset, inputs=inputs, outputs=outputs)
        )

    def _add_output(self, value: ir.Value) -> int:
        if self._parent is not None:
            return self._need(value)
        place = self._context.io_place(value)
        index = self._need(value, place)
        draft = self._drafts[index]
        if draft.kind == "dynamic" and place.format is not TensorFormat.LINEAR:
            raise BuildError(
                "the shape of an output that only the run knows cannot be read back from a packed format",
                where=f"tensor '{value.name}'",
                expected="LINEAR among its allowed formats",
                got=place.format.name,
                fix="allow LINEAR for the output",
            )
        if draft.kind == "planned" and draft.alias is None and not self._is_alias_source(index):
            draft.kind = "output"
            return index
        if draft.kind in ("dynamic", "output") and value in self.aliases:
            return index
        return index if draft.kind in ("dynamic", "object") else self._copy(value, place, index, "output")

    def _note_dims(self, outputs: Sequence[int]) -> None:
        """Keep what is known of the results of a body: nothing else tells their shape when a loop never runs."""
        for index, value in zip(outputs, self._graph.outputs, strict=True):
            draft, dims = self._drafts[index], self._context.dims(value)
            if draft.kind == "dynamic" and draft.dims is None and dims is not None:
                draft.dims = [dim.value if isinstance(dim, Constant) else None for dim in dims]

    def _is_alias_source(self, index: int) -> bool:
        return any(draft.alias == index for draft in self._drafts)

    # steps

    def _emit(self, group: Group) -> None:
        layer = group.layers[0]
        if group.builds:
            self._emit_partition(group)
        elif layer.entry is not None:
            self._emit_plugin(layer, layer.entry, self._context.chosen[layer.node])
        elif layer.is_control:
            self._emit_control(layer)
        else:
            self._emit_kernel(layer)

    def _emit_kernel(self, layer: NodeLayer) -> None:
        provider = self._context.assigner.provider(layer.provider)
        owner = StepOwner(provider=provider, name=layer.name)
        built = build_kernel(layer, provider, self._context)
        inputs = [
            self._add_packed(slot, value, layer, owner, built.weights[slot])
            if value is not None and slot in built.weights
            else self._need_port(slot, value, layer, provider)
            for slot, value in enumerate(layer.node.inputs)
        ]
        outputs = [self._add_result(value, memory=provider.memory_name) for value in layer.node.outputs]
        self._steps.append(
            StepRecord(
                name=layer.name,
                kind="kernel",
                provider=layer.provider,
                op=layer.op,
                domain=layer.domain,
                opset=layer.opset,
                attributes=attribute_records(layer.node, self._context.blobs),
                inputs=inputs,
                outputs=_trim(outputs),
                workspace_bytes=built.workspace_bytes,
                kernel=self._context.store.kernel_record(owner, built),
            )
        )

    def _add_packed(self, slot: int, value: ir.Value, layer: NodeLayer, owner: StepOwner, weight: PackedWeight) -> int:
        """A constant in the form that the kernel wants it, in the memory that it reads it from."""
        name = value.name or ""
        blob = self._context.store.add_packed(owner, name, weight)
        memory = self._port_memory(slot, layer, owner.provider)
        place = Place(weight.array.dtype.name, memory=memory)
        self._drafts.append(Draft(name, place, "constant", list(weight.array.shape), blob=blob))
        return len(self._drafts) - 1

    def _need_port(self, slot: int, value: ir.Value | None, layer: NodeLayer, provider: Provider) -> int:
        """An input of a kernel, in the memory that it reads it from."""
        if provider.memory.is_host:
            is_idle = reads_only_shape(layer.op, layer.domain)
            return self._need_shape(value) if is_idle else self._need(value)
        return self._need_in(value, self._port_memory(slot, layer, provider))

    def _port_memory(self, slot: int, layer: NodeLayer, provider: Provider) -> str:
        on_host = call(provider.id, "host_inputs", provider.host_inputs, layer.op, layer.domain, layer.opset)
        return "" if slot in on_host else provider.memory_name

    def _emit_partition(self, group: Group) -> None:
        """A compiled partition; its weights are stored once for all programs."""
        border, built = group.border, group.find_built(self._context.profile)
        if border is None or built is None:
            raise InternalError("a partition without a border", where=f"provider '{group.provider}'")
        provider = self._context.assigner.provider(group.provider)
        names = [layer.name for layer in group.layers]
        name = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)} layers)"
        record = self._context.store.partition_record(
            StepOwner(provider=provider, name=name),
            built,
            inputs=[value.name or "" for value in border.inputs],
            outputs=[value.name or "" for value in border.outputs],
            layers=names,
            constants=border.constants,
        )
        self._steps.append(
            StepRecord(
                name=name,
                kind="partition",
                provider=group.provider,
                op="Partition",
                inputs=[self._need_in(value, provider.memory_name) for value in border.inputs],
                outputs=[self._add_result(value, memory=provider.memory_name) for value in border.outputs],
                workspace_bytes=built.workspace_bytes,
                partition=record,
            )
        )

    def _add_result(self, value: ir.Value, *, dynamic: bool = False, memory: str = "") -> int:
        if not value.name or (value.dtype is None and not value.uses() and not value.is_graph_output()):
            return -1
        place = replace(self._context.place(value), memory=memory)
        draft = Draft(value.name or "", place, "dynamic") if dynamic and not place.type else self._draft(value, place)
        return self._add(value, place, draft)

    def _emit_control(self, layer: NodeLayer) -> None:
        graphs = _bodies(layer.node)
        inputs = [self._need(value) for value in layer.node.inputs]
        bodies = [Lowering(self._context, graph, self).lower() for graph in graphs]
        outputs = [self._add_result(value, dynamic=True) for value in layer.node.outputs]
        self._steps.append(
            StepRecord(
                name=layer.name,
                kind="control",
                provider=layer.provider,
                op=layer.op,
                opset=layer.opset,
                attributes=attribute_records(layer.node, self._context.blobs),
                inputs=inputs,
                outputs=_trim(outputs),
                bodies=bodies,
            )
        )

    # plugins

    def _emit_plugin(self, layer: NodeLayer, entry: PluginEntry, chosen: ChosenPlugin) -> None:
        node, count = layer.node, entry.num_inputs
        values = list(node.inputs[:count])
        memory = self._context.assigner.provider(layer.provider).memory_name
        places = [replace(place_of(layout), memory=memory) for layout in chosen.combination]
        inputs = [self._need(value, place) for value, place in zip(values, places[:count], strict=True)]
        shape_inputs = [self._need(value) for value in node.inputs[count:]]
        inputs = self._protect_aliased(chosen, node, places, inputs)
        dims = self._plugin_dims(layer, entry, chosen, inputs, shape_inputs)
        outputs = [
            self._add_plugin_output(value, place, dims.outputs[index])
            for index, (value, place) in enumerate(zip(node.outputs, places[count:], strict=True))
        ]
        self._share_aliased(chosen, values, node.outputs, inputs, outputs)
        for name, output in dims.size_outputs.items():
            self._symbols[name] = SymbolRecord(name=name, source="element", value=outputs[output], index=0)
        self._steps.append(
            StepRecord(
                name=layer.name,
                kind="plugin",
                provider=layer.provider,
                op=chosen.record.name,
                domain=node.domain,
                inputs=inputs,
                outputs=outputs,
                shape_inputs=shape_inputs,
                tactic=chosen.tactic,
                workspace_bytes=chosen.workspace_bytes,
                asks_workspace=chosen.asks_workspace,
                plugin=chosen.record,
                sizes=dims.bounds,
            )
        )

    def _add_plugin_output(self, value: ir.Value, place: Place, local: list[Expr]) -> int:
        draft = self._draft(value, place)
        if draft.kind == "dynamic":
            draft.dims = [encode_expr(dim) for dim in local]
        return self._add(value, place, draft)

    def _plugin_dims(
        self,
        layer: NodeLayer,
        entry: PluginEntry,
        chosen: ChosenPlugin,
        inputs: Sequence[int],
        shape_inputs: Sequence[int],
    ) -> _LocalDims:
        """The output shapes over symbols of this step alone: dims of its inputs and contents of its shape inputs."""
        prefix = f"step{len(self._steps)}"
        dims = [
            [
                dim if isinstance(dim, Constant) else self._symbol(f"{prefix}_in{i}_{axis}", "dim", inputs[i], axis)
                for axis, dim in enumerate(self._context.dims(value) or ())
            ]
            for i, value in enumerate(layer.node.inputs[: entry.num_inputs])
            if value is not None
        ]
        contents = [
            _constants(value)
            or [self._symbol(f"{prefix}_value{i}_{n}", "element", shape_inputs[i], n) for n in range(_count(value))]
            for i, value in enumerate(layer.node.inputs[entry.num_inputs :])
        ]
        shapes = chosen.handle.get_output_shapes(dims, contents)
        result = _LocalDims(outputs=shapes)
        for size in _sizes(shapes):
            name = f"{prefix}_size{size.output_index}"
            result.bounds[name] = encode_expr(size.upper)
            result.size_outputs[name] = size.output_index
        result.outputs = [
            [Symbol(f"{prefix}_size{d.output_index}") if isinstance(d, SizeTensor) else d for d in shape]
            for shape in shapes
        ]
        return result

    def _symbol(self, name: str, source: str, value: int, index: int) -> Expr:
        self._symbols[name] = SymbolRecord(name=name, source=source, value=value, index=index)
        return Symbol(name)

    def _protect_aliased(
        self,
        chosen: ChosenPlugin,
        node: ir.Node,
        places: Sequence[Place],
        inputs: list[int],
    ) -> list[int]:
        """Copy an input that will be overwritten while somebody still needs it, or that nobody may write to."""
        protected = list(inputs)
        for source in sorted(source for source in chosen.aliases if source >= 0):
            value, draft = node.inputs[source], self._drafts[inputs[source]]
            if value is None:
                continue
            is_needed = self._consumers.get(value, -1) > self._position or value.is_graph_output()
            is_needed = is_needed or node.inputs.count(value) > 1  # another port of this very layer reads it
            is_needed = is_needed or self._is_sent(value)
            # A caller expects an input to change only where an output of the engine is bound to the same memory.
            is_callers = draft.kind == "input" and not node.outputs[chosen.aliases.index(source)].is_graph_output()
            if is_needed or is_callers or draft.kind == "constant" or self._is_from_outside(inputs[source]):
                protected[source] = self._copy(value, places[source], inputs[source])
        return protected

    def _is_sent(self, value: ir.Value) -> bool:
        """Whether a copy to or from a device may still be under way."""
        return sum(value is other for other, _ in self._index) > 1 and any(
            place.memory for other, place in self._index if other is value
        )

    def _is_from_outside(self, index: int) -> bool:
        """Whether a body was handed the value: whoever holds it outside may read it again."""
        captured = any(index == inside for _, inside in self._captures)
        return self._parent is not None and (self._drafts[index].kind == "input" or captured)

    def _share_aliased(
        self,
        chosen: ChosenPlugin,
        values: Sequence[ir.Value | None],
        results: Sequence[ir.Value],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        for position, source in enumerate(chosen.aliases):
            if source < 0:
                continue
            draft, origin = self._drafts[outputs[position]], self._drafts[inputs[source]]
            draft.alias = inputs[source]
            if origin.kind == "dynamic":
                draft.kind = "dynamic"  # there is memory to share only when the run has come to this step
            value, result = values[source], results[position]
            if origin.kind == "input" and value is not None and result.is_graph_output() and draft.kind == "planned":
                draft.kind = "output"
                self.aliases[result] = value


def _find_copier(assigner: Assigner, source: str, target: str) -> str | None:
    """The provider that copies from one memory to another at once."""
    if not source or not target:
        return source or target
    reader, writer = assigner.provider(source), assigner.provider(target)
    for provider in (writer, reader):
        if call(provider.id, "can_copy", provider.can_copy, reader.memory, writer.memory):
            return provider.id
    return None


@dataclass
class _LocalDims:
    outputs: list[list[Expr]]
    bounds: dict[str, Any] = field(default_factory=dict)
    size_outputs: dict[str, int] = field(default_factory=dict)


def _sizes(shapes: Sequence[Sequence[Expr]]) -> list[SizeTensor]:
    return [dim for shape in shapes for dim in shape if isinstance(dim, SizeTensor)]


def _count(value: ir.Value | None) -> int:
    dims = [] if value is None or value.shape is None else [d for d in value.shape.dims if isinstance(d, int)]
    return int(np.prod(dims, dtype=np.int64))


def _constants(value: ir.Value | None) -> list[Expr]:
    """The contents of a shape input that is a constant of the network; plugins may ask whether they are."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return [] if tensor is None else [Constant(int(number)) for number in tensor.numpy().reshape(-1)]


def _bodies(node: ir.Node) -> list[ir.Graph]:
    names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
    return [node.attributes[name].as_graph() for name in names]


def _trim(outputs: list[int]) -> list[int]:
    while outputs and outputs[-1] < 0:
        outputs = outputs[:-1]
    return outputs


def _last_uses(groups: Sequence[Group]) -> dict[ir.Value, int]:
    """The position of the last group that reads each value, bodies included."""
    return {
        value: position
        for position, group in enumerate(groups)
        for layer in group.layers
        for value in _reads(layer.node)
    }


def _reads(node: ir.Node) -> list[ir.Value]:
    values = [value for value in node.inputs if value is not None]
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                values += _reads(inner)
            values += list(attribute.as_graph().outputs)
    return values
