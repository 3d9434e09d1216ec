"""Partitions from outside: what a plan stores may be any model, and it must not name files or other memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from dovetail.errors import DovetailError, PlanCorruptError
from dovetail.provider.interfaces import BindContext, StoredPartition, TensorSpec
from dovetail.provider.loader import get_provider
from tests.openvino.stored import WEIGHT, X, make_model, store


def _load(stored: StoredPartition) -> Any:
    return get_provider("openvino").load_partition(stored)


def test_a_partition_runs_until_it_is_closed() -> None:
    loaded = _load(store())
    bound, outputs = loaded.bind(BindContext()), [None]
    loaded.close()
    bound.run([np.ones((2, 64), np.float32)], outputs)
    np.testing.assert_array_equal(outputs[0], np.full((2, 64), 64, np.float32))


def _named_file(key: str) -> bytes:
    model = make_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key=key, value="secret")
    return model.SerializeToString()


def test_a_file_is_never_named() -> None:
    stored = replace(store(), payload=memoryview(_named_file("location")), weights={})
    with pytest.raises(PlanCorruptError, match="step 'step': a compiled partition names a file"):
        _load(stored)


def test_no_partition_is_built_that_looks_like_it() -> None:
    model = make_model()
    model.graph.node[0].name = "allocation"
    with pytest.raises(DovetailError, match="a name has 'location' in it"):
        store(model)


WRONG: dict[str, Callable[[StoredPartition], StoredPartition]] = {
    "another format": lambda stored: replace(stored, version="onnx-2"),
    "more inputs": lambda stored: replace(stored, inputs=["x", "z"], input_specs=[X, X]),
    "another type": lambda stored: replace(stored, output_specs=[TensorSpec.of("float16", (None, 64))]),
    "another shape": lambda stored: replace(stored, output_specs=[TensorSpec.of("float32", (None, 65))]),
    "a weight too few": lambda stored: replace(stored, weights={}),
    "a weight of another type": lambda stored: replace(stored, weights={"w": WEIGHT.astype(np.int8)}),
    "a weight of another size": lambda stored: replace(stored, weights={"w": WEIGHT[:3]}),
    "a weight of an unknown type": lambda stored: replace(stored, weights={"w": WEIGHT.astype(np.complex64)}),
    "cut short": lambda stored: replace(stored, payload=stored.payload[:-20]),
    "no model": lambda stored: replace(stored, payload=memoryview(b"\xff" * 100)),
    "nothing": lambda stored: replace(stored, payload=memoryview(b"")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_partition_that_is_not_what_the_plan_says_is_refused(what: str) -> None:
    with pytest.raises(DovetailError) as caught:
        _load(WRONG[what](store()))
    assert "step 'step'" in str(caught.value)
