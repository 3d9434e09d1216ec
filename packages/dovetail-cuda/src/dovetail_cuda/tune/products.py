"""The ways of a product: algorithms of cuBLASLt, with a kernel behind where it needs one, and tiles of our own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import Final

from dovetail_cuda.compile.products import LOCKS, PARTS, ProductTile, list_epilogue, write_epilogue, write_product
from dovetail_cuda.compile.vectors import VectorTile, write_vectors
from dovetail_cuda.graph.regions import ProductRegion
from dovetail_cuda.lower.expr import Load, walk
from dovetail_cuda.lower.matrices import Matrix
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.run.cublaslt import NUM_ALGORITHMS
from dovetail_cuda.run.payload import WORKSPACE_BYTES, Launches, Product, ProductLaunch
from dovetail_cuda.tune.drafts import draft_text
from dovetail_cuda.tune.elements import make_element_draft
from dovetail_cuda.tune.kit import Kit
from dovetail_cuda.tune.library_form import LibraryForm, match_library, split_follower
from dovetail_cuda.tune.product_tiles import list_tiles, list_vector_tiles
from dovetail_cuda.tune.questions import Draft, KernelDraft, Kernels, Operand, Place, Question, Task, Temporary, Way

__all__ = ["TF32_TOLERANCE", "LibraryDraft", "make_product_task"]

TF32_TOLERANCE: Final = 1e-3
_PRODUCT: Final = "product"
"""The role of what the library stores for a kernel behind it."""


@dataclass(frozen=True, kw_only=True)
class LibraryDraft(Draft):
    """A product by an algorithm of cuBLASLt."""

    product: Product
    algorithm: bytes
    """None yet where it is empty: the library is asked on the device."""
    version: int
    order: int
    """Which of the library's algorithms it is."""

    @property
    def scratch_bytes(self) -> int:
        """What algorithms may use."""
        return WORKSPACE_BYTES

    @property
    def rank(self) -> int | None:
        """Its place among the library's algorithms."""
        return self.order

    @property
    def is_complete(self) -> bool:
        """Whether it has its algorithm."""
        return bool(self.algorithm)

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
    size, roles = size_of(region.dtype), list_epilogue(region.stored)
    places = {
        "left": Place(buffer=region.left.buffer, offset=region.left.offset * size),
        "right": Place(buffer=region.right.buffer, offset=region.right.offset * size),
        **{role: Place(buffer=buffer) for role, (buffer, _) in roles.items()},
    }
    operands = _list_operands(region, kit)
    is_cold = kit.is_cold and any(operand.kind == "weight" for operand in operands.values())
    form = match_library(region, region.stored)
    question = Question(
        text=_describe(region, form, allows_tf32=_allows_tf32(region, kit)) + (" cold" if is_cold else ""),
        operands=operands,
        make_ways=partial(_list_ways, region, form, kit),
        product=None if form is None else _find_product(region, form, kit),
    )
    return Task(region=region, question=question, places=places)


def _allows_tf32(region: ProductRegion, kit: Kit) -> bool:
    return kit.allows_tf32 and region.dtype == "float32"


def _list_operands(region: ProductRegion, kit: Kit) -> dict[str, Operand]:
    """The memory of a product by role."""
    counts = {"left": _count(region.left, region.m, region.k), "right": _count(region.right, region.k, region.n)}
    buffers = {"left": region.left.buffer, "right": region.right.buffer}
    found = {
        role: Operand(
            count=(region.batch - 1) * matrix.batch_stride + counts[role],
            dtype=region.dtype,
            kind=kit.find_kind(buffers[role]),
        )
        for role, matrix in (("left", region.left), ("right", region.right))
    }
    for role, (buffer, dtype) in list_epilogue(region.stored).items():
        is_result = role == "result"
        found[role] = Operand(
            count=_count_result(region) if is_result else _count_read(region, buffer),
            dtype=dtype,
            kind="output" if is_result else kit.find_kind(buffer),
        )
    return found


def _count(matrix: Matrix, rows: int, columns: int) -> int:
    """The elements from the first to the last of one matrix."""
    lines, length = (columns, rows) if matrix.is_swapped else (rows, columns)
    return (lines - 1) * matrix.line + length


def _count_result(region: ProductRegion) -> int:
    return region.stored.place.bounds[1] + 1


def _count_read(region: ProductRegion, buffer: str) -> int:
    loads = [each for each in walk(region.stored.value) if isinstance(each, Load) and each.buffer == buffer]
    return max(each.index.bounds[1] for each in loads) + 1


# ways


def _list_ways(region: ProductRegion, form: LibraryForm | None, kit: Kit) -> list[Way]:
    tolerance = TF32_TOLERANCE if _allows_tf32(region, kit) else 0.0
    vectors = [_make_vector_way(region, tile, kit) for tile in list_vector_tiles(region, kit)]
    return [*_list_library_ways(region, form, kit, tolerance), *vectors, *_list_tile_ways(region, kit, tolerance)]


def _make_vector_way(region: ProductRegion, tile: VectorTile, kit: Kit) -> Way:
    text = write_vectors(region, tile)
    return Way(name=tile.name, drafts=[draft_text(text, text.buffers, kit.capability)])


