"""What a plan tells of a partition of OpenVINO: the nodes that it compiled, the layers in each, shapes and work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dovetail.provider.contract.built import BuildReport, NodeReport
from dovetail.provider.costs import count_bytes, count_operations
from dovetail.provider.origins import find_layers, find_passes

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["NodeOrigin", "describe_compiled", "read_origins"]

_MAKER: Final = "openvino"
_BORDER: Final = ("Input", "Output", "Const", "Parameter", "Result", "Constant")


@dataclass(frozen=True, kw_only=True)
class NodeOrigin:
    """A node of the partition before OpenVINO compiled it."""

    layers: Sequence[str]
    passes: Sequence[str]
    flops: int | None


def read_origins(model: ir.Model) -> dict[str, NodeOrigin]:
    """Node -> what it was made of; read before the notes on nodes are cleared."""
    return {
        node.name: NodeOrigin(layers=find_layers(node), passes=find_passes(node), flops=_count(node))
        for node in model.graph
        if node.name
    }


def _count(node: ir.Node) -> int | None:
    def sizes(value: ir.Value | None) -> Sequence[int] | None:
        dims = None if value is None or value.shape is None else value.shape.dims
        known = None if dims is None else [dim for dim in dims if isinstance(dim, int)]
        return known if dims is not None and known is not None and len(known) == len(dims) else None

    if node.domain not in ("", "ai.onnx") or not node.outputs:
        return None
    attributes = {name: each.value for name, each in node.attributes.items() if each.type.name in ("INT", "INTS")}
    return count_operations(node.op_type, [sizes(value) for value in node.inputs], sizes(node.outputs[0]), attributes)


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
    names = [name for name in _read(node, "originalLayersNames").split(",") if name]
    found = [origins[name] for name in names if name in origins]
    sources = [port.get_source_output().get_node().friendly_name for port in node.inputs()]
    readers = [port.get_node().friendly_name for each in node.outputs() for port in each.get_target_inputs()]
    passes = dict.fromkeys(name for each in found for name in each.passes)
    flops, own = [each.flops for each in found], places[node.friendly_name]
    return NodeReport(
        name=node.friendly_name,
        op=_read(node, "layerType") or node.get_type_name(),
        layers=list(dict.fromkeys(layer for each in found for layer in each.layers)),
        made_by=", ".join([*passes, *([_MAKER] if len(found) > 1 else [])]),
        tactic=_read(node, "primitiveType"),
        flops=None if not flops or None in flops else sum(count or 0 for count in flops),
        bytes=_count_bytes(node),
        inputs=sorted(
            {places[name] for name in sources if name in places and places[name] < places[node.friendly_name]}
        ),
        reads=[at for at, name in enumerate(inputs) if name in sources],
        writes=[at for at, name in enumerate(outputs) if name in readers or name in _tensor_names(node)],
        dtype=_dtype(node.output(0)) if node.outputs() else "",
        shape=_shape(node.output(0)) if node.outputs() else None,
    )


def _tensor_names(node: Any) -> set[str]:
    """The names that its results have, also as OpenVINO calls the ends of a model."""
    ends = (port.get_node().friendly_name for each in node.outputs() for port in each.get_target_inputs())
    names = {name for each in node.outputs() for name in each.get_names()}
    return names | {end.removesuffix("/sink_port_0") for end in ends}


def _dtype(port: Any) -> str:
    name: str = port.get_element_type().to_dtype().name
    return name


def _shape(port: Any) -> list[int | None] | None:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return [dim.get_length() if dim.is_static else None for dim in shape]


def _count_bytes(node: Any) -> int | None:
    """What it reads and writes; None where a size is not known."""
    ports = [*(port.get_source_output() for port in node.inputs()), *node.outputs()]
    total = 0
    for port in ports:
        shape = _shape(port)
        known = None if shape is None else [size for size in shape if size is not None]
        if shape is None or known is None or len(known) != len(shape):
            return None
        total += count_bytes(_dtype(port), known) or 0
    return total or None
