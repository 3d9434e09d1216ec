"""Kernels that write into a given output give the same there as the ordinary form returns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dovetail.provider.kernels import Kernel
from dovetail.provider.loader import get_provider
from dovetail.providers.cpu._numeric import NATIVE
from dovetail.providers.cpu.registry import registry
from tests.support.single_kernels import load_kernel

Array = npt.NDArray[Any]
Case = tuple[list[Array | None], dict[str, Any]]

RNG = np.random.default_rng(7)
SHAPES = (
    ((2, 3), (2, 3), (2, 3)),
    ((2, 3), (3,), ()),
    ((2, 1), (1, 3), (4, 1, 1)),
    ((), (2, 3), ()),
    ((0, 3), (1, 3), (3,)),
)
NATIVE_TYPES = sorted(NATIVE)
TO_NUMBERS = (1, 2, 6, 7, 9, 10, 11, 16, 17)
"""Targets of casts, two that NumPy has not and one that it has but the kernels widen among them."""


def fill(shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of every kind that the type has: both signs, zero, the limits, infinities, NaN."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return RNG.integers(0, 2, shape).astype(dtype)
    if kind == "f":
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -2.5, 1e30], dtype)
        return np.where(RNG.random(shape) < 0.5, RNG.choice(special, shape), RNG.normal(size=shape) * 3).astype(dtype)
    limits = np.iinfo(dtype)
    return RNG.choice(np.array([0, 1, 2, 3, 7, limits.min, limits.max], dtype), shape)


def elementwise_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    """Every count of inputs that the kernel takes, over shapes that broadcast."""
    parameters = list(inspect.signature(kernel.function).parameters.values())
    is_variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    arity = sum(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters)
    for shapes in SHAPES:
        for count in (1, 2, 3) if is_variadic else (arity,):
            yield [fill(shape, dtype) for shape in shapes[:count]], {}


def mod_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    for arrays, _ in elementwise_cases(kernel, dtype):
        yield from ((arrays, {"fmod": fmod}) for fmod in (0, 1))


def shift_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    for arrays, _ in elementwise_cases(kernel, dtype):
        yield from ((arrays, {"direction": direction}) for direction in ("LEFT", "RIGHT"))


def clip_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    if kernel.until is not None:
        yield [fill((2, 3), dtype)], {"min": -1.0, "max": 2.0}
        return
    x, low, high = fill((2, 3), dtype), np.array(1, dtype), np.array([2], dtype)
    for limits in ([], [low], [low, high], [None, high], [None, None], [high, low]):
        yield [x, *limits], {}


def matmul_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    for left, right in (
        ((2, 3), (3, 4)),
        ((3,), (3,)),
        ((5, 2, 3), (3, 4)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((0, 3), (3, 2)),
    ):
        yield [fill(left, dtype), fill(right, dtype)], {}


def cast_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    yield from (([fill((2, 3), dtype)], {"to": number}) for number in TO_NUMBERS)


def cast_like_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    yield from (([fill((2, 3), dtype), np.zeros(1, target)], {}) for target in NATIVE_TYPES)


def shape_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    """The ops that move elements; before opset 13 axes are an attribute."""
    x = fill((2, 1, 3), dtype)
    by_attribute = kernel.until is not None
    axes = np.array([1], np.int64)
    yield from {
        "Reshape": [([x, np.array(shape, np.int64)], {}) for shape in ((3, 2), (-1,), (0, 3), (1, 6, 1))],
        "Flatten": [([x], {"axis": axis}) for axis in (0, 1, -1)],
        "Transpose": [([x], {}), ([x], {"perm": [2, 0, 1]})],
        "Squeeze": [([x], {"axes": [1]})] if by_attribute else [([x], {}), ([x, None], {}), ([x, axes], {})],
        "Unsqueeze": [([x], {"axes": [1]})] if by_attribute else [([x, axes], {})],
        "Expand": [([x, np.array(shape, np.int64)], {}) for shape in ((2, 4, 3), (5, 1, 1, 1), (3,))],
        "Concat": [([x, fill((2, 1, 3), dtype), x], {"axis": axis}) for axis in (0, 1, -1)],
    }[kernel.op]


def cache_cases(kernel: Kernel, dtype: str) -> Iterator[Case]:
    past, new = fill((2, 3, 6, 4), dtype), fill((2, 3, 2, 4), dtype)
    yield [past, new, np.array([1, 4])], {"axis": 2}
    yield [past, new], {"axis": -2}
    yield [past, new, np.array([5, 0])], {"axis": 2, "mode": "circular"}


MAKERS = {
    "TensorScatter": cache_cases,
    "Mod": mod_cases,
    "BitShift": shift_cases,
    "Clip": clip_cases,
    "MatMul": matmul_cases,
    "Cast": cast_cases,
    "CastLike": cast_like_cases,
    **dict.fromkeys(("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Concat"), shape_cases),
}
KERNELS = [kernel for kernel in registry if kernel.into is not None]


def bind(kernel: Kernel, attributes: dict[str, Any], types: list[str | None]) -> Any:
    return load_kernel(get_provider("cpu"), kernel.op, kernel.since, attributes, types, domain=kernel.domain)


def name(kernel: Kernel) -> str:
    return f"{kernel.op}-{kernel.since}"


def native_types(kernel: Kernel) -> list[str]:
    named = next(iter(kernel.types.values()), NATIVE)
    return sorted(NATIVE & named)


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_both_forms_agree(kernel: Kernel) -> None:
    count = 0
    for dtype in native_types(kernel):
        for arrays, attributes in MAKERS.get(kernel.op, elementwise_cases)(kernel, dtype):
            step = bind(kernel, attributes, [None if a is None else a.dtype.name for a in arrays])
            check(step, arrays)
            count += 1
    assert count


def check(step: Any, arrays: list[Array | None]) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(step(*arrays))
        out = np.full_like(expected, 42)
        step.write(*arrays, out)
        assert same(out, expected), (arrays, out, expected)
        # An output may lie in the memory of an input: a caller can bind one address to both.
        for place, array in enumerate(arrays):
            if array is not None and array.shape == expected.shape and array.dtype == expected.dtype:
                shared = array.copy()
                step.write(*arrays[:place], shared, *arrays[place + 1 :], shared)
                assert same(shared, expected), (arrays, shared, expected)


def same(one: Array, other: Array) -> bool:
    """Bit for bit, except that one NaN is as good as another."""
    if one.dtype.kind == "f":
        return bool(np.array_equal(one, other, equal_nan=True)) and bool(
            np.all((np.signbit(one) == np.signbit(other)) | np.isnan(one))
        )
    return one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "object"])
@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_types_that_are_computed_in_others_are_never_written_directly(kernel: Kernel, dtype: str) -> None:
    attributes = {"to": 1} if kernel.op == "Cast" else {}
    assert bind(kernel, attributes, [dtype]).write is None


def test_the_kernels_that_networks_are_made_of_have_this_form() -> None:
    assert {"Add", "Mul", "Relu", "Exp", "Equal", "And", "Max", "MatMul", "Reshape", "Transpose", "Concat"} <= {
        kernel.op for kernel in KERNELS
    }
