"""Sizes that no memory holds: they end in a named error before anything is allocated, not in MemoryError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.provider.schemas.typed_maps import TypedMap
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels._checks import require_room
from dovetail.providers.cpu.registry import registry

load_kernels()

BIG = 2**40
X = np.ones((2, 3), dtype=np.float32)
EMPTY = np.ones((0, 3), dtype=np.float32)
IMAGE = np.ones((1, 1, 4, 4), dtype=np.float32)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def scalar(value: float, dtype: Any = np.int64) -> Any:
    return np.array(value, dtype=dtype)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("ConstantOfShape", [ints(BIG)], {}),
    ("ConstantOfShape", [ints(2**62, 2**62)], {}),
    ("ConstantOfShape", [ints(*[BIG] * 4)], {"value": np.zeros(1, dtype=bool)}),
    ("Expand", [X[:1, :1], ints(BIG, 2)], {}),
    ("Expand", [X, ints(BIG, 1, 1)], {}),
    ("Tile", [X, ints(BIG, 1)], {}),
    ("Tile", [X, ints(2**62, 2**62)], {}),
    ("Range", [scalar(0), scalar(2**62), scalar(1)], {}),
    ("Range", [scalar(-(2**63)), scalar(2**63 - 1), scalar(1)], {}),
    ("Range", [scalar(2**63 - 1), scalar(-(2**63)), scalar(-1)], {}),
    ("Range", [scalar(0, np.float32), scalar(1e30, np.float32), scalar(1, np.float32)], {}),
    ("Range", [scalar(0, np.float64), scalar(1, np.float64), scalar(1e-300, np.float64)], {}),
    *(("Pad", [X, ints(BIG, 0, 0, 0)], {"mode": mode}) for mode in ("constant", "edge", "reflect", "wrap")),
    ("Pad", [X, ints(0, 0, 2**62, 2**62)], {}),
    ("CenterCropPad", [X, ints(BIG, 3)], {}),
    *(("Resize", [X, None, None, ints(BIG, 3)], {"mode": mode}) for mode in ("nearest", "linear", "cubic")),
    ("Resize", [X, None, np.array([1e20, 1], dtype=np.float32)], {}),
    ("Resize", [EMPTY, None, np.array([1, 1e30], dtype=np.float32)], {}),
    ("Resize", [X, None, None, ints(BIG, 3)], {"keep_aspect_ratio_policy": "not_smaller"}),
    ("OneHot", [ints(0, 1), scalar(BIG), X[0, :2]], {}),
    ("MaxUnpool", [IMAGE, np.zeros(IMAGE.shape, np.int64), ints(1, 1, BIG, 4)], {"kernel_shape": (1, 1)}),
    ("MaxUnpool", [IMAGE, np.zeros(IMAGE.shape, np.int64)], {"kernel_shape": (1, 1), "strides": (BIG, 1)}),
    ("Col2Im", [np.ones((1, 1, 1), np.float32), ints(BIG, 1), ints(BIG, 1)], {}),
    ("AffineGrid", [np.ones((1, 2, 3), np.float32), ints(1, 1, BIG, 2)], {}),
    ("HannWindow", [scalar(BIG)], {}),
    ("HammingWindow", [scalar(2**62)], {}),
    ("BlackmanWindow", [scalar(BIG)], {}),
    ("DFT", [X[..., None], scalar(BIG)], {}),
    ("DFT", [X[..., None], scalar(BIG)], {"onesided": 1}),
    (
        "MelWeightMatrix",
        [scalar(BIG), scalar(8), scalar(8), scalar(1, np.float32), scalar(2, np.float32)],
        {},
    ),
    (
        "MelWeightMatrix",
        [scalar(8), scalar(BIG), scalar(8), scalar(1, np.float32), scalar(2, np.float32)],
        {},
    ),
    ("RandomNormal", [], {"shape": (BIG,)}),
    ("RandomUniform", [], {"shape": (BIG, BIG)}),
    ("Multinomial", [X], {"sample_size": BIG}),
    ("RoiAlign", [IMAGE, np.array([[0, 0, 1e20, 1]], np.float32), ints(0)], {}),
    ("RoiAlign", [IMAGE, np.ones((1, 4), np.float32), ints(0)], {"output_height": BIG}),
    ("RoiAlign", [IMAGE, np.ones((1, 4), np.float32), ints(0)], {"sampling_ratio": BIG}),
    ("MaxRoiPool", [IMAGE, np.zeros((1, 5), np.float32)], {"pooled_shape": (BIG, 1)}),
    ("Conv", [IMAGE, np.ones((1, 1, 1, 1), np.float32)], {"pads": (BIG, 0, 0, 0)}),
    ("ConvTranspose", [IMAGE, np.ones((1, 1, 1, 1), np.float32)], {"strides": (BIG, 1)}),
    ("ConvTranspose", [IMAGE, np.ones((1, 1, 1, 1), np.float32)], {"output_shape": (BIG, 1)}),
    ("MaxPool", [IMAGE], {"kernel_shape": (1, 1), "pads": (0, 0, BIG, BIG)}),
    ("AveragePool", [IMAGE], {"kernel_shape": (1, 1), "pads": (BIG, BIG, 0, 0)}),
    (
        "TfIdfVectorizer",
        [ints(1, 2)],
        {
            "max_gram_length": 1,
            "max_skip_count": 0,
            "min_gram_length": 1,
            "mode": "TF",
            "ngram_counts": (0,),
            "ngram_indexes": (BIG,),
            "pool_int64s": (1,),
        },
    ),
    ("ai.onnx.ml::CastMap", [TypedMap({1: 1.0}, X.dtype)], {"map_form": "SPARSE", "max_map": BIG}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_absurd_size_is_named(op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    domain, _, name = op.rpartition("::")
    kernel = registry.find(name, domain, 5 if domain else 28)
    assert kernel is not None
    with pytest.raises(InputError, match=f"op {name}.*does not fit into memory"):
        kernel.bind(attributes, 1)(*inputs)


def test_room_is_asked_for_bytes() -> None:
    require_room("Demo", (2, 3), np.dtype(np.float32))
    require_room("Demo", (0, 2**40), np.dtype(np.float32))
    with pytest.raises(InputError, match="op Demo: the result does not fit into memory"):
        require_room("Demo", (2**24, 2**24), np.dtype(np.float32))
    with pytest.raises(InputError, match="does not fit"):
        require_room("Demo", (0, 2**63), np.dtype(np.float32))


def test_large_empty_results_are_made() -> None:
    """A size of zero makes the others harmless."""
    tile = registry.find("Tile", "", 13)
    expand = registry.find("Expand", "", 13)
    constant = registry.find("ConstantOfShape", "", 9)
    assert tile is not None
    assert expand is not None
    assert constant is not None
    assert tile.function(EMPTY, ints(2, 2**40)).shape == (0, 3 * 2**40)
    assert expand.function(EMPTY[:, :1], ints(0, 2**30)).shape == (0, 2**30)
    assert constant.function(ints(0, 2**40)).shape == (0, 2**40)
