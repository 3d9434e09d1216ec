"""Custom operators of PyTorch as nodes: tensors are inputs, everything else is an attribute.

An operator ``my::smooth`` of ``torch.library`` becomes a node ``smooth`` of domain ``my``, for which a plugin of that
name and namespace is looked up when the model is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx

from dovetail.element_types import ELEMENT_TYPES, onnx_type_from_dtype
from dovetail.errors import UnsupportedOpError

__all__ = ["find_translations"]

_NATIVE: Final = frozenset(
    ("aten", "prim", "prims", "quantized", "torchvision", "onnx", "onnx_symbolic", "higher_order")
)
"""Namespaces that PyTorch's exporter knows."""
_VERSION: Final = 1


def find_translations(program: Any) -> dict[Any, Callable[..., Any]]:
    """What translates each custom operator of an exported program, by the operator."""
    import torch

    nodes = (node for module in program.graph_module.modules() for node in getattr(module, "graph", _Empty).nodes)
    targets = {node.target for node in nodes if isinstance(node.target, torch._ops.OpOverload)}
    return {target: _make_translation(target) for target in targets if target.namespace not in _NATIVE}


class _Empty:
    """The graph of a module that has none."""

    nodes: Final = ()


def _make_translation(operator: Any) -> Callable[..., Any]:
    """A function that records the node of an operator."""
    from onnxscript.values import Op, Opset

    name = operator._schema.name.partition("::")[2]
    node = Op(Opset(operator.namespace, _VERSION), name, _make_schema(operator, name))
    parameters = operator._schema.arguments

    def translate(*args: Any, **kwargs: Any) -> Any:
        given = {parameter.name: value for parameter, value in zip(parameters, args, strict=False)} | kwargs
        inputs = [given.get(parameter.name) for parameter in parameters if _is_tensor(parameter)]
        return node(*_without_trailing_none(inputs), **_find_attributes(parameters, given))

    return translate


def _find_attributes(parameters: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is no tensor, with the operator's defaults; what is None is left out."""
    found = {
        parameter.name: given.get(parameter.name, parameter.default_value)
        for parameter in parameters
        if not _is_tensor(parameter)
    }
    return {
        name: int(value) if isinstance(value, bool) else value for name, value in found.items() if value is not None
    }


def _without_trailing_none(inputs: list[Any]) -> list[Any]:
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _make_schema(operator: Any, name: str) -> onnx.defs.OpSchema:
    """What the exporter has to know of the node: how many inputs and outputs, and the kinds of attributes."""
    schema, kinds = operator._schema, onnx.defs.OpSchema.FormalParameterOption
    tensors = [parameter for parameter in schema.arguments if _is_tensor(parameter)]
    others = [parameter for parameter in schema.arguments if not _is_tensor(parameter)]
    types = [onnx_type_from_dtype(kind.name) for kind in ELEMENT_TYPES if not kind.is_packed]
    return onnx.defs.OpSchema(
        name,
        operator.namespace,
        _VERSION,
        inputs=[
            onnx.defs.OpSchema.FormalParameter(
                p.name, f"T{i}", param_option=kinds.Optional if "Optional" in str(p.type) else kinds.Single
            )
            for i, p in enumerate(tensors)
        ],
        outputs=[onnx.defs.OpSchema.FormalParameter(f"output{i}", f"R{i}") for i in range(len(schema.returns))],
        type_constraints=[(f"T{i}", types, "") for i in range(len(tensors))]
        + [(f"R{i}", types, "") for i in range(len(schema.returns))],
        attributes=[
            onnx.defs.OpSchema.Attribute(p.name, _find_attribute_type(p, schema.name), "", required=False)
            for p in others
        ],
    )


def _is_tensor(parameter: Any) -> bool:
    return str(parameter.type) in ("Tensor", "Optional[Tensor]")


_ATTRIBUTE_TYPES: Final = {
    "int": onnx.defs.OpSchema.AttrType.INT,
    "bool": onnx.defs.OpSchema.AttrType.INT,
    "float": onnx.defs.OpSchema.AttrType.FLOAT,
    "str": onnx.defs.OpSchema.AttrType.STRING,
    "List[int]": onnx.defs.OpSchema.AttrType.INTS,
    "List[float]": onnx.defs.OpSchema.AttrType.FLOATS,
    "List[str]": onnx.defs.OpSchema.AttrType.STRINGS,
}


def _find_attribute_type(parameter: Any, operator: str) -> onnx.defs.OpSchema.AttrType:
    kind = str(parameter.type).removeprefix("Optional[").removesuffix("]") if "Optional" in str(parameter.type) else ""
    found = _ATTRIBUTE_TYPES.get(kind or str(parameter.type))
    if found is None:
        raise UnsupportedOpError(
            f"its parameter '{parameter.name}' cannot be an attribute of a node",
            where=f"operator '{operator}'",
            expected=f"a tensor or one of {', '.join(_ATTRIBUTE_TYPES)}",
            got=str(parameter.type),
        )
    return found
