"""What every kernel of the element-wise families returns: arrays, never scalars, of the dtype the schema demands."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx.defs
import pytest
from onnx.helper import tensor_dtype_to_np_dtype

from dovetail.provider.kernels import Kernel
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels._conversion import DTYPES
from dovetail.providers.cpu.registry import registry

load_kernels()
FAMILIES = tuple(
    f"dovetail.providers.cpu.kernels.onnx.{family}"
    for family in ("elementwise", "unary", "activation", "reduction", "normalization")
)
REQUIRED: dict[str, dict[str, Any]] = {"BitShift": {"direction": "LEFT"}, "LRN": {"size": 3}}
NOT_UNIFORM = {
    *("Where", "Identity", "Cast", "CastLike", "BitCast"),  # no numeric constraint T
    *("CumSum", "CumProd"),  # the axis is a required tensor of another type
    *("BatchNormalization", "GroupNormalization", "InstanceNormalization"),  # vectors a channel
    *("LayerNormalization", "RMSNormalization", "MeanVarianceNormalization"),
}
NEEDS_AXIS = {"Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "LpNormalization", "LRN"}


def _constraint(kernel: Kernel) -> str:
    return "T1" if kernel.op in ("IsInf", "IsNaN") else "T"


def _uniform_kernels() -> list[Kernel]:
    families = [kernel for kernel in registry if kernel.function.__module__ in FAMILIES]
    return sorted((k for k in families if k.op not in NOT_UNIFORM), key=lambda k: (k.op, k.since))


def _expected_dtype(kernel: Kernel, dtype: np.dtype[Any]) -> np.dtype[Any]:
    schema = onnx.defs.get_schema(kernel.op, kernel.since, "")
    type_str = schema.outputs[0].type_str
    if type_str == schema.inputs[0].type_str:
        return dtype
    return np.dtype(np.int64) if type_str == "tensor(int64)" else np.dtype(np.bool_)


def _inputs(kernel: Kernel, shape: tuple[int, ...], dtype: np.dtype[Any], fill: float) -> list[Array]:
    count = max(2 if kernel.op in ("Max", "Min", "Sum", "Mean") else 1, _required_inputs(kernel))
    return [np.full(shape, fill).astype(dtype) for _ in range(count)]


def _required_inputs(kernel: Kernel) -> int:
    return int(onnx.defs.get_schema(kernel.op, kernel.since, "").min_input)


@pytest.mark.parametrize("kernel", _uniform_kernels(), ids=lambda k: f"{k.op}-{k.since}")
def test_outputs_are_arrays_of_the_demanded_dtype(kernel: Kernel) -> None:
    function = kernel.bind(REQUIRED.get(kernel.op, {}), 1)
    shapes = [(2, 3), (2, 3, 1)] if kernel.op in NEEDS_AXIS else [(), (2, 3), (0, 2)]
    for name in sorted(kernel.types[_constraint(kernel)] - {"object"}):
        dtype = next(d for d in DTYPES.values() if d.name == name)
        for shape in shapes:
            result = function(*_inputs(kernel, shape, dtype, 1))
            assert isinstance(result, np.ndarray), (name, shape)
            assert result.dtype == _expected_dtype(kernel, dtype), (name, shape)


FLOAT_KERNELS = [kernel for kernel in _uniform_kernels() if "float32" in kernel.types[_constraint(kernel)]]


@pytest.mark.parametrize("kernel", FLOAT_KERNELS, ids=lambda k: f"{k.op}-{k.since}")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 3e38])
def test_special_values_raise_nothing(kernel: Kernel, value: float) -> None:
    function = kernel.bind(REQUIRED.get(kernel.op, {}), 1)
    with np.errstate(all="ignore"):
        narrow = [_inputs(kernel, (2, 3), np.dtype(t), value) for t in (np.float32, np.float16, ml_dtypes.bfloat16)]
    with np.errstate(all="raise"):
        for inputs in narrow:
            assert function(*inputs).size


@pytest.mark.parametrize("kernel", _uniform_kernels(), ids=lambda k: f"{k.op}-{k.since}")
def test_inputs_are_left_alone(kernel: Kernel) -> None:
    """An output never shares memory with an input: the engine may overwrite either."""
    name = next(iter(sorted(kernel.types[_constraint(kernel)] - {"object"})))
    dtype = next(d for d in DTYPES.values() if d.name == name)
    inputs = _inputs(kernel, (2, 3), dtype, 1)[: 1 if kernel.op in ("Max", "Min", "Sum", "Mean") else None]
    before = [array.copy() for array in inputs]
    result = kernel.bind(REQUIRED.get(kernel.op, {}), 1)(*inputs)
    assert not any(np.shares_memory(result, array) for array in inputs)
    assert all(np.array_equal(array, old) for array, old in zip(inputs, before, strict=True))


def test_element_types_are_those_of_onnx() -> None:
    numbers = [number for number in onnx.TensorProto.DataType.values() if number]
    assert {number: tensor_dtype_to_np_dtype(number) for number in numbers} == DTYPES
