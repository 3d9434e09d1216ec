"""LinearAttention: a matrix for each head that every position changes and reads, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dovetail_cuda.lower.attention import split_heads
from dovetail_cuda.lower.expr import Expr, apply, convert, literal
from dovetail_cuda.lower.index import Index
from dovetail_cuda.lower.indexing import move, reshape_to
from dovetail_cuda.lower.operators.sequences.recurrence import MOST_STEPS, join_parts
from dovetail_cuda.lower.pointwise import map_elements
from dovetail_cuda.lower.reduce import make_reduced
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.stages import Store, make_staged
from dovetail_cuda.lower.tensors import Lowered, Tensor, make_constant, refuse

__all__: list[str] = []

_TYPES: Final = ("float32", "float16", "bfloat16")
_RULES: Final = ("linear", "gated", "delta", "gated_delta")


def _widen(x: Tensor, text: str = "{0}") -> Tensor:
    """A function of elements in single precision."""
    return map_elements(lambda a: apply(text, convert(a, "float32"), dtype="float32"), x, dtype="float32")


def _narrow(x: Tensor, dtype: str) -> Tensor:
    return map_elements(lambda a: convert(a, dtype), x, dtype=dtype)


def _at(x: Tensor, time: int) -> Tensor:
    """One position of (batch, heads, length, size)."""
    return move(x, (*x.shape[:2], x.shape[3]), lambda at: (*at[:2], Index((), time), at[2]))


def _read_state(vectors: Tensor, state: Tensor) -> Lowered:
    """Vectors (batch, heads, size) times matrices (batch, shared heads, size, columns)."""
    batch, heads, size = vectors.shape
    group = heads // state.shape[1]

    def pull(at: Sequence[Index], guard: Expr | None) -> Expr:
        sample, head, column, row = at
        factors = vectors.at((sample, head, row), guard), state.at((sample, head // group, row, column), guard)
        return apply("{0} * {1}", *factors, dtype="float32")

    products = Tensor(shape=(batch, heads, state.shape[3], size), dtype="float32", pull=pull)
    return make_reduced(products, (3,), lambda rows: rows.reduce("sum", rows.read(products)), keep=False)


@registry.register("LinearAttention", since=27, types={"T": _TYPES, "S": _TYPES})
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    num_outputs: int = 2,
) -> tuple[Lowered, ...]:
    """The results of all positions, and the matrices after the last one."""
    gated, corrected = update_rule.startswith("gated"), update_rule.endswith("delta")
    if update_rule not in _RULES or (decay is not None) != gated or (beta is not None) != corrected:
        raise refuse(f"the rule '{update_rule}' and its inputs do not fit")
    length = query.shape[1]
    if length > MOST_STEPS or kv_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise refuse(f"it goes over at most {MOST_STEPS} positions, and heads of queries share those of keys")
    q, k, v = (
        _widen(split_heads(x, heads)) for x, heads in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    gates = None if decay is None else _widen(split_heads(decay, kv_num_heads), "tl.exp({0})")
    rates = None if beta is None else _widen(split_heads(beta, beta.shape[2]))
    batch, size, columns = query.shape[0], k.shape[3], v.shape[3]
    shape = (batch, kv_num_heads, size, columns)
    factor = literal(scale or size**-0.5, "float32")

    def update(store: Store, name: str, state: Tensor, time: int) -> Tensor:
        faded = state if gates is None else _map("{0} * {1}", state, _stand(_at(gates, time)))
        given = _at(v, time)
        if rates is not None:
            stored = faded if gates is None else store(f"{name}.faded", faded)
            faded, recalled = stored, store(f"{name}.recalled", _read_state(_at(k, time), stored))
            given = _map("{0} * ({1} - {2})", _at(rates, time), given, recalled)
        return store(f"{name}.state", _map("{0} + {1} * {2}", faded, _stand(_at(k, time)), _lie(given)))

    def steps(store: Store) -> Sequence[Tensor]:
        state = make_constant(0, shape, "float32") if past_state is None else _widen(past_state)
        found = []
        for time in range(length):
            state = update(store, str(time), state, time)
            read = store(f"{time}.read", _read_state(_at(q, time), state))
            found.append(reshape_to(read, (batch, 1, q_num_heads * columns)))
        joined = join_parts(store, "joined", found, axis=1)
        scaled = map_elements(lambda a: apply("{0} * {1}", a, factor, dtype="float32"), joined, dtype="float32")
        return _narrow(scaled, query.dtype), _narrow(state, kept)

    kept = query.dtype if past_state is None else past_state.dtype
    return make_staged([((batch, length, q_num_heads * columns), query.dtype), (shape, kept)], steps)[:num_outputs]


def _map(text: str, *tensors: Tensor) -> Tensor:
    return map_elements(lambda *values: apply(text, *values, dtype="float32"), *tensors, dtype="float32")


def _stand(x: Tensor) -> Tensor:
    """Vectors as columns of matrices."""
    return reshape_to(x, (*x.shape, 1))


def _lie(x: Tensor) -> Tensor:
    """Vectors as rows of matrices."""
    return reshape_to(x, (*x.shape[:2], 1, x.shape[2]))
