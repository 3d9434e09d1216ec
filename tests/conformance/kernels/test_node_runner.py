"""The node test runner itself: it must find what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.provider.kernels import KernelRegistry
from tests.conformance.kernels.node_runner import NodeCase, check_case, load_cases


@pytest.fixture(scope="module")
def case() -> NodeCase:
    return next(case for case in load_cases(["Relu"]) if case.name == "test_relu")


def _registry(function: Any, *, dtype: str = "float32") -> KernelRegistry:
    registry = KernelRegistry("trial")
    registry.register("Relu", since=14, types={"T": (dtype,)})(function)
    return registry


def test_right_kernel_passes(case: NodeCase) -> None:
    check_case(case, _registry(lambda x: np.maximum(x, 0)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "Not equal to tolerance"),
        (lambda x: np.maximum(x, 0).astype(np.float64), "output 0 is float64, expected float32"),
        (lambda x: np.maximum(x, 0)[None], r"output 0 has shape \(1, 3, 4, 5\)"),
        (lambda x: np.float32(0), "expected an array"),
        (lambda x: (), "the kernel returned 0 outputs"),
    ],
)
def test_wrong_output_fails(case: NodeCase, function: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_case(case, _registry(function))


def test_refused_type_fails(case: NodeCase) -> None:
    with pytest.raises(AssertionError, match="input 0 is float32"):
        check_case(case, _registry(lambda x: np.maximum(x, 0), dtype="float64"))


def test_missing_kernel_fails(case: NodeCase) -> None:
    with pytest.raises(AssertionError, match="no kernel is registered for Relu at opset 14"):
        check_case(case, KernelRegistry("empty"))


def test_floating_point_warning_fails(case: NodeCase) -> None:
    with pytest.raises(FloatingPointError):
        check_case(case, _registry(lambda x: np.log(-np.abs(x))))
