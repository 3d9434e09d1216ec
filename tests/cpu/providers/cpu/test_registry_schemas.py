"""Every registered kernel against the ONNX schema: a misspelt constraint or attribute would silently never match."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import onnx
import onnx.defs
import pytest

from dovetail.provider.kernels import Kernel
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

load_kernels()
KERNELS = sorted((kernel for kernel in registry if kernel.domain == ""), key=lambda kernel: (kernel.op, kernel.since))
DTYPE_NAMES = frozenset(
    onnx.helper.tensor_dtype_to_np_dtype(number).name for number in onnx.TensorProto.DataType.values() if number
)

REFUSED_ATTRIBUTES = {"Constant": {"sparse_value"}}
"""Attributes that a kernel refuses with an error, op by op: a sparse tensor is no array."""


def _name(kernel: Kernel) -> str:
    return f"{kernel.op}-{kernel.since}"


def _schemas(kernel: Kernel) -> Iterator[onnx.defs.OpSchema]:
    """The schemas of all versions that the kernel says it serves."""
    for opset in range(kernel.since, (kernel.until or onnx.defs.onnx_opset_version()) + 1):
        schema = onnx.defs.get_schema(kernel.op, opset, "")
        if schema.since_version in (opset, kernel.since):
            yield schema


def test_registry_is_not_empty() -> None:
    assert len(KERNELS) > 100


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_since_is_where_a_schema_starts(kernel: Kernel) -> None:
    assert onnx.defs.has(kernel.op, "")
    assert onnx.defs.get_schema(kernel.op, kernel.since, "").since_version == kernel.since


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_until_is_where_a_schema_ends(kernel: Kernel) -> None:
    if kernel.until is not None:
        assert onnx.defs.get_schema(kernel.op, kernel.until + 1, "").since_version == kernel.until + 1


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_constraints_and_dtypes_exist(kernel: Kernel) -> None:
    for schema in _schemas(kernel):
        known = {constraint.type_param_str for constraint in schema.type_constraints}
        assert kernel.types.keys() <= known, f"opset {schema.since_version}"
    for names in kernel.types.values():
        assert names <= DTYPE_NAMES


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_keywords_are_the_attributes(kernel: Kernel) -> None:
    """It takes the attributes of every version it serves, and none that no such version has."""
    # The count of outputs is passed to whoever asks, whether or not the schema has an attribute of that name.
    served = [set(schema.attributes) - {"num_outputs"} for schema in _schemas(kernel)]
    expected = set().union(*served) - REFUSED_ATTRIBUTES.get(kernel.op, set())
    assert kernel.attributes - {"num_outputs"} == expected


@pytest.mark.parametrize("kernel", KERNELS, ids=_name)
def test_positional_parameters_are_the_inputs(kernel: Kernel) -> None:
    parameters = inspect.signature(kernel.function).parameters.values()
    positional = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    required = [p for p in positional if p.default is inspect.Parameter.empty]
    has_rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    assert has_rest or len(positional) == max(len(schema.inputs) for schema in _schemas(kernel))
    assert len(required) <= min(schema.min_input for schema in _schemas(kernel))
