"""String constants as a plan stores them: one blob of bytes with a shape, offsets and UTF-8 text.

The layout, all numbers unsigned, little-endian and of eight bytes: the rank, the dims, one offset more than there are
strings, and then the text. String number ``i`` is the text between offset ``i`` and offset ``i + 1``. A blob from
outside is checked before anything is made from it: it cannot make more strings than it has offsets for.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.errors import PlanCorruptError
from dovetail.plan.verify.rules import MAX_BYTES, MAX_RANK, require

__all__ = ["pack_strings", "unpack_strings"]

_WORD: Final = np.dtype("<u8")


def pack_strings(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of an array of ``str``.

    >>> text = np.array(["a", "bc"], dtype=object)
    >>> unpack_strings(memoryview(pack_strings(text)), "example").tolist()
    ['a', 'bc']
    """
    parts = [text.encode() for text in array.reshape(-1)]
    offsets = np.cumsum([0, *(len(part) for part in parts)])
    head = np.array([array.ndim, *array.shape, *offsets], dtype=_WORD)
    return np.frombuffer(head.tobytes() + b"".join(parts), np.uint8)


def unpack_strings(data: memoryview, where: str) -> npt.NDArray[Any]:
    """The array of ``str`` that a blob holds.

    Raises:
        PlanCorruptError: The blob is not what ``pack_strings`` makes.
    """
    raw = bytes(data)
    words = np.frombuffer(raw, _WORD, count=len(raw) // _WORD.itemsize)
    require(words.size > 0 and int(words[0]) <= MAX_RANK, where, "strings without a rank")
    rank = int(words[0])
    require(words.size > rank, where, "strings without a shape", rank)
    shape = tuple(int(n) for n in words[1 : 1 + rank])
    # Each string has an offset in the blob, so a count beyond that is no count; empty shapes may have any dims.
    count = math.prod(shape)
    is_sized = count < words.size - rank - 1 and math.prod(filter(None, shape)) < MAX_BYTES
    require(is_sized, where, "strings without offsets", shape[:8])
    offsets = [int(n) for n in words[1 + rank : 2 + rank + count]]
    text = raw[(2 + rank + count) * _WORD.itemsize :]
    is_sorted = offsets[0] == 0 and all(a <= b for a, b in itertools.pairwise(offsets))
    require(is_sorted and offsets[-1] == len(text), where, "the offsets of strings do not fit their text")
    result = np.empty(count, dtype=object)
    try:
        result[:] = [text[a:b].decode() for a, b in itertools.pairwise(offsets)]
    except UnicodeDecodeError:
        raise PlanCorruptError("a string is not UTF-8", where=where, fix="build the plan again") from None
    return result.reshape(shape)
