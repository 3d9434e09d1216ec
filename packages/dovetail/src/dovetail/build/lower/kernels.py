"""Building nodes that are steps of their own: what each provider is told of one, and what it gives."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from dovetail.build.assign.layers import NodeLayer
from dovetail.build.lower.blobs import array_from_tensor
from dovetail.build.lower.program_context import ProgramContext
from dovetail.build.shapes import ProfileShapes, dims_of
from dovetail.errors import ProviderError
from dovetail.network.value_types import object_type
from dovetail.provider.calls import call
from dovetail.provider.interfaces import BuiltKernel, KernelRequest, Provider, TensorSpec

__all__ = ["build_kernel"]


def build_kernel(layer: NodeLayer, provider: Provider, context: ProgramContext) -> BuiltKernel:
    """What a provider builds for a node in one profile; a provider that builds no kernels is not asked."""
    if type(provider).build_kernel is Provider.build_kernel:
        return BuiltKernel()
    shapes = ProfileShapes(context.ranges, context.known)
    values = [value for value in layer.node.inputs if value is not None]
    services = context.assigner.services
    built = services.build(
        provider,
        f"build_kernel of step '{layer.name}'",
        provider.build_kernel,
        make_request(layer, provider, shapes),
        name=layer.name,
        profile=context.profile,
        shapes=shapes.find_all(values),
    )
    _check(built, layer, provider)
    services.check_workspace(provider, built.workspace_bytes, layer.name)
    return built


def make_request(layer: NodeLayer, provider: Provider, shapes: ProfileShapes) -> KernelRequest:
    """A node as a provider is told it."""
    tensors = {i: ir.convenience.get_const_tensor(v) for i, v in enumerate(layer.node.inputs) if v is not None}
    weights = {i: tensor for i, tensor in tensors.items() if tensor is not None and i in layer.constants}
    host = call(provider.id, "host_inputs", provider.host_inputs, layer.op, layer.domain, layer.opset)
    return KernelRequest(
        name=layer.name,
        op=layer.op,
        domain=layer.domain,
        opset=layer.opset,
        attributes=layer.attributes,
        inputs=[
            _describe(value, shapes, "" if slot in host else provider.memory_name)
            for slot, value in enumerate(layer.node.inputs)
        ],
        outputs=[_describe(value, shapes, provider.memory_name) for value in layer.node.outputs],
        constants={i: array_from_tensor(tensor) for i, tensor in weights.items()},
        weight_names={i: _name(layer.node.inputs[i]) for i in weights},
    )


def _describe(value: ir.Value | None, shapes: ProfileShapes, memory: str) -> TensorSpec | None:
    if value is None or value.dtype is None:
        return None
    dims = dims_of(value)
    return TensorSpec(
        dtype=value.dtype.numpy().name,
        dims=None if dims is None else tuple(dims),
        shapes=shapes.find(value),
        memory=memory,
        type=object_type(value),
    )


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""


def _check(built: Any, layer: NodeLayer, provider: Provider) -> None:
    where = f"provider '{provider.id}', step '{layer.name[:200]}'"
    if not isinstance(built, BuiltKernel):
        raise ProviderError(
            "build_kernel gave no kernel", where=where, expected="a BuiltKernel", got=type(built).__name__
        )
    others = sorted(set(built.weights) - layer.constants)
    if others:
        raise ProviderError(
            "build_kernel packed an input that is no weight",
            where=where,
            expected=f"one of {sorted(layer.constants)}",
            got=others[0],
        )
