"""The windowed, indexing, shaping, sequence and signal kernels against onnx's node tests."""

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
from tests.conformance.node_runner import NodeCase, attributes_of, check_case, load_cases, run_case

OPS = (
    # convolution
    *("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv"),
    # pooling, regions
    *("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "MaxUnpool", "RoiAlign"),
    # resize, gridsample
    *("Resize", "Upsample", "GridSample", "AffineGrid"),
    # matmul
    *("MatMul", "Gemm", "Einsum", "MatMulInteger", "QLinearMatMul", "Det"),
    # attention, linear_attention
    *("Attention", "RotaryEmbedding", "LinearAttention", "CausalConvWithState"),
    # indexing, selection
    *("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "TensorScatter", "OneHot"),
    *("TopK", "NonMaxSuppression", "NonZero", "Compress", "Unique"),
    # shaping, filling, slicing
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Tile", "Concat", "Split"),
    *("DepthToSpace", "SpaceToDepth", "Constant", "ConstantOfShape", "Shape", "Size", "Range", "EyeLike"),
    *("Slice", "Pad", "CenterCropPad", "Trilu", "ReverseSequence"),
    # rnn
    *("RNN", "GRU", "LSTM"),
    # sampling
    *("HannWindow", "HammingWindow", "BlackmanWindow", "DFT", "STFT", "MelWeightMatrix", "Col2Im"),
    # losses
    *("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
    # strings, sequences
    *("StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "TfIdfVectorizer"),
    *("SequenceInsert", "SplitToSequence", "OptionalGetElement", "OptionalHasElement"),
)

WITHOUT_NODE_TESTS = {
    "GlobalLpPool": "tests/cpu/providers/cpu/test_pooling.py",
    "MaxRoiPool": "tests/cpu/providers/cpu/test_regions.py",
    "SequenceConstruct": "tests/cpu/providers/cpu/test_sequences.py",
    "SequenceEmpty": "tests/cpu/providers/cpu/test_sequences.py",
    "SequenceErase": "tests/cpu/providers/cpu/test_sequences.py",
    "SequenceAt": "tests/cpu/providers/cpu/test_sequences.py",
    "SequenceLength": "tests/cpu/providers/cpu/test_sequences.py",
    "ConcatFromSequence": "tests/cpu/providers/cpu/test_sequences.py",
    "Optional": "tests/cpu/providers/cpu/test_sequences.py",
}
"""Ops that onnx has no test of a single node for -> the file that tests them here."""

SKIPPED: dict[str, str] = {}
"""Name of a node test -> why the kernel is not held to it."""

load_kernels()
CASES: dict[str, list[NodeCase]] = defaultdict(list)
for _case in load_cases((*OPS, *WITHOUT_NODE_TESTS)):
    CASES[_case.node.op_type].append(_case)


@pytest.mark.parametrize("op", OPS)
def test_op_passes_its_node_tests(op: str, subtests: pytest.Subtests) -> None:
    assert CASES[op], f"onnx has no node test of {op}: take it out of the list"
    for case in CASES[op]:
        if case.name not in SKIPPED:
            with subtests.test(case.name):
                check_case(case, registry)


def test_skips_name_tests_that_exist() -> None:
    known = {case.name for cases in CASES.values() for case in cases}
    assert SKIPPED.keys() <= known


@pytest.mark.parametrize("op", WITHOUT_NODE_TESTS)
def test_ops_without_node_tests_have_none(op: str) -> None:
    assert op not in CASES, f"onnx has node tests of {op} now: put it in the list"


def _arrays(values: Any) -> list[Array]:
    """All arrays among inputs or outputs, those inside sequences too."""
    if isinstance(values, np.ndarray):
        return [values]
    return [array for value in values for array in _arrays(value)] if isinstance(values, list | tuple) else []


@pytest.mark.parametrize("op", OPS)
def test_inputs_are_left_alone(op: str) -> None:
    """An output never shares memory with an input tensor: the engine may overwrite either.

    Tensors inside a sequence are host values that nobody writes to, so sequences may share them.
    """
    for case in CASES[op]:
        inputs = [[x for x in arrays if isinstance(x, np.ndarray)] for arrays, _ in case.data_sets]
        before = [[array.copy() for array in arrays] for arrays in inputs]
        for arrays, copies, (outputs, _) in zip(inputs, before, run_case(case, registry), strict=True):
            assert not any(np.shares_memory(x, y) for x in arrays for y in _arrays(outputs)), case.name
            assert all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(arrays, copies, strict=True))


NARROWED = [op for op in OPS if op not in {"Attention"}]
"""Attention is computed in float32 too, but the precision of its softmax is an attribute of some tests."""


@pytest.mark.parametrize("op", NARROWED)
def test_bfloat16_is_float32_rounded_once(op: str) -> None:
    for case in CASES[op]:
        for arrays, _ in case.data_sets:
            narrow, wide = _narrow_inputs(case, list(arrays))
            if narrow is not None:
                _compare_rounded(case, narrow, wide)


def _narrow_inputs(case: NodeCase, arrays: list[Any]) -> tuple[list[Any] | None, list[Any]]:
    """The inputs in bfloat16 where the schema allows it, and the same values in float32; None when it allows none."""
    schema = onnx.defs.get_schema(case.node.op_type, case.opset, "")
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
    found = registry.find(case.node.op_type, "", case.opset)
    assert found is not None
    function = found.bind(attributes_of(case.node), len(case.node.output))
    for actual, exact in zip(_arrays((function(*narrow),)), _arrays((function(*wide),)), strict=True):
        expected = exact.astype(ml_dtypes.bfloat16) if exact.dtype == np.float32 else exact
        assert actual.dtype == expected.dtype, case.name
        np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32), err_msg=case.name)
