"""What no node of ONNX may have although its schema lets it pass, for whoever hands nodes to somebody's kernels.

Some kernels take for granted that somebody has looked: they divide by a count of zero, or read an input that is not
there, and the process ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["DIVISORS", "FIRST_VARIADIC", "FORM_ATTRIBUTES", "NodeForm", "find_bad_form"]

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
FORM_ATTRIBUTES: Final = ("num_outputs", "num_scan_inputs", "perm", "split")
"""Attributes that must fit the inputs and outputs that a node has."""
_MAX_COUNT: Final = 2**31
"""Kernels have counts in 32 bits."""
_MAX_SHOWN: Final = 8


@dataclass(kw_only=True)
class NodeForm:
    """What can be judged of a node, whether it was read from a graph or from bytes."""

    op: str = ""
    num_inputs: int = 0
    num_outputs: int = 0
    numbers: dict[str, Sequence[int]] = field(default_factory=dict)
    """Attributes that are one number or several, and sizes that came as a constant input."""


def find_bad_form(node: NodeForm) -> Iterator[str]:
    """What is wrong with a node of ONNX, in words.

    >>> list(find_bad_form(NodeForm(op="Split", num_inputs=1, num_outputs=2, numbers={"num_outputs": [3]})))
    ["attribute 'num_outputs' is 3; expected 2, as there are outputs"]
    >>> list(find_bad_form(NodeForm(op="Conv", numbers={"strides": [1, 0], "pads": [0, 0]})))
    ["attribute 'strides' is [1, 0]; expected 1 to 2147483647"]
    """
    order = node.numbers.get("perm", ())
    if sorted(order) != list(range(len(order))):
        yield f"attribute 'perm' is no order of axes: {_show(order)}"
    for name, numbers in node.numbers.items():
        if _is_bad_count(node.op, name, numbers):
            yield f"attribute '{name}' is {_show(numbers)}; expected 1 to {_MAX_COUNT - 1}"
    if node.op == "Split":
        yield from _find_in_split(node.num_outputs, node.numbers)
    scans = node.numbers.get("num_scan_inputs", (1,))[-1]
    if node.op == "Scan" and not 1 <= scans <= node.num_inputs:
        yield f"attribute 'num_scan_inputs' is {scans}; expected 1 to {node.num_inputs}, as there are inputs"


def _find_in_split(num_outputs: int, numbers: Mapping[str, Sequence[int]]) -> Iterator[str]:
    count, sizes = numbers.get("num_outputs"), numbers.get("split")
    if count and count[-1] != num_outputs:
        yield f"attribute 'num_outputs' is {count[-1]}; expected {num_outputs}, as there are outputs"
    if sizes is not None and len(sizes) != num_outputs:
        yield f"'split' has {len(sizes)} sizes; expected {num_outputs}, as there are outputs"
    if sizes is not None and any(size < 0 for size in sizes):
        yield f"'split' has a negative size: {_show(sizes)}"


def _is_bad_count(op: str, name: str, numbers: Sequence[int]) -> bool:
    """Whether an attribute has a number below 1, or one that is zero in 32 bits, where there can be none."""
    is_count = name in DIVISORS and (op, name) not in _MAY_BE_ZERO
    return is_count and any(not 0 < number < _MAX_COUNT for number in numbers)


def _show(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else str(list(numbers[:_MAX_SHOWN]))
