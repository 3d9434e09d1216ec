"""What no node of ONNX may have although its schema lets it pass, for whoever hands nodes to somebody's kernels.

Some kernels take for granted that somebody has looked: they divide by a count of zero, or read an input that is not
there, and the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["DIVISORS", "FIRST_VARIADIC", "is_bad_count"]

FIRST_VARIADIC: Final = {
    "Concat": 0,
    "Einsum": 0,
    "FeatureVectorizer": 0,
    "Loop": 2,
    "Max": 0,
    "Mean": 0,
    "Min": 0,
    "Scan": 1,
    "SequenceConstruct": 0,
    "SequenceMap": 1,
    "Sum": 0,
}
"""Operator -> from which input on none may be absent; of Scan's first version the first may."""
DIVISORS: Final = frozenset(
    (
        "blocksize",
        "chunk_size",
        "dilations",
        "group",
        "hidden_size",
        "kernel_shape",
        "kv_num_heads",
        "num_groups",
        "num_heads",
        "offset_group",
        "q_num_heads",
        "size",
        "strides",
    )
)
"""Attributes that sizes are divided by, or that count what there must be one of."""
_MAY_BE_ZERO: Final = frozenset((("RotaryEmbedding", "num_heads"),))
"""Where zero says that somebody else knows the number."""
_MAX_COUNT: Final = 2**31
"""Kernels have counts in 32 bits."""


def is_bad_count(op: str, name: str, numbers: Sequence[int]) -> bool:
    """Whether an attribute has a number below 1, or one that is zero in 32 bits, where there can be none.

    >>> is_bad_count("Conv", "strides", [1, 0]), is_bad_count("Conv", "pads", [0, 0])
    (True, False)
    """
    is_count = name in DIVISORS and (op, name) not in _MAY_BE_ZERO
    return is_count and any(not 0 < number < _MAX_COUNT for number in numbers)
