"""Constants of a plan: each is stored once, and none is taken for another."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dovetail.build.lower.blobs import BlobTable


def test_a_constant_is_stored_once() -> None:
    table, tensor = BlobTable(), ir.tensor(np.arange(3))
    assert {table.add_constant(name, tensor) for name in "abc"} == {"a"}


def test_a_constant_is_not_taken_for_one_that_was_freed() -> None:
    table = BlobTable()
    for number in range(200):  # CPython gives the address of a freed tensor to a later one
        name = table.add_constant("c", ir.tensor(np.array([number])))
        assert table.array(name).tolist() == [number]
