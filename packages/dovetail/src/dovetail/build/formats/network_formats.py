"""Formats for the whole network: the plugin layers with their options, joined by tensors, given to the solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import onnx_ir as ir

from dovetail.build.assign.layers import ASSIGNED_KEY
from dovetail.build.formats.io_formats import io_format
from dovetail.build.formats.select import Edge, FormatLayer, Option, choose_options
from dovetail.build.lower.program_context import ProgramContext
from dovetail.build.tune.plugins import Choice, TunedLayer
from dovetail.build.tune.reformats import ReformatTimer
from dovetail.build.tune.trial import PluginLayer
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.provider.interfaces import Provider, TensorSpec

__all__ = ["choose_formats"]


@dataclass
class _NetworkProblem:
    """The solver's view: plugin layers first, then one fixed layer for each tensor end that is not a plugin."""

    layers: list[FormatLayer] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    tensors: list[ir.Value] = field(default_factory=list)
    """The tensor of each edge."""
    sources: dict[ir.Value, int] = field(default_factory=dict)
    """Tensors that do not come from a plugin; one layer each, so that readers share its reformats."""

    def fix(self, layout: TensorSpec) -> int:
        """A layer with one option: kernels, inputs and outputs take what the network says."""
        self.layers.append(FormatLayer(options=(Option(layouts=(layout,), cost_us=0.0),)))
        return len(self.layers) - 1

    def source(self, value: ir.Value, layout: TensorSpec) -> int:
        """The layer that stands for where a tensor comes from."""
        if value not in self.sources:
            self.sources[value] = self.fix(layout)
        return self.sources[value]

    def join(self, value: ir.Value, producer: tuple[int, int], consumer: tuple[int, int]) -> None:
        self.edges.append(Edge(producer=producer, consumer=consumer))
        self.tensors.append(value)


def choose_formats(
    graph: ir.Graph,
    context: ProgramContext,
    tuned: Mapping[ir.Node, TunedLayer],
    layers: Mapping[ir.Node, PluginLayer],
    tuner: CandidateTuner,
) -> dict[ir.Node, Choice]:
    """The choice of every plugin layer that is best for all of them together, reformats included."""
    if all(len(result.choices) == 1 for result in tuned.values()):
        return {node: result.choices[0] for node, result in tuned.items()}
    problem = _make_problem(graph, context, tuned, layers)
    timer = ReformatTimer(tuner, context.assigner.host)

    def reformat_us(edge: int, source: TensorSpec, target: TensorSpec) -> float:
        value = problem.tensors[edge]
        dims = context.ranges.at(context.dims(value) or [])[1]
        return timer.time_us(dims, source, target, _find_owner(value, context, layers))

    picks = choose_options(problem.layers, problem.edges, reformat_us)
    return {node: result.choices[picks[index]] for index, (node, result) in enumerate(tuned.items())}


def _find_owner(value: ir.Value, context: ProgramContext, layers: Mapping[ir.Node, PluginLayer]) -> Provider:
    """The provider in whose memory a tensor is made; the host's for what callers pass."""
    producer = value.producer()
    if producer is None:
        return context.assigner.host
    if producer in layers:
        return layers[producer].provider
    name = producer.metadata_props.get(ASSIGNED_KEY)
    return context.assigner.host if name is None else context.assigner.provider(name)


def _make_problem(
    graph: ir.Graph,
    context: ProgramContext,
    tuned: Mapping[ir.Node, TunedLayer],
    layers: Mapping[ir.Node, PluginLayer],
) -> _NetworkProblem:
    problem = _NetworkProblem()
    numbers: dict[ir.Node, int] = {}
    for node, result in tuned.items():
        numbers[node] = len(problem.layers)
        options = tuple(Option(layouts=choice.combination, cost_us=choice.time_us) for choice in result.choices)
        problem.layers.append(FormatLayer(options=options))
    for node, number in numbers.items():
        _join_inputs(problem, context, numbers, layers, node, number)
        _join_outputs(problem, context, numbers, layers, node, number)
    return problem


def _join_inputs(
    problem: _NetworkProblem,
    context: ProgramContext,
    numbers: Mapping[ir.Node, int],
    layers: Mapping[ir.Node, PluginLayer],
    node: ir.Node,
    number: int,
) -> None:
    """Every device input comes from a plugin's port or from something that gives the network's layout."""
    for port, value in enumerate(node.inputs[: layers[node].num_inputs]):
        if value is None:
            continue
        producer = value.producer()
        if producer is not None and producer in numbers:
            source_port = layers[producer].num_inputs + (value.index() or 0)
            problem.join(value, (numbers[producer], source_port), (number, port))
        else:
            layout = _io_layout(context, value) if value.is_graph_input() else context.place(value)
            problem.join(value, (problem.source(value, layout), 0), (number, port))


def _join_outputs(
    problem: _NetworkProblem,
    context: ProgramContext,
    numbers: Mapping[ir.Node, int],
    layers: Mapping[ir.Node, PluginLayer],
    node: ir.Node,
    number: int,
) -> None:
    """An output that anything but a plugin's device port reads is also needed in the network's layout."""
    for index, value in enumerate(node.outputs):
        producer = (number, layers[node].num_inputs + index)
        if value.is_graph_output():
            problem.join(value, producer, (problem.fix(_io_layout(context, value)), 0))
        if any(not _is_device_use(user, i, numbers, layers) for user, i in value.uses()):
            problem.join(value, producer, (problem.fix(context.place(value)), 0))


def _is_device_use(
    node: ir.Node, index: int, numbers: Mapping[ir.Node, int], layers: Mapping[ir.Node, PluginLayer]
) -> bool:
    return node in numbers and index < layers[node].num_inputs


def _io_layout(context: ProgramContext, value: ir.Value) -> TensorSpec:
    return msgspec.structs.replace(context.place(value), format=io_format(value).name)
