"""``tensorrt.plugin``: custom layers written as decorated functions, run by Python or compiled ahead of time.

>>> import numpy as np
>>> @register("doc::double")
... def double_desc(x: TensorDesc) -> TensorDesc:
...     return x.like()
>>> @impl("doc::double")
... def double(x: Tensor, outputs: tuple[Tensor], stream: int) -> None:
...     np.multiply(np.asarray(x), 2, out=np.asarray(outputs[0]))
>>> op.doc.double
<op doc::double>
"""

from __future__ import annotations

from dovetail_tensorrt.trt.plugin.calls import expand, op
from dovetail_tensorrt.trt.plugin.combinations import AutoTuneCombination
from dovetail_tensorrt.trt.plugin.decorators import aot_impl, autotune, impl, register
from dovetail_tensorrt.trt.plugin.descriptors import Shape, SizeTensorDesc, TensorDesc, from_shape_expr, size_tensor
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import (
    ShapeExpr,
    ShapeExprs,
    SizeTensorShapeExpr,
    SymExprs,
    SymInt8,
    SymInt16,
    SymInt32,
    SymIntExprs,
    cdiv,
    max,  # noqa: A004 - the contract's name
    min,  # noqa: A004 - the contract's name
)
from dovetail_tensorrt.trt.plugin.launch import KernelLaunchParams
from dovetail_tensorrt.trt.plugin.requests import QuickPluginCreationRequest
from dovetail_tensorrt.trt.plugin.tensors import Tensor

__all__ = [
    "AutoTuneCombination",
    "DecoratorError",
    "KernelLaunchParams",
    "QuickPluginCreationRequest",
    "Shape",
    "ShapeExpr",
    "ShapeExprs",
    "SizeTensorDesc",
    "SizeTensorShapeExpr",
    "SymExprs",
    "SymInt8",
    "SymInt16",
    "SymInt32",
    "SymIntExprs",
    "Tensor",
    "TensorDesc",
    "aot_impl",
    "autotune",
    "cdiv",
    "expand",
    "from_shape_expr",
    "impl",
    "max",
    "min",
    "op",
    "register",
    "size_tensor",
]
