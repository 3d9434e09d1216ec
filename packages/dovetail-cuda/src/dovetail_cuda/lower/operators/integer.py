"""Products of small whole numbers, summed up in 32 bits, and numbers that are made small by their own range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert
from dovetail_cuda.lower.gemm import matmul
from dovetail_cuda.lower.indexing import reshape_to
from dovetail_cuda.lower.operators.quantize import quantize
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, Rows, Tensor, refuse

__all__: list[str] = []

_SMALL: Final = ("int8", "uint8")


def _shift(x: Tensor, zero: Tensor | None, *, is_column: bool) -> Tensor:
    """Numbers in 32 bits without their zero point, which is one for all, for each row or for each column."""
    wide = map_elements(lambda a: convert(a, "int32"), x, dtype="int32")
    if zero is None:
        return wide
    if zero.count == 1:
        zero = reshape_to(zero, ())
    elif zero.rank == 1 and not is_column:
        zero = reshape_to(zero, (zero.count, 1))
    return map_elements(
        lambda a, b: apply("{0} - {1}", a, convert(b, "int32"), dtype="int32"), wide, zero, dtype="int32"
    )


@registry.register("MatMulInteger", since=10, types={"T1": _SMALL, "T2": _SMALL})
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Lowered:
    """The product of whole numbers."""
    return matmul(_shift(a, a_zero, is_column=False), _shift(b, b_zero, is_column=True))


@registry.register("QLinearMatMul", since=10, types={"T1": _SMALL, "T2": _SMALL, "T3": _SMALL})
def quantized_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Lowered:
    """The product of numbers in few bits, again in few bits."""
    if any(each.count != 1 for each in (a_scale, b_scale, y_scale, y_zero)):
        raise refuse("it multiplies no numbers whose scales are many")
    scales = [reshape_to(each, ()) for each in (a_scale, b_scale)]

    def steps(store: Store) -> Sequence[Tensor]:
        product = store("sums", matmul_integer(a, b, a_zero, b_zero))

        def restore(total: Expr, first: Expr, second: Expr) -> Expr:
            factors = [convert(each, "float32") for each in (first, second)]
            return apply("{0} * ({1} * {2})", convert(total, "float32"), *factors, dtype="float32")

        wide = map_elements(restore, product, *scales, dtype="float32")
        return (quantize(wide, y_scale, y_zero),)

    plain = matmul_integer(a, b, a_zero, b_zero)
    return make_staged([(plain.shape, y_zero.dtype)], steps)[0]


@registry.register("DynamicQuantizeLinear", since=11, types={"T1": ("float32",), "T2": ("uint8",)})
def quantize_by_range(x: Tensor, *, num_outputs: int = 3) -> tuple[Lowered, ...]:
    """Numbers in 8 bits, with a scale and a zero point by the least and the greatest of them."""

    def find(kind: str) -> Lowered:
        def body(rows: Rows) -> Expr:
            extreme = rows.reduce(kind, rows.read(x))
            return apply(f"tl.{kind}imum({{0}}, 0.0)", extreme, dtype="float32")

        return make_reduced(x, range(x.rank), body, keep=False)

    def steps(store: Store) -> Sequence[Tensor]:
        low, high = store("low", find("min")), store("high", find("max"))
        text = "tl.where({1} == {0}, 1.0, tl.div_rn({1} - {0}, 255.0))"
        scale = store(
            "scale", map_elements(lambda a, b: apply(text, a, b, dtype="float32"), low, high, dtype="float32")
        )
        zero = store("zero", map_elements(_find_zero, low, scale, dtype="uint8"))
        return quantize(x, scale, zero), scale, zero

    def _find_zero(low: Expr, scale: Expr) -> Expr:
        text = "tl.clamp(f.round(tl.div_rn(-{0}, {1})), 0.0, 255.0)"
        return convert(apply(text, low, scale, dtype="float32"), "uint8")

    return make_staged([(x.shape, "uint8"), ((), "float32"), ((), "uint8")], steps)[:num_outputs]
