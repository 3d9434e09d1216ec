"""The element-wise, reducing, normalising, quantizing and random kernels against onnx's node tests."""

from __future__ import annotations

from collections import defaultdict

import pytest

from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry
from tests.conformance.node_runner import NodeCase, check_case, load_cases

OPS = (
    # elementwise
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean"),
    *("And", "Or", "Xor", "Not", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift", "Where"),
    # unary
    *("Abs", "Neg", "Sign", "Exp", "Log", "Sqrt", "Reciprocal", "Ceil", "Floor", "Round", "Erf"),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh"),
    *("IsInf", "IsNaN", "Identity", "Cast", "CastLike", "BitCast"),
    # activation
    *("Relu", "Sigmoid", "LeakyRelu", "Elu", "Selu", "Celu", "Softsign", "Softplus", "Clip", "HardSigmoid"),
    *("HardSwish", "ThresholdedRelu", "Gelu", "Mish", "Swish", "SwiGLU", "PRelu", "Shrink"),
    *("Softmax", "LogSoftmax", "Hardmax"),
    # reduction
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin", "CumSum", "CumProd"),
    # normalization
    *("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
    *("RMSNormalization", "LRN", "LpNormalization", "MeanVarianceNormalization"),
    # quantization
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    # random
    "Dropout",
)

SKIPPED: dict[str, str] = {}
"""Name of a node test -> why the kernel is not held to it."""

load_kernels()
CASES: dict[str, list[NodeCase]] = defaultdict(list)
for _case in load_cases(OPS):
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
