"""The normalisations, dropouts and kept old ops of ONNX Runtime against it.

GroupNorm, SkipGroupNorm and the dropouts have no CPU kernel there: the first two are held to GroupNormalization of
ONNX, the dropouts to their formula.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu._numeric import Array
from tests.support.ort_node import check_node, compare, run_kernel, run_ort

RNG = np.random.default_rng(5)


def _floats(*shape: int, dtype: Any = np.float32) -> Array:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("extra", ["", "beta", "bias", "beta bias"])
def test_skip_layer_normalization(skip: tuple[int, ...], extra: str) -> None:
    vectors = [_floats(8) if name in extra else None for name in ("beta", "bias")]
    check_node("SkipLayerNormalization", [_floats(2, 3, 8), _floats(*skip), _floats(8), *vectors], outputs=4)
    inputs = [_floats(2, 3, 8), _floats(*skip), _floats(8), *vectors]
    check_node("SkipLayerNormalization", inputs, {"epsilon": 0.5}, outputs=[True, False, False, True])


@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_skip_simplified_layer_normalization(skip: tuple[int, ...], has_bias: bool) -> None:
    inputs = [_floats(2, 3, 8), _floats(*skip), _floats(8), _floats(8) if has_bias else None]
    check_node("SkipSimplifiedLayerNormalization", inputs, {"epsilon": 0.5}, outputs=4)
    check_node("SkipSimplifiedLayerNormalization", inputs)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skip_normalizations_of_matrices_halves_and_misfits(op: str) -> None:
    check_node(op, [_floats(3, 8), _floats(3, 8), _floats(8)])
    halves = [_floats(2, 3, 8, dtype=np.float16), _floats(2, 3, 8, dtype=np.float16), _floats(8, dtype=np.float16)]
    check_node(op, halves, outputs=[True, False, False, True], rtol=5e-3, atol=5e-3)
    narrow = [array.astype(ml_dtypes.bfloat16) for array in halves]
    y, total = (run_kernel(op, narrow, outputs=4)[i] for i in (0, 3))
    assert y.dtype == total.dtype == ml_dtypes.bfloat16
    for bad in ((2, 1, 8), (8,), (2, 3, 1)):
        with pytest.raises(InputError, match="skip"):
            run_kernel(op, [_floats(2, 3, 8), _floats(*bad), _floats(8)])
    with pytest.raises(InputError, match="gamma"):
        run_kernel(op, [_floats(2, 3, 8), _floats(2, 3, 8), _floats(7)])


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_simplified_layer_normalization(axis: int, dtype: Any) -> None:
    x = _floats(2, 3, 4, dtype=dtype)
    scale = _floats(*x.shape[axis:], dtype=dtype)
    loose = 5e-3 if dtype == np.float16 else 1e-5
    attributes = {"axis": axis, "epsilon": 0.25}
    check_node("SimplifiedLayerNormalization", [x, scale], attributes, domain="", outputs=2, rtol=loose, atol=loose)


@pytest.mark.parametrize("has_bias", [False, True])
def test_layer_normalization_before_onnx_had_it(has_bias: bool) -> None:
    inputs = [_floats(2, 3, 4), _floats(4), _floats(4) if has_bias else None]
    check_node("LayerNormalization", inputs, {"epsilon": 0.25}, domain="", opset=13, outputs=3)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm_is_group_normalization(last: int, activation: int) -> None:
    x, gamma, beta = _floats(2, 6, 4, 5), _floats(6), _floats(6)
    attributes = {"activation": activation, "groups": 3, "epsilon": 0.1, "channels_last": last}
    expected = run_ort("GroupNormalization", [x, gamma, beta], {"num_groups": 3, "epsilon": 0.1}, domain="")[0]
    assert expected is not None
    if activation:
        expected = expected / (1 + np.exp(-expected))
    given = np.moveaxis(x, 1, -1).copy() if last else x
    (y,) = run_kernel("GroupNorm", [given, gamma, beta], attributes)
    compare(y, np.moveaxis(expected, 1, -1) if last else expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("form", ["whole", "image", "matrix"])
@pytest.mark.parametrize("has_bias", [False, True])
def test_skip_group_norm_is_group_norm_of_the_sum(last: int, form: str, has_bias: bool) -> None:
    shape = (2, 4, 5, 6) if last else (2, 6, 4, 5)
    per_image = (2, 1, 1, 6) if last else (2, 6, 1, 1)
    x, gamma, beta = _floats(*shape), _floats(6), _floats(6)
    skip = _floats(*{"whole": shape, "image": per_image, "matrix": (2, 6)}[form])
    bias = _floats(6) if has_bias else None
    attributes = {"activation": 1, "groups": 2, "channels_last": last}
    y, total = run_kernel("SkipGroupNorm", [x, gamma, beta, skip, bias], attributes, outputs=2)
    expected = x + skip.reshape(shape if form == "whole" else per_image)
    if bias is not None:
        expected = expected + bias.reshape((1, 1, 1, 6) if last else (1, 6, 1, 1))
    np.testing.assert_allclose(total, expected, atol=1e-6)
    (normal,) = run_kernel("GroupNorm", [expected.astype(np.float32), gamma, beta], attributes)
    np.testing.assert_allclose(y, normal, atol=1e-5)


def test_group_norm_refuses_misfits() -> None:
    x, vector = _floats(2, 4, 5, 6), _floats(6)
    for attributes, what in [
        ({"activation": 2, "groups": 2}, "activation"),
        ({"activation": 0, "groups": 4}, "groups"),
        ({"activation": 0, "groups": 0}, "groups"),
    ]:
        with pytest.raises(InputError, match=what):
            run_kernel("GroupNorm", [x, vector, vector], attributes)
    with pytest.raises(InputError, match="gamma"):
        run_kernel("GroupNorm", [x, _floats(5), vector], {"activation": 0, "groups": 2})
    with pytest.raises(InputError, match="skip"):
        run_kernel("SkipGroupNorm", [x, vector, vector, _floats(2, 5)], {"activation": 0, "groups": 2})


IDS = np.array([[1, 2, 0], [3, 1, 4]], np.int32)
SEGMENTS = np.array([[0, 1, 0], [1, 1, 0]], np.int32)
MASK = np.array([[1, 1, 0], [0, 0, 1]], np.int32)


@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("positions", [None, [[2, 1, 0]], [[2, 1, 0], [5, 4, 3]]])
def test_embed_layer_normalization(has_segments: bool, mask: Array | None, positions: Any) -> None:
    ids = None if positions is None else np.array(positions, np.int32)
    segments = (SEGMENTS, _floats(2, 8)) if has_segments else (None, None)
    tables = (segments[0], _floats(5, 8), _floats(6, 8), segments[1], _floats(8), _floats(8))
    attributes = {"epsilon": 0.25, "mask_index_type": 1}
    check_node("EmbedLayerNormalization", [IDS, *tables, mask, ids], attributes, outputs=3)


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 5), (0, -1), (1, 2), (8, 6), (8, -3)],
    ids=["word", "word<0", "segment", "place", "place<0"],
)
def test_ids_outside_an_embedding(place: int, value: int) -> None:
    inputs: list[Array | None] = [
        IDS,
        SEGMENTS,
        _floats(5, 8),
        _floats(6, 8),
        _floats(2, 8),
        _floats(8),
        _floats(8),
        None,
    ]
    inputs.append(np.zeros((1, 3), np.int32))
    broken = inputs[place]
    assert broken is not None
    inputs[place] = np.where(np.arange(3) == 1, value, broken).astype(np.int32)
    with pytest.raises(InputError, match="out of range"):
        run_kernel("EmbedLayerNormalization", inputs)


def test_embedding_misfits() -> None:
    tables = [_floats(5, 8), _floats(6, 8)]
    with pytest.raises(InputError, match="together"):
        run_kernel("EmbedLayerNormalization", [IDS, SEGMENTS, *tables, None, _floats(8), _floats(8)])
    with pytest.raises(InputError, match="mask"):
        run_kernel("EmbedLayerNormalization", [IDS, None, *tables, None, _floats(8), _floats(8), MASK[:1]])


@pytest.mark.parametrize("op", ["BiasDropout", "BitmaskBiasDropout"])
@pytest.mark.parametrize("bias", [(6,), (2, 3, 6)])
def test_biased_dropout_infers_a_sum(op: str, bias: tuple[int, ...]) -> None:
    x, b, residual = _floats(2, 3, 6), _floats(*bias), _floats(2, 3, 6)
    y, mask = run_kernel(op, [x, b, residual, np.array(0.9, np.float32)], {"seed": 3}, outputs=2)
    np.testing.assert_allclose(y, x + b + residual, atol=1e-6)
    if op == "BiasDropout":
        assert mask.dtype == bool
        assert mask.all()
    else:
        assert mask.tolist() == [0xFFFFFFFF, 0b1111]
    (alone,) = run_kernel(op, [x, b])
    np.testing.assert_allclose(alone, x + b, atol=1e-6)


def test_dropout_in_training_scales_what_it_keeps() -> None:
    x, b = np.abs(_floats(5, 8)) + 1, np.zeros(8, np.float32)
    ratio, training = np.array(0.5, np.float32), np.array(True)
    y, mask = run_kernel("BiasDropout", [x, b, None, ratio, training], {"seed": 3}, outputs=2)
    np.testing.assert_allclose(y, np.where(mask, 2 * x, 0))
    assert 0 < mask.sum() < mask.size
    same, bits = run_kernel("BitmaskDropout", [x, ratio, training], {"seed": 3}, outputs=2)
    np.testing.assert_array_equal(same, y)
    unpacked = np.unpackbits(bits.view(np.uint8), bitorder="little")[: mask.size].reshape(mask.shape)
    np.testing.assert_array_equal(unpacked.astype(bool), mask)
    with pytest.raises(InputError, match="ratio"):
        run_kernel("BitmaskDropout", [x, np.array(1.5, np.float32), training])


def test_dropout_misfits() -> None:
    with pytest.raises(InputError, match="bias"):
        run_kernel("BiasDropout", [_floats(2, 3), _floats(2)])
    with pytest.raises(InputError, match="residual"):
        run_kernel("BiasDropout", [_floats(2, 3), _floats(3), _floats(3)])


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Crop", {"border": [1, 2, 0, 1]}),
        ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 3]}),
        ("ImageScaler", {"bias": [1.0, -1.0, 0.5], "scale": 2.0}),
        ("Affine", {"alpha": 2.0, "beta": 0.5}),
        ("Scale", {"scale": 3.0}),
        ("ParametricSoftplus", {"alpha": 0.5, "beta": 2.0}),
        ("ScaledTanh", {"alpha": 0.5, "beta": 2.0}),
        ("ThresholdedRelu", {"alpha": 0.5}),
        ("MemcpyToHost", {}),
        ("MemcpyFromHost", {}),
    ],
)
def test_old_ops(op: str, attributes: dict[str, Any]) -> None:
    check_node(op, [_floats(2, 3, 5, 4)], attributes, domain="", opset=9)


def test_dynamic_slice() -> None:
    x, starts, ends = _floats(5, 6, 7), np.array([1, -3]), np.array([100, -1])
    check_node("DynamicSlice", [x, starts, ends, np.array([2, 0])], domain="", opset=9)
    check_node("DynamicSlice", [x, starts, ends], domain="", opset=9)
    with pytest.raises(InputError, match="length"):
        run_kernel("DynamicSlice", [x, starts, ends[:1]], domain="", opset=9)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"border": [1, 1]},
        {"border": [-1, 0, 0, 0]},
        {"border": [3, 0, 3, 0]},
        {"border": [0, 0, 0, 0], "scale": [9, 9]},
    ],
)
def test_crops_that_leave_the_image(attributes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="Crop"):
        run_kernel("Crop", [_floats(1, 1, 4, 4)], attributes, domain="", opset=9)
