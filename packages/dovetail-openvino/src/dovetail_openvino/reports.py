"""What a plan tells of a partition of OpenVINO: the nodes that it compiled, the layers in each, shapes and work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dovetail.provider.contract.built import BuildReport, NodeReport
from dovetail.provider.costs import count_bytes
from dovetail.provider.interfaces import ShapeRange
from dovetail.provider.node_costs import count_node, find_usual_sizes, usual_shape
from dovetail.provider.origins import find_layers, find_passes

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["NodeOrigin", "describe_compiled", "read_origins"]

_MAKER: Final = "openvino"
_END: Final = re.compile(r"/sink_port_\d+$")
_BORDER: Final = ("Input", "Output", "Const", "Parameter", "Result", "Constant")


@dataclass(frozen=True, kw_only=True)
class NodeOrigin:
    """A node of the partition before OpenVINO compiled it."""

    layers: Sequence[str]
    passes: Sequence[str]
    flops: int | None
    reads: Mapping[str, int | None]
    """Tensor -> its usual size in bytes."""
    makes: Mapping[str, int | None]


def read_origins(model: ir.Model, shapes: Mapping[str, ShapeRange]) -> dict[str, NodeOrigin]:
    """Node, by its name and those of its outputs -> what it was made of; read before the notes on nodes are cleared."""
    sizes = find_usual_sizes(model, shapes)
    found: dict[str, NodeOrigin] = {}
    for node in model.graph:
        origin = NodeOrigin(
            layers=find_layers(node),
            passes=find_passes(node),
            flops=count_node(node, sizes),
            reads=_measure(node.inputs, sizes),
            makes=_measure(node.outputs, sizes),
        )
        names = (node.name, *(value.name for value in node.outputs))
        found |= dict.fromkeys([name for name in names if name], origin)
    return found


def _measure(values: Sequence[ir.Value | None], sizes: Mapping[str, int]) -> dict[str, int | None]:
    return {value.name or "": _value_bytes(value, sizes) for value in values if value is not None}


def _value_bytes(value: ir.Value, sizes: Mapping[str, int]) -> int | None:
    shape = usual_shape(value, sizes)
    if shape is None or value.dtype is None:
        return None
    known = [size for size in shape if size is not None]
    return count_bytes(value.dtype.numpy().name, known) if len(known) == len(shape) else None


def describe_compiled(
    compiled: Any, origins: Mapping[str, NodeOrigin], inputs: Sequence[str], outputs: Sequence[str]
) -> BuildReport:
    """The report of the nodes that OpenVINO runs.

    Args:
        compiled: The compiled model.
        origins: The nodes that it was compiled from.
        inputs: The inputs of the partition, in order.
        outputs: Its outputs.
    """
    nodes = compiled.get_runtime_model().get_ordered_ops()
    kept = [node for node in nodes if _read(node, "layerType") not in _BORDER]
    places = {node.friendly_name: number for number, node in enumerate(kept)}
    return BuildReport(nodes=[_describe(node, places, origins, inputs, outputs) for node in kept])


def _read(node: Any, key: str) -> str:
    info = node.get_rt_info()
    return str(info[key].astype(str)) if key in info else ""


def _describe(
    node: Any,
    places: Mapping[str, int],
    origins: Mapping[str, NodeOrigin],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> NodeReport:
    found = _find_origins(_read(node, "originalLayersNames").split(","), origins)
    sources = [port.get_source_output().get_node().friendly_name for port in node.inputs()]
    ends = _find_ends(node)
    passes = dict.fromkeys(name for each in found for name in each.passes)
    flops, own = [each.flops for each in found], places[node.friendly_name]
    return NodeReport(
        name=node.friendly_name,
        op=_read(node, "layerType") or node.get_type_name(),
        layers=list(dict.fromkeys(layer for each in found for layer in each.layers)),
        made_by=", ".join([*passes, *([_MAKER] if len(found) > 1 else [])]),
        tactic=_read(node, "primitiveType"),
        flops=None if not flops or None in flops else sum(count or 0 for count in flops),
        bytes=_count_bytes(found),
        inputs=sorted({places[name] for name in sources if places.get(name, own) < own}),
        reads=[at for at, name in enumerate(inputs) if name in sources],
        writes=[at for at, name in enumerate(outputs) if name in ends],
        dtype=_dtype(node.output(0)) if node.outputs() else "",
        shape=_shape(node.output(0)) if node.outputs() else None,
    )


def _find_origins(names: Sequence[str], origins: Mapping[str, NodeOrigin]) -> list[NodeOrigin]:
    """What names stand for; a part of an operator that OpenVINO took apart is called after it, with a slash."""
    found: list[NodeOrigin] = []
    for name in names:
        while name and name not in origins:
            name = name.rpartition("/")[0]
        if name and origins[name] not in found:
            found.append(origins[name])
    return found


def _find_ends(node: Any) -> set[str]:
    """The outputs of the model that a node makes: what reads them there is called after them."""
    readers = [port.get_node() for each in node.outputs() for port in each.get_target_inputs()]
    return {_END.sub("", reader.friendly_name) for reader in readers if _read(reader, "layerType") in _BORDER}


def _dtype(port: Any) -> str:
    name: str = port.get_element_type().to_dtype().name
    return name


def _shape(port: Any) -> list[int | None] | None:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return [dim.get_length() if dim.is_static else None for dim in shape]


def _count_bytes(origins: Sequence[NodeOrigin]) -> int | None:
    """What nodes read and write together, without what passes between them; None where a size is not known."""
    read = {name: size for each in origins for name, size in each.reads.items()}
    made = {name: size for each in origins for name, size in each.makes.items()}
    sizes = [size for name, size in (read | made).items() if (name in read) != (name in made)]
    return None if not sizes or None in sizes else sum(size or 0 for size in sizes)
