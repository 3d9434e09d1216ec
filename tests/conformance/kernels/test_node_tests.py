"""Every node test of onnx that is one call of a kernel, run through the kernel that the registry finds for it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import ml_dtypes
import numpy as np
import onnx.defs
import pytest

from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry
from tests.conformance.kernels.left_out import reason_for
from tests.conformance.kernels.node_runner import NodeCase, attributes_of, check_case, load_cases, run_case

load_kernels()
CASES: dict[str, list[NodeCase]] = defaultdict(list)
for _case in load_cases():
    if reason_for(_case.node, _case.name) is None:
        CASES[_case.node.op_type].append(_case)


@pytest.mark.parametrize("op", sorted(CASES))
def test_op_passes_its_node_tests(op: str, subtests: pytest.Subtests) -> None:
    for case in CASES[op]:
        with subtests.test(case.name):
            check_case(case, registry)


def _arrays(values: Any) -> list[Array]:
    """All arrays among inputs or outputs, those inside sequences too."""
    if isinstance(values, np.ndarray):
        return [values]
    return [array for value in values for array in _arrays(value)] if isinstance(values, list | tuple) else []


@pytest.mark.parametrize("op", sorted(CASES))
def test_inputs_are_left_alone(op: str) -> None:
    """An output never shares memory with an input tensor: the engine may overwrite either.

    Tensors inside a sequence are host values that nobody writes to, so sequences may share them.
    """
    for case in CASES[op]:
        inputs = [[x for x in arrays if isinstance(x, np.ndarray)] for arrays, _ in case.data_sets]
        before = [[array.copy() for array in arrays] for arrays in inputs]
        for arrays, copies, (outputs, _) in zip(inputs, before, run_case(case, registry), strict=True):
            assert not any(np.shares_memory(x, y) for x in arrays for y in _arrays(outputs)), case.name
            # Bytes, since NaN is no other NaN; of an array of strings they are the same objects.
            assert all(x.tobytes() == y.tobytes() for x, y in zip(arrays, copies, strict=True)), case.name


ROUNDED_MORE_THAN_ONCE = {
    "Attention": "the precision of its softmax is an attribute of some tests",
    "BitCast": "the bits of another type are other bits",
    "LayerNormalization": "its statistics come in the stash type",
    "MelWeightMatrix": "its type is an attribute",
}
"""Ops -> why their result in bfloat16 is not that in float32 rounded once."""


@pytest.mark.parametrize("op", sorted(CASES.keys() - ROUNDED_MORE_THAN_ONCE.keys()))
def test_bfloat16_is_float32_rounded_once(op: str) -> None:
    for case in CASES[op]:
        for arrays, _ in case.data_sets:
            narrow, wide = _narrow_inputs(case, list(arrays))
            if narrow is not None:
                _compare_rounded(case, narrow, wide)


def _narrow_inputs(case: NodeCase, arrays: list[Any]) -> tuple[list[Any] | None, list[Any]]:
    """The inputs in bfloat16 where the schema allows it, and the same values in float32; None when it allows none."""
    schema = onnx.defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    takes = {t.type_param_str for t in schema.type_constraints if "tensor(bfloat16)" in t.allowed_type_strs}
    given = iter(arrays)
    present = [next(given) if name else None for name in case.node.input]
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(present))]
    flags = [
        isinstance(x, np.ndarray) and x.dtype == np.float32 and formal in takes
        for x, formal in zip(present, formals, strict=True)
    ]
    narrow = [x.astype(ml_dtypes.bfloat16) if flag else x for x, flag in zip(present, flags, strict=True)]
    wide = [x.astype(np.float32) if flag else x for x, flag in zip(narrow, flags, strict=True)]
    return narrow if any(flags) else None, wide


def _compare_rounded(case: NodeCase, narrow: list[Any], wide: list[Any]) -> None:
    found = registry.find(case.node.op_type, case.node.domain, case.opset)
    assert found is not None
    function = found.bind(attributes_of(case.node), len(case.node.output))
    for actual, exact in zip(_arrays((function(*narrow),)), _arrays((function(*wide),)), strict=True):
        expected = exact.astype(ml_dtypes.bfloat16) if exact.dtype == np.float32 else exact
        assert actual.dtype == expected.dtype, case.name
        if actual.dtype == object:
            np.testing.assert_array_equal(actual, expected, err_msg=case.name)
        else:
            np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32), err_msg=case.name)
