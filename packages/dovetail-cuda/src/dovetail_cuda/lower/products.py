"""From a product region to candidates: algorithms of cuBLASLt, and tiles of a kernel of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail_cuda.compile.request import KernelRequest
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.types import triton_name
from dovetail_cuda.run.payload import Product

__all__ = ["GemmTile", "describe_product", "is_small", "list_tiles", "make_request"]

_SMALL: Final = 1 << 16
"""Products of fewer multiplications than this are sums over rows: neither a library nor tiles gain anything."""
_TILES: Final = ((16, 64, 64, 4, 4), (32, 64, 64, 4, 4), (64, 64, 64, 4, 4), (128, 64, 64, 4, 3), (128, 128, 64, 8, 3))
_SHARED_BYTES: Final = 220 << 10


@dataclass(frozen=True, kw_only=True)
class GemmTile:
    """How the kernel of ours is cut."""

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int

    @property
    def name(self) -> str:
        """What plans and timing caches call it."""
        return f"tile {self.m}x{self.n}x{self.k} w{self.num_warps} s{self.num_stages}"


def describe_product(region: ProductRegion, *, allows_tf32: bool) -> Product:
    """The product as launches and libraries have it."""
    made, left, right = region.product, region.left, region.right
    return Product(
        m=made.left.shape[-2],
        n=made.right.shape[-1],
        k=made.left.shape[-1],
        dtype=made.dtype,
        batch=max(left.batch, right.batch),
        left_stride=left.batch_stride,
        right_stride=right.batch_stride,
        left_line=left.line,
        right_line=right.line,
        is_left_swapped=left.is_swapped,
        is_right_swapped=right.is_swapped,
        has_bias=made.bias is not None,
        activation=made.activation,
        alpha=made.alpha,
        allows_tf32=allows_tf32 and made.dtype == "float32",
    )


def is_small(product: Product) -> bool:
    """Whether it is not worth a product."""
    return product.batch * product.m * product.n * product.k < _SMALL


def list_tiles(product: Product) -> list[GemmTile]:
    """The tiles worth trying: those that do not waste most of themselves, and fit shared memory."""
    if product.dtype == "float64":
        return []
    width = 4 if product.dtype == "float32" else 2
    found = []
    for m, n, k, warps, stages in _TILES:
        is_wasteful = (m > 16 and m >= 4 * product.m) or n >= 4 * max(product.n, 16)
        if not is_wasteful and (m + n) * k * width * stages <= _SHARED_BYTES:
            found.append(GemmTile(m=m, n=n, k=k, num_warps=warps, num_stages=stages))
    return found


def make_request(product: Product, tile: GemmTile, capability: int) -> tuple[KernelRequest, tuple[int, int, int]]:
    """The kernel of a tile, and the grid it is launched with."""
    pointer = f"*{triton_name(product.dtype, short=True)}"
    constants: Mapping[str, bool | int | float | str] = {
        "M": product.m,
        "N": product.n,
        "K": product.k,
        **dict(zip(("LEFT_ROW", "LEFT_COLUMN"), _strides(product.left_line, product.is_left_swapped), strict=True)),
        "LEFT_BATCH": product.left_stride,
        **dict(zip(("RIGHT_ROW", "RIGHT_COLUMN"), _strides(product.right_line, product.is_right_swapped), strict=True)),
        "RIGHT_BATCH": product.right_stride,
        "HAS_BIAS": product.has_bias,
        "ACTIVATION": product.activation,
        "ALPHA": product.alpha,
        "PRECISION": "tf32" if product.allows_tf32 else "ieee",
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
    }
    request = KernelRequest(
        function="gemm",
        module="dovetail_cuda.kernels.gemm",
        signature={
            **dict.fromkeys(("left", "right", "bias", "result"), pointer),
            **dict.fromkeys(constants, "constexpr"),
        },
        constants=dict(constants),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        capability=capability,
    )
    tiles = -(-product.m // tile.m) * -(-product.n // tile.n)
    return request, (tiles, product.batch, 1)


def _strides(line: int, is_swapped: bool) -> Sequence[int]:
    """From one row to the next and from one column to the next, of a matrix that may lie the other way round."""
    return (1, line) if is_swapped else (line, 1)
