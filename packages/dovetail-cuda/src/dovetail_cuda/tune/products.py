"""The ways of a product: algorithms of cuBLASLt, and tiles of a kernel of ours; a small one is sums over rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from dovetail_cuda.graph.regions import ElementRegion, ProductRegion, Stored, list_offsets, list_operands
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.products import describe_product, is_small, list_tiles, make_request
from dovetail_cuda.lower.tensors import refuse
from dovetail_cuda.run.payload import WORKSPACE_BYTES, Launches, Product, ProductLaunch, list_counts
from dovetail_cuda.tune.elements import make_element_task
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.questions import Draft, KernelDraft, Kernels, Operand, Place, Question, Task, Way

__all__ = ["TF32_TOLERANCE", "LibraryDraft", "make_product_task"]

_NUM_ALGORITHMS: Final = 4
_REFERENCE_OPS: Final = 1 << 31
"""Products up to so many multiplications are compared with NumPy's; larger ones with each other."""
TF32_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class LibraryDraft(Draft):
    """A product by an algorithm of cuBLASLt."""

    product: Product
    algorithm: bytes
    version: int

    @property
    def scratch_bytes(self) -> int:
        """What algorithms may use."""
        return WORKSPACE_BYTES

    def make_launch(self, kernels: Kernels, buffers: list[int], offsets: list[int], layers: list[str]) -> Launches:
        """The call of the library."""
        return ProductLaunch(
            product=self.product,
            buffers=buffers,
            offsets=offsets,
            algorithm=self.algorithm,
            library_version=self.version,
            layers=layers,
        )


def make_product_task(region: ProductRegion, kit: Kit) -> Task:
    """The task of a product."""
    product = describe_product(region, allows_tf32=kit.allows_tf32)
    if is_small(product):
        return make_element_task(_sum_rows(region), kit)
    roles, names = _list_roles(product), list_operands(region)
    kinds = [*(kit.find_kind(name) for name in names[:-1]), "output"]
    question = Question(
        text=_describe(product) + (" cold" if kit.is_cold and "weight" in kinds else ""),
        operands={
            role: Operand(count=count, dtype=product.dtype, kind=kind)
            for role, count, kind in zip(roles, list_counts(product), kinds, strict=True)
        },
        make_ways=partial(_list_ways, product, kit),
        reference=partial(_multiply, product),
    )
    offsets = zip(names, list_offsets(region), strict=True)
    places = {role: Place(buffer=n, offset=at) for role, (n, at) in zip(roles, offsets, strict=True)}
    return Task(region=region, question=question, places=places)


def _list_roles(product: Product) -> tuple[str, ...]:
    return ("left", "right", "bias", "result") if product.has_bias else ("left", "right", "result")


def _list_ways(product: Product, kit: Kit) -> list[Way]:
    library, roles = kit.open_products(), _list_roles(product)
    version, tolerance = library.get_version(), TF32_TOLERANCE if product.allows_tf32 else 0.0
    ways = []
    for number, algorithm in enumerate(library.find_algorithms(product, _NUM_ALGORITHMS)):
        draft = LibraryDraft(roles=roles, product=product, algorithm=algorithm, version=version)
        ways.append(Way(name=f"cuBLASLt {number}", drafts=[draft], tolerance=tolerance))
    for tile in list_tiles(product):
        request, grid = make_request(product, tile, kit.capability)
        # The kernel has a parameter for the bias, which it does not read where there is none.
        given = roles if product.has_bias else ("left", "right", "left", "result")
        ways.append(
            Way(name=tile.name, drafts=[KernelDraft(roles=given, request=request, grid=grid)], tolerance=tolerance)
        )
    return ways


def _sum_rows(region: ProductRegion) -> ElementRegion:
    """A product as sums over rows."""
    plain = region.product.plain
    if plain is None:
        raise refuse("a product has no plain form")
    place = Index.variable("i", plain.rows.num_rows)
    stored = Stored(buffer=region.buffer, dtype=plain.dtype, value=plain.value, place=place)
    return ElementRegion(
        stored=(stored,), count=plain.rows.num_rows, rows=plain.rows, layers=region.layers, ops=region.ops
    )


def _describe(product: Product) -> str:
    """Everything that decides the time of a product."""
    sides = "".join("t" if swapped else "n" for swapped in (product.is_left_swapped, product.is_right_swapped))
    strides = f" strides {product.left_stride},{product.right_stride}" if product.batch > 1 else ""
    strides += f" lines {product.left_line},{product.right_line}"
    extras = [f"alpha {product.alpha}"] if product.alpha != 1.0 else []
    extras += [name for name in ("bias" if product.has_bias else "", product.activation) if name]
    extras += ["tf32"] if product.allows_tf32 else []
    shape = f"{product.batch}x{product.m}x{product.n}x{product.k}"
    return " ".join((f"product {shape} {sides} {product.dtype}{strides}", *extras))


def _view(flat: Any, rows: int, columns: int, stride: int, line: int, is_swapped: bool, batch: int) -> Any:
    """The matrices that lie in an operand."""
    steps = [stride, 1, line] if is_swapped else [stride, line, 1]
    strides = [step * flat.itemsize for step in steps]
    return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides, writeable=False)


def _multiply(product: Product, arrays: Mapping[str, Any]) -> Sequence[Any] | None:
    """The product by NumPy, where that does not take long."""
    if product.batch * product.m * product.n * product.k > _REFERENCE_OPS:
        return None
    wide = np.float64 if product.dtype == "float64" else np.float32
    p, given = product, {role: array.astype(wide) for role, array in arrays.items()}
    left = _view(given["left"], p.m, p.k, p.left_stride, p.left_line, p.is_left_swapped, p.batch)
    right = _view(given["right"], p.k, p.n, p.right_stride, p.right_line, p.is_right_swapped, p.batch)
    result = np.matmul(left, right) * wide(product.alpha)
    result = result + given["bias"] if product.has_bias else result
    if product.activation == "relu":
        result = np.maximum(result, 0)
    elif product.activation == "gelu_tanh":
        inner = 0.7978845608028654 * (result + 0.044715 * result**3)
        result = 0.5 * result * (1 + np.tanh(inner))
    return [result.astype(np.dtype(product.dtype)).ravel()]