def _list_tile_ways(region: ProductRegion, kit: Kit, tolerance: float) -> list[Way]:
    ways = []
    for tile in list_tiles(region, kit):
        text = write_product(region, tile, allows_tf32=_allows_tf32(region, kit))
        draft = draft_text(text, text.buffers, kit.capability)
        ways.append(
            Way(name=tile.name, drafts=[draft], temporaries=_find_temporaries(region, tile), tolerance=tolerance)
        )
    return ways


def _find_temporaries(region: ProductRegion, tile: ProductTile) -> dict[str, Temporary]:
    """What a split sum needs."""
    if tile.split == 1:
        return {}
    tiles = region.batch * -(-region.m // tile.m) * -(-region.n // tile.n)
    parts = Temporary(size_bytes=4 * tile.split * region.batch * region.m * region.n)
    return {PARTS: parts, LOCKS: Temporary(size_bytes=4 * tiles, is_zeroed=True)}


def _list_library_ways(region: ProductRegion, form: LibraryForm | None, kit: Kit, tolerance: float) -> list[Way]:
    if form is not None:
        return [
            Way(name=f"cuBLASLt {number}", drafts=[draft], tolerance=tolerance)
            for number, draft in enumerate(_list_library_drafts(region, form, kit, "result"))
        ]
    asked, rest = split_follower(region, _PRODUCT)
    behind, buffers = make_element_draft(rest, kit)
    names = {buffer: role for role, (buffer, _) in list_epilogue(region.stored).items()}
    last = KernelDraft(
        roles=tuple(names.get(buffer, buffer) for buffer in buffers), request=behind.request, grid=behind.grid
    )
    size = region.batch * region.m * region.n * size_of(region.dtype)
    return [
        Way(
            name=f"cuBLASLt {number} and a kernel",
            drafts=[draft, last],
            temporaries={_PRODUCT: Temporary(size_bytes=size)},
            tolerance=tolerance,
        )
        for number, draft in enumerate(_list_library_drafts(region, asked, kit, _PRODUCT))
    ]


def _list_library_drafts(region: ProductRegion, form: LibraryForm, kit: Kit, result: str) -> list[LibraryDraft]:
    """The library's algorithms for what it is asked, best first."""
    library, (product, roles) = kit.open_products(), _find_product(region, form, kit)
    version, algorithms = library.get_version(), library.find_algorithms(product, NUM_ALGORITHMS)
    return [
        LibraryDraft(roles=(*roles[:-1], result), product=product, algorithm=each, version=version, order=order)
        for order, each in enumerate(algorithms)
    ]


def _find_product(region: ProductRegion, form: LibraryForm, kit: Kit) -> tuple[Product, tuple[str, ...]]:
    """What a library is asked to do, and the roles of its buffers in order."""
    names = {buffer: role for role, (buffer, _) in list_epilogue(region.stored).items()}
    extra = [names[buffer] for buffer in (form.bias, form.residual) if buffer is not None]
    product = _make_product(region, form, allows_tf32=_allows_tf32(region, kit))
    return product, ("left", "right", *extra, "result")


def _make_product(region: ProductRegion, form: LibraryForm, *, allows_tf32: bool) -> Product:
    return Product(
        m=region.m,
        n=region.n,
        k=region.k,
        dtype=region.dtype,
        batch=region.batch,
        left_stride=region.left.batch_stride,
        right_stride=region.right.batch_stride,
        left_line=region.left.line,
        right_line=region.right.line,
        is_left_swapped=region.left.is_swapped,
        is_right_swapped=region.right.is_swapped,
        result_line=form.line,
        result_stride=form.stride,
        has_bias=form.bias is not None,
        has_residual=form.residual is not None,
        activation=form.activation,
        alpha=form.alpha,
        allows_tf32=allows_tf32,
    )


# words and numbers


def _describe(region: ProductRegion, form: LibraryForm | None, *, allows_tf32: bool) -> str:
    """Everything that decides the time of a product."""
    sides = "".join("t" if matrix.is_swapped else "n" for matrix in (region.left, region.right))
    strides = f" strides {region.left.batch_stride},{region.right.batch_stride}" if region.batch > 1 else ""
    strides += f" lines {region.left.line},{region.right.line}"
    shape = f"{region.batch}x{region.m}x{region.n}x{region.k}"
    extras = [_digest(region)] if form is None else _describe_form(region, form)
    extras += ["tf32"] if allows_tf32 else []
    return " ".join((f"product {shape} {sides} {region.dtype}{strides}", *extras))


def _describe_form(region: ProductRegion, form: LibraryForm) -> list[str]:
    words = [f"alpha {form.alpha}"] if form.alpha != 1.0 else []
    words += [name for name, buffer in (("bias", form.bias), ("residual", form.residual)) if buffer is not None]
    words += [form.activation] if form.activation else []
    is_natural = form.line == region.n and form.stride in (0, region.m * region.n)
    return words if is_natural else [*words, f"to {form.stride},{form.line}"]


def _digest(region: ProductRegion) -> str:
    """What follows, by its operators and the digest of its lines."""
    lines = "\n".join(write_epilogue(region.stored, frozenset(), uses_int64=False))
    types = " ".join(dtype for _, dtype in list_epilogue(region.stored).values())
    return f"followed by {hashlib.sha256((lines + types).encode()).hexdigest()[:12]}"
