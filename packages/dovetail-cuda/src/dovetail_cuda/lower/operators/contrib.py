"""Operators of com.microsoft that exported language models are made of: activations, products, normalizations."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dovetail_cuda.lower.expr import Expr, apply, convert, literal
from dovetail_cuda.lower.gemm import matmul, scale_tensor
from dovetail_cuda.lower.indexing import move, transpose_to
from dovetail_cuda.lower.operators.gather import gather
from dovetail_cuda.lower.operators.norm import divide_by_root, normalize_last
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Lowered, ProductTensor, Tensor, broadcast_to, make_constant, refuse
from dovetail_cuda.lower.types import FLOATS

__all__: list[str] = []

_DOMAIN: Final = "com.microsoft"
_NARROW: Final = ("float16", "bfloat16", "float32")
_SINGLE: Final = ("float32", "float16")


# activations


def _apply(text: str, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """A function of the elements, of the sum with a bias along the last axis where there is one."""
    if bias is None:
        return map_elements(lambda a: apply(text, a, dtype=x.dtype), x, dtype=x.dtype)
    _check_bias(x, bias)

    def add(a: Expr, b: Expr) -> Expr:
        return apply(text, apply("{0} + {1}", a, b, dtype=x.dtype), dtype=x.dtype)

    return map_elements(add, x, bias, dtype=x.dtype)


def _check_bias(x: Tensor, *biases: Tensor | None) -> None:
    for bias in biases:
        if bias is not None and bias.shape != x.shape[-1:]:
            raise refuse(f"a bias of shape {bias.shape} is not as long as the last axis of {x.shape}")


@registry.register("Gelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
def gelu(x: Tensor) -> Tensor:
    """Elements times the normal distribution function."""
    return _apply("f.gelu({0})", x)


@registry.register("BiasGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The same of a sum with a bias."""
    return _apply("f.gelu({0})", x, bias)


@registry.register("FastGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by the hyperbolic tangent."""
    return _apply("f.gelu_tanh({0})", x, bias)


@registry.register("QuickGelu", domain=_DOMAIN, since=1, types={"T": FLOATS})
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    """Elements times the logistic function of a multiple of them."""
    number = literal(alpha, x.dtype)
    return map_elements(lambda a: apply("{0} / (1 + tl.exp(-{0} * {1}))", a, number, dtype=x.dtype), x, dtype=x.dtype)


# products


@registry.register("FusedMatMul", domain=_DOMAIN, since=1, types={"T": FLOATS})
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema's names
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Lowered:
    """A multiple of the product of factors, each transposed as asked."""
    product = matmul(_turn(a, transA, transBatchA), _turn(b, transB, transBatchB))
    if alpha == 1.0:
        return product
    if not isinstance(product, ProductTensor):
        raise refuse("it multiplies no such product")
    return replace(product, finish=lambda result: scale_tensor(result, alpha))


def _turn(x: Tensor, is_swapped: int, moves_batch: int) -> Tensor:
    """The first axis behind those of the batch, then the last two exchanged."""
    order = list(range(x.rank))
    if moves_batch and x.rank > 2:
        order = [*order[1:-1], 0, order[-1]]
    if is_swapped and x.rank > 1:
        order = [*order[:-2], order[-1], order[-2]]
    return transpose_to(x, order)


# normalizations


def _add_wide(*parts: Tensor) -> Tensor:
    """A sum in single precision."""

    def add(*values: Expr) -> Expr:
        text = " + ".join(f"{{{number}}}" for number in range(len(values)))
        return apply(text, *(convert(each, "float32") for each in values), dtype="float32")

    return map_elements(add, *parts, dtype="float32")


def _add_skip(x: Tensor, skip: Tensor, bias: Tensor | None) -> Tensor:
    """The input and a residual, which may be the same for every sample, and a bias; in single precision."""
    if x.rank not in (2, 3) or skip.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
        raise refuse(f"a residual of shape {skip.shape} is nothing to add to {x.shape}")
    _check_bias(x, bias)
    return _add_wide(x, skip) if bias is None else _add_wide(x, skip, bias)


def _round(x: Tensor, dtype: str) -> Tensor:
    return map_elements(lambda a: convert(a, dtype), x, dtype=dtype)


@registry.register("SkipLayerNormalization", domain=_DOMAIN, since=1, types={"T": _NARROW})
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Normalization of the sum with a residual; also the moments and the sum."""
    total = _add_skip(x, skip, bias)
    _check_bias(x, gamma, beta)
    normal, *moments = normalize_last(
        total, gamma, beta, epsilon=epsilon, num_outputs=min(max(num_outputs, 1), 3), dtype=x.dtype
    )
    return (normal, *moments, _round(total, x.dtype))[:num_outputs]


@registry.register("SkipSimplifiedLayerNormalization", domain=_DOMAIN, since=1, types={"T": _NARROW})
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """The sum with a residual by its root of the mean square; also zero for a mean, one over the root, and the sum."""
    total = _add_skip(x, skip, bias)
    _check_bias(x, gamma)
    mean = make_constant(0.0, (*x.shape[:-1], 1), "float32")
    normal, inverse = divide_by_root(total, gamma, epsilon=epsilon, dtype=x.dtype)
    return (normal, mean, inverse, _round(total, x.dtype))[:num_outputs]


@registry.register("SimplifiedLayerNormalization", since=1, types={"T": FLOATS, "U": ("float32",), "V": FLOATS})
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, num_outputs: int = 1
) -> tuple[Lowered, ...]:
    """The last axes divided by the root of their mean square; also one over the root."""
    return divide_by_root(x, scale, axis=axis, epsilon=epsilon, dtype=scale.dtype)[:num_outputs]


@registry.register("EmbedLayerNormalization", domain=_DOMAIN, since=1, types={"T": _SINGLE, "T1": ("int32",)})
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    num_outputs: int = 1,
) -> tuple[Lowered, ...]:
    """Normalization of sums of embeddings; also how many words a mask keeps of each sample, and the sums."""
    batch, length = input_ids.shape
    words = gather(word_embedding, input_ids)
    if position_ids is None:
        shape = (batch, length, position_embedding.shape[1])
        places = move(position_embedding, shape, lambda at: (at[1], at[2]))
    else:
        places = gather(position_embedding, broadcast_to(position_ids, input_ids.shape))
    parts = [words, places]
    if segment_ids is not None and segment_embedding is not None:
        parts.append(gather(segment_embedding, segment_ids))
    total = _add_wide(*parts)
    (normal,) = normalize_last(total, gamma, beta, epsilon=epsilon, dtype=word_embedding.dtype)
    made = (normal, _count_words(input_ids, mask), _round(total, word_embedding.dtype))
    return made[:num_outputs]


def _count_words(input_ids: Tensor, mask: Tensor | None) -> Lowered:
    if mask is None:
        return make_constant(0, input_ids.shape[:1], "int32")
    kept = map_elements(lambda a: convert(apply("{0} == 1", a, dtype="bool"), "int32"), mask, dtype="int32")
    return make_reduced(kept, (1,), lambda rows: rows.reduce("sum", rows.read(kept)), keep=False, dtype="int32")
