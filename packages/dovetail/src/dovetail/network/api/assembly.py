"""Making the model: all layers, in an order that respects what depends on what, with control flow as nested graphs."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from dovetail.errors import ModelError
from dovetail.network.api.control_flow import write_conditional, write_loop
from dovetail.network.api.emission import Emitter
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.layers.special import IAssertionLayer
from dovetail.network.api.loops import ILoop
from dovetail.network.api.scopes import Construct, Scopes, construct_of, layers_within
from dovetail.network.api.tensor import ITensor
from dovetail.types import TensorLocation

if TYPE_CHECKING:
    from dovetail.network.api.core import NetworkCore

__all__ = ["Assembler", "assemble"]

Unit = ILayer | Construct
"""What is written as one piece in a scope: a layer, or a whole construct."""


def assemble(network: NetworkCore) -> ir.Model:
    """The whole network as a model."""
    if not network._outputs:
        raise ModelError("the network has no output", where="to_model", fix="call mark_output")
    emitter = Emitter(network, reserved=_tensor_names(network))
    inputs = [_keep_location(emitter.add_input(tensor), tensor) for tensor in network._inputs]
    assembler = Assembler(network, emitter)
    assembler.write(assembler.units(None), None)
    outputs = [_output_value(assembler, tensor) for tensor in network._outputs]
    _mark_debug(network, emitter)
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=emitter.block,
        initializers=[value for value in emitter.initializers if value.uses()],
        opset_imports={"": emitter.opsets[""]},
        name=network.name or "network",
    )
    for node in ir.traversal.RecursiveGraphIterator(graph):
        graph.opset_imports.setdefault(node.domain, emitter.opsets[node.domain])
    version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", emitter.opsets[""])])
    return ir.Model(graph, ir_version=version, producer_name="dovetail")


def _tensor_names(network: NetworkCore) -> frozenset[str]:
    names: dict[str, ITensor] = {}
    made = (tensor for layer in network._layers for tensor in layer._outputs)
    for tensor in (*network._inputs, *made):
        other = names.setdefault(tensor.name, tensor)
        if other is not tensor:
            makers = [t._layer._where if t._layer is not None else "an input" for t in (other, tensor)]
            raise ModelError(
                f"two tensors are named '{tensor.name}'", where="to_model", got=" and ".join(makers), fix="rename one"
            )
    return frozenset(names)


def _output_value(assembler: Assembler, tensor: ITensor) -> ir.Value:
    emitter, scope = assembler.emitter, assembler.scopes.of_tensor(tensor)
    if scope is not None:
        raise ModelError(
            f"output '{tensor.name}' is made inside '{scope.name}'",
            where="to_model",
            fix="mark the output of add_loop_output or add_output",
        )
    if emitter[tensor].producer() is None and tensor._layer is not None:
        # A constant: a graph's output must come from a node.
        with emitter.writing(tensor._layer):
            value = emitter.op("Identity", emitter[tensor])
            value.name = tensor.name
            emitter.alias(tensor, value)
    value = _keep_location(emitter.write_output(tensor), tensor)
    if tensor in emitter.network._shape_outputs:
        value.metadata_props["dovetail.shape_output"] = "1"
    return value


def _keep_location(value: ir.Value, tensor: ITensor) -> ir.Value:
    """Note on the value of an input or output that the network places it in host memory."""
    if tensor.location == TensorLocation.HOST:
        value.metadata_props["dovetail.location"] = "host"
    return value


def _mark_debug(network: NetworkCore, emitter: Emitter) -> None:
    for tensor in network._debug:
        if tensor in emitter.values:
            emitter[tensor].metadata_props["dovetail.debug"] = "1"


class Assembler:
    """Writes the units of a scope in order."""

    def __init__(self, network: NetworkCore, emitter: Emitter) -> None:
        self.network = network
        self.emitter = emitter
        self.scopes = Scopes(network)
        self._ranks = {layer: rank for rank, layer in enumerate(network._layers)}
        self._units: dict[Construct | None, list[Unit]] = {}
        for layer in network._layers:
            if construct_of(layer) is None:
                self._units.setdefault(self.scopes.of_layer(layer), []).append(layer)
        for construct in network._constructs:
            self._units.setdefault(self.scopes.parent(construct), []).append(construct)
        self._within = {
            construct: layers_within(self.scopes, construct, network._layers) for construct in network._constructs
        }

    def units(self, scope: Construct | None) -> list[Unit]:
        """All units of a scope."""
        return self._units.get(scope, [])

    def write(self, units: Iterable[Unit], scope: Construct | None) -> None:
        """Write units of a scope, each after those it depends on."""
        for unit in self._sorted(list(units), scope):
            if isinstance(unit, ILayer):
                self.emitter.emit_layer(unit)
            elif isinstance(unit, ILoop):
                write_loop(self, unit)
            else:
                write_conditional(self, unit)

    def needed(self, tensors: Sequence[ITensor], scope: Construct) -> list[Unit]:
        """The units of a scope that some tensors depend on."""
        found: set[Unit] = set()
        work = [unit for unit in (self._maker(tensor, scope) for tensor in tensors) if unit is not None]
        while work:
            unit = work.pop()
            if unit not in found:
                found.add(unit)
                work += self._required(unit, scope)
        return [unit for unit in self.units(scope) if unit in found]

    def refuse_stray_assertions(self, scope: Construct, written: Sequence[Unit]) -> None:
        """An assertion of a conditional that no branch needs would silently be left out."""
        for unit in self.units(scope):
            if isinstance(unit, IAssertionLayer) and unit not in written:
                raise ModelError(
                    f"the assertion depends on an input of '{scope.name}', but belongs to neither branch",
                    where=unit._where,
                    fix="assert on the tensor outside the conditional",
                )

    def _maker(self, tensor: ITensor, scope: Construct | None) -> Unit | None:
        """The unit of the scope that makes a tensor; None when it comes from outside or from the boundary."""
        layer = tensor._layer
        if layer is None or self.scopes.of_layer(layer) is not scope:
            return None
        construct = construct_of(layer)
        if construct is None:
            return layer
        return None if construct is scope else construct

    def _required(self, unit: Unit, scope: Construct | None) -> list[Unit]:
        layers = [unit] if isinstance(unit, ILayer) else self._within[unit]
        tensors = [tensor for layer in layers for tensor in layer._inputs if tensor is not None]
        makers = (self._maker(tensor, scope) for tensor in tensors)
        return [maker for maker in makers if maker is not None and maker is not unit]

    def _rank(self, unit: Unit) -> int:
        if isinstance(unit, ILayer):
            return self._ranks[unit]
        return min((self._ranks[layer] for layer in unit._boundary()), default=len(self._ranks))

    def _sorted(self, units: list[Unit], scope: Construct | None) -> list[Unit]:
        members = set(units)
        waits = {unit: {other for other in self._required(unit, scope) if other in members} for unit in units}
        users: dict[Unit, list[Unit]] = {}
        for unit, others in waits.items():
            for other in others:
                users.setdefault(other, []).append(unit)
        ticket = itertools.count()  # so that two units of the same rank are never compared themselves
        ready = [(self._rank(unit), next(ticket), unit) for unit in units if not waits[unit]]
        heapq.heapify(ready)
        done: list[Unit] = []
        while ready:
            unit = heapq.heappop(ready)[-1]
            done.append(unit)
            for user in users.get(unit, ()):
                waits[user].discard(unit)
                if not waits[user]:
                    heapq.heappush(ready, (self._rank(user), next(ticket), user))
        if len(done) != len(units):
            stuck = [unit for unit in units if unit not in set(done)]
            raise ModelError(
                "layers depend on each other in a circle",
                where="to_model",
                got=", ".join(f"'{unit.name}'" for unit in stuck[:5]),
                fix="use add_loop and a recurrence for a value that feeds back",
            )
        return done
