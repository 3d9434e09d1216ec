"""Sequences are lists that are never changed, with positions counted from either end."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import InputError, ModelError
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels.onnx.sequences import (
    concat_from_sequence,
    optional,
    optional_get_element,
    optional_has_element,
    sequence_at,
    sequence_construct,
    sequence_empty,
    sequence_erase,
    sequence_insert,
    sequence_length,
    split_to_sequence,
)

ITEMS = [np.array([i], np.float32) for i in range(3)]


def _values(sequence: list[Array]) -> list[float]:
    return [item.item() for item in sequence]


def test_construct_and_length() -> None:
    (sequence,) = sequence_construct(*ITEMS)
    assert _values(sequence) == [0, 1, 2]
    assert not np.shares_memory(sequence[0], ITEMS[0])
    assert sequence_length(sequence).tolist() == 3
    (empty,) = sequence_empty(dtype=7)
    assert sequence_length(empty).shape == ()
    with pytest.raises(ModelError, match="element type number 99"):
        sequence_empty(dtype=99)


@pytest.mark.parametrize(
    ("position", "expected"), [(None, [0, 1, 2, 9]), (0, [9, 0, 1, 2]), (3, [0, 1, 2, 9]), (-1, [0, 1, 9, 2])]
)
def test_insert_gives_a_new_sequence(position: int | None, expected: list[float]) -> None:
    place = None if position is None else np.array(position)
    (result,) = sequence_insert(ITEMS, np.array([9], np.float32), place)
    assert _values(result) == expected
    assert _values(ITEMS) == [0, 1, 2]


def test_at_and_erase() -> None:
    assert sequence_at(ITEMS, np.array(-1)).item() == 2
    assert _values(sequence_erase(ITEMS)[0]) == [0, 1]
    assert _values(sequence_erase(ITEMS, np.array(-3))[0]) == [1, 2]


@pytest.mark.parametrize("bad", [4, -4])
def test_positions_outside_are_refused(bad: int) -> None:
    for call in (
        lambda: sequence_at(ITEMS, np.array(bad)),
        lambda: sequence_erase(ITEMS, np.array(bad)),
        lambda: sequence_insert(ITEMS, ITEMS[0], np.array(bad)),
    ):
        with pytest.raises(InputError, match="position is out of range"):
            call()
    with pytest.raises(InputError, match="op SequenceErase: the sequence is empty"):
        sequence_erase([])


def test_concat_along_an_old_or_a_new_axis() -> None:
    assert concat_from_sequence(ITEMS, axis=-1).tolist() == [0, 1, 2]
    assert concat_from_sequence(ITEMS, axis=-1, new_axis=1).shape == (1, 3)
    with pytest.raises(InputError, match="tensors differ off the axis"):
        concat_from_sequence([np.zeros((1, 2)), np.zeros((1, 3))], axis=0)
    with pytest.raises(InputError, match="the sequence is empty"):
        concat_from_sequence([], axis=0)


def test_split_into_parts() -> None:
    x = np.arange(5)
    assert [part.tolist() for part in split_to_sequence(x, np.array(2))[0]] == [[0, 1], [2, 3], [4]]
    assert [part.tolist() for part in split_to_sequence(x, np.array([1, 4]))[0]] == [[0], [1, 2, 3, 4]]
    assert [part.shape for part in split_to_sequence(x, keepdims=0)[0]] == [()] * 5
    assert split_to_sequence(x[:0])[0] == []
    with pytest.raises(InputError, match="sizes do not add up to the axis; expected 5"):
        split_to_sequence(x, np.array([1, 1]))
    with pytest.raises(InputError, match="a part must not be empty"):
        split_to_sequence(x, np.array(0))


def test_optionals_may_be_empty() -> None:
    (full,) = optional(ITEMS[1])
    assert optional_get_element(full)[0].item() == 1
    assert optional_has_element(full).tolist() is True
    assert optional_has_element(optional()[0]).tolist() is False
    assert optional_has_element().shape == ()
    with pytest.raises(InputError, match="op OptionalGetElement: the optional is empty"):
        optional_get_element(None)
