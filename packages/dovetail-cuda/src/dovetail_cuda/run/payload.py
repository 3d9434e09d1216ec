"""What a plan stores of launches: kernels, buffers and what is done in order; the cubins are blobs of the plan.

What is read may be from anybody, so every number is checked against what the plan itself says before any of it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail.provider.interfaces import StoredPartition, TensorSpec
from dovetail_cuda.run.convolutions import (
    MOST_WORKSPACE_BYTES,
    BuiltConvPlan,
    Convolution,
    ConvPlan,
    check_convolution,
)
from dovetail_cuda.run.records import Record, require

__all__ = [
    "MAX_GRID",
    "PRODUCT_ACTIVATIONS",
    "VERSION",
    "WORKSPACE_BYTES",
    "BufferRecord",
    "ConvLaunch",
    "KernelLaunch",
    "KernelRecord",
    "LaunchList",
    "Launches",
    "Product",
    "ProductLaunch",
    "Record",
    "check_kernels",
    "check_launches",
    "check_product",
    "list_counts",
    "make_conv_launch",
    "require",
]

VERSION: Final = "cuda launches 4"
WORKSPACE_BYTES: Final = 32 << 20
"""Scratch memory that products may use."""
MAX_GRID: Final = (2**31 - 1, 65535, 65535)
_MAX_SHARED_BYTES: Final = 227 << 10
_ALGORITHM_BYTES: Final = 64
_KINDS: Final = ("input", "output", "weight", "arena", "zeroed")
_ZEROED_BYTES: Final = 1 << 30
"""The most that a partition may have of memory that is zero between runs."""
PRODUCT_ACTIVATIONS: Final = ("", "relu", "gelu_tanh")
"""Epilogues of cuBLASLt that this provider uses."""
_WRITABLE_KINDS: Final = ("output", "arena", "zeroed")
"""Memory that a library may write to: inputs belong to the caller, and weights to all contexts of an engine."""
_WIDTHS: Final = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class KernelRecord(Record, frozen=True, kw_only=True):
    """A kernel: which blob it is in, and what it is launched with."""

    code: str
    name: str
    num_warps: int
    shared_bytes: int = 0
    starts_early: bool = False
    """Whether it waits itself for the kernel in front of it, so that it may be launched before that has ended."""
    num_parameters: int
    num_addresses: int
    """Parameters that are addresses, which come first; the others are sizes."""


class BufferRecord(Record, frozen=True, kw_only=True):
    """Memory: an input or output by its number, a weight by its name, a place in the arena, or zero between runs."""

    kind: str
    size_bytes: int
    number: int = 0
    name: str = ""
    offset: int = 0


class KernelLaunch(Record, frozen=True, kw_only=True, tag="kernel"):
    """One kernel over buffers."""

    kernel: int
    grid: tuple[int, int, int]
    buffers: list[int]
    offsets: list[int] = msgspec.field(default_factory=list)
    """Bytes of each buffer before what is passed; none where there are none."""
    sizes: list[int] = msgspec.field(default_factory=list)
    """What is passed after the buffers."""
    layers: list[str] = msgspec.field(default_factory=list)


class Product(Record, frozen=True, kw_only=True):
    """A product of matrices, row by row in memory: (M, K) times (K, N), a batch of them."""

    m: int
    n: int
    k: int
    dtype: str
    batch: int = 1
    left_stride: int = 0
    """Elements from one matrix of the batch to the next; 0 where all use the same."""
    right_stride: int = 0
    left_line: int
    """Elements from one row to the next, or from one column to the next where it lies the other way round."""
    right_line: int
    is_left_swapped: bool = False
    is_right_swapped: bool = False
    result_line: int
    """Elements from one row of the result to the next."""
    result_stride: int = 0
    has_bias: bool = False
    """Whether one row is added to all."""
    has_residual: bool = False
    """Whether a matrix that lies as the result does is added."""
    activation: str = ""
    alpha: float = 1.0
    allows_tf32: bool = False


class ProductLaunch(Record, frozen=True, kw_only=True, tag="product"):
    """A product by cuBLASLt: left, right, the bias and the residual where there are any, and the result."""

    product: Product
    buffers: list[int]
    offsets: list[int] = msgspec.field(default_factory=list)
    algorithm: bytes
    library_version: int
    layers: list[str] = msgspec.field(default_factory=list)


class ConvLaunch(Record, frozen=True, kw_only=True, tag="convolution"):
    """A convolution by cuDNN: image, filters, the bias and the residual where there are any, and the result."""

    convolution: Convolution
    buffers: list[int]
    offsets: list[int] = msgspec.field(default_factory=list)
    plan: ConvPlan
    library_version: int
    code: str
    """The blob that the library has written its plan to."""
    workspace_bytes: int
    layers: list[str] = msgspec.field(default_factory=list)


def make_conv_launch(
    convolution: Convolution, built: BuiltConvPlan, code: str, buffers: list[int], image_offset: int
) -> ConvLaunch:
    """The launch of a plan that the library has built, whose code has a name."""
    return ConvLaunch(
        convolution=convolution,
        buffers=buffers,
        offsets=[image_offset, *[0] * (len(buffers) - 1)] if image_offset else [],
        plan=built.plan,
        library_version=built.version,
        code=code,
        workspace_bytes=built.scratch_bytes,
    )


Launches = KernelLaunch | ProductLaunch | ConvLaunch
"""Every kind of launch; ``run.steps`` makes each ready, and ``_CHECKS`` looks at each before that."""


class LaunchList(Record, frozen=True, kw_only=True):
    """Everything a partition does, in order."""

    kernels: list[KernelRecord]
    buffers: list[BufferRecord]
    launches: list[Launches]
    output_shapes: list[list[int]]
    arena_bytes: int
    workspace_bytes: int
    """The arena, and behind it what libraries need."""


def check_launches(launches: LaunchList, stored: StoredPartition) -> None:
    """Check every number against what the plan itself says.

    Raises:
        ValueError: Something cannot be.
    """
    require(0 <= launches.arena_bytes <= launches.workspace_bytes < 2**48, "the arena has no such size")
    require(len(launches.output_shapes) == len(stored.output_specs), "there are other outputs")
    require(all(0 <= n < 2**48 for shape in launches.output_shapes for n in shape), "an output has no such shape")
    check_kernels(launches.kernels, stored)
    for buffer in launches.buffers:
        _check_buffer(buffer, launches, stored)
    zeroed = sum(buffer.size_bytes for buffer in launches.buffers if buffer.kind == "zeroed")
    require(zeroed <= _ZEROED_BYTES, "there is too much memory that is zero")
    for launch in launches.launches:
        require(all(0 <= number < len(launches.buffers) for number in launch.buffers), "there is no such buffer")
        used = [launches.buffers[number] for number in launch.buffers]
        _check_offsets(launch.offsets, used)
        _CHECKS[type(launch)](launch, used, launches)
        require(not isinstance(launch, ConvLaunch) or launch.code in stored.code, "a convolution has no code")


def check_kernels(kernels: Sequence[KernelRecord], stored: StoredPartition) -> None:
    """The same for kernels alone."""
    for kernel in kernels:
        require(kernel.code in stored.code, "a kernel has no code")
        require(1 <= kernel.num_warps <= 32, "a kernel has no such number of warps")
        require(0 <= kernel.shared_bytes <= _MAX_SHARED_BYTES, "a kernel has too much shared memory")
        require(0 <= kernel.num_addresses <= kernel.num_parameters, "a kernel has no such parameters")


def _check_buffer(buffer: BufferRecord, launches: LaunchList, stored: StoredPartition) -> None:
    require(buffer.kind in _KINDS and 0 <= buffer.size_bytes < 2**48, "there is no such buffer")
    if buffer.kind == "arena":
        end = buffer.offset + buffer.size_bytes
        is_inside = 0 <= buffer.offset < max(launches.arena_bytes, 1) and end <= launches.arena_bytes
        require(is_inside, "a buffer is not in the arena")
    elif buffer.kind == "weight":
        weight = stored.weights.get(buffer.name)
        require(weight is not None and weight.nbytes == buffer.size_bytes, "a weight is missing or of another size")
    elif buffer.kind in ("input", "output"):
        specs = stored.input_specs if buffer.kind == "input" else stored.output_specs
        require(0 <= buffer.number < len(specs), "there is no such input or output")
        require(_fits(specs[buffer.number], buffer.size_bytes), "an input or output is of another size")


def _fits(spec: TensorSpec, size_bytes: int) -> bool:
    """Whether a tensor of the plan has so many bytes; the sizes that the plan leaves open are looked at in each run."""
    import ml_dtypes  # noqa: F401 - has NumPy know the names of its types
    import numpy as np

    shape = spec.fixed_shape
    return shape is None or math.prod(shape) * np.dtype(spec.dtype).itemsize == size_bytes


def _check_offsets(offsets: Sequence[int], buffers: Sequence[BufferRecord]) -> None:
    if offsets:
        require(len(offsets) == len(buffers), "there are other offsets")
        # An address at the end of a buffer may be the end of the allocation.
        is_inside = all(
            0 <= offset < max(buffer.size_bytes, 1) for offset, buffer in zip(offsets, buffers, strict=True)
        )
        require(is_inside and not any(offset % 16 for offset in offsets), "there is no such offset")


def _check_kernel(launch: KernelLaunch, buffers: Sequence[BufferRecord], launches: LaunchList) -> None:
    kernels = launches.kernels
    require(0 <= launch.kernel < len(kernels), "there is no such kernel")
    kernel = kernels[launch.kernel]
    require(kernel.num_addresses == len(buffers), "a kernel has other buffers")
    require(kernel.num_parameters == len(buffers) + len(launch.sizes), "a kernel has other sizes")
    require(all(-(2**63) <= size < 2**63 for size in launch.sizes), "there is no such size")
    require(all(1 <= n <= most for n, most in zip(launch.grid, MAX_GRID, strict=True)), "there is no such grid")


def check_product(product: Product) -> None:
    """The same for the numbers of a product alone."""
    require(product.dtype in _WIDTHS, "products have no such type")
    require(product.activation in PRODUCT_ACTIVATIONS, "products have no such activation")
    require(math.isfinite(product.alpha), "a product has no such factor")
    require(all(1 <= n < 2**31 for n in (product.m, product.n, product.k, product.batch)), "there is no such product")


def _check_product(launch: ProductLaunch, buffers: Sequence[BufferRecord], launches: LaunchList) -> None:
    product = launch.product
    require(len(launch.algorithm) == _ALGORITHM_BYTES, "an algorithm has another size")
    check_product(product)
    require(len(buffers) == 3 + product.has_bias + product.has_residual, "a product has other buffers")
    require(launches.workspace_bytes - launches.arena_bytes >= WORKSPACE_BYTES, "a product has no scratch memory")
    offsets = launch.offsets or [0] * len(buffers)
    _check_result(buffers)
    needed = [n * _WIDTHS[product.dtype] + at for n, at in zip(list_counts(product), offsets, strict=True)]
    require(all(b.size_bytes >= n for b, n in zip(buffers, needed, strict=True)), "a matrix is larger than its buffer")


def _check_result(buffers: Sequence[BufferRecord]) -> None:
    """Require that the last buffer, which a library writes to, is not memory that a run only reads."""
    require(buffers[-1].kind in _WRITABLE_KINDS, "a library writes to an input or a weight")


def _check_conv(launch: ConvLaunch, buffers: Sequence[BufferRecord], launches: LaunchList) -> None:
    most = min(launches.workspace_bytes - launches.arena_bytes, MOST_WORKSPACE_BYTES)
    require(0 <= launch.workspace_bytes <= most, "a convolution has no scratch memory")
    offsets = launch.offsets or [0] * len(buffers)
    counts = check_convolution(launch.convolution, launch.plan)
    require(len(buffers) == len(counts), "a convolution has other buffers")
    _check_result(buffers)
    needed = [n * _WIDTHS[launch.convolution.dtype] + at for n, at in zip(counts, offsets, strict=True)]
    require(all(b.size_bytes >= n for b, n in zip(buffers, needed, strict=True)), "an image is larger than its buffer")


_CHECKS: Final[Mapping[type[Any], Callable[[Any, Sequence[BufferRecord], LaunchList], None]]] = {
    KernelLaunch: _check_kernel,
    ProductLaunch: _check_product,
    ConvLaunch: _check_conv,
}


def list_counts(product: Product) -> Iterable[int]:
    """How many elements each buffer of a product must have."""
    left = (product.k, product.m) if product.is_left_swapped else (product.m, product.k)
    right = (product.n, product.k) if product.is_right_swapped else (product.k, product.n)
    yield _count(*left, product.left_line, product.left_stride, product.batch)
    yield _count(*right, product.right_line, product.right_stride, product.batch)
    result = _count(product.m, product.n, product.result_line, product.result_stride, product.batch)
    require(product.batch == 1 or product.result_stride, "matrices of a result lie on each other")
    if product.has_bias:
        yield product.n
    if product.has_residual:
        yield result
    yield result


def _count(num_lines: int, length: int, line: int, stride: int, batch: int) -> int:
    require(0 <= stride < 2**48 and length <= line < 2**48, "a matrix has no such strides")
    return (batch - 1) * stride + (num_lines - 1) * line + length
