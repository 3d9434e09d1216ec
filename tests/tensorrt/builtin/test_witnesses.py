"""A second witness: operators of ONNX that compute the same, run by ONNX Runtime or the onnx package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.running import run_in_engine

ort: Any = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")


def _make(
    op: str, inputs: Sequence[np.ndarray], num_outputs: int, opset: int, domain: str = "", **attributes: Any
) -> bytes:
    names = [f"x{number}" for number in range(len(inputs))]
    outputs = [f"y{number}" for number in range(num_outputs)]
    node = onnx.helper.make_node(op, names, outputs, domain=domain, **attributes)
    given = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    opsets = [onnx.helper.make_opsetid("", opset)] + ([onnx.helper.make_opsetid(domain, 1)] if domain else [])
    graph = onnx.helper.make_graph([node], "g", given, [onnx.ValueInfoProto(name=name) for name in outputs])
    model: bytes = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model


def _run(op: str, inputs: Sequence[np.ndarray], num_outputs: int = 1, opset: int = 18, **attributes: Any) -> list[Any]:
    session = ort.InferenceSession(
        _make(op, inputs, num_outputs, opset, **attributes), providers=["CPUExecutionProvider"]
    )
    found: list[Any] = session.run(None, {f"x{number}": array for number, array in enumerate(inputs)})
    return found


@pytest.fixture(params=range(3))
def rng(request: Any) -> np.random.Generator:
    return np.random.default_rng(request.param)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(rng: np.random.Generator, aligned: int, mode: int, ratio: int) -> None:
    corner = rng.uniform(-2, 12, (20, 2))
    rois = np.concatenate([corner, corner + rng.uniform(0.5, 15, (20, 2))], axis=1).astype(np.float32)
    arrays = [rng.normal(size=(2, 5, 11, 13)).astype(np.float32), rois, rng.integers(0, 2, 20)]
    sizes = {"output_height": 4, "output_width": 3, "sampling_ratio": ratio, "spatial_scale": 0.75}
    names = {
        "mode": ("max", "avg")[mode],
        "coordinate_transformation_mode": ("output_half_pixel", "half_pixel")[aligned],
    }
    (expected,) = _run("RoiAlign", arrays, opset=16, **sizes, **names)
    (got,) = run_in_engine(
        Problem("ROIAlign_TRT", {**sizes, "mode": mode, "coordinate_transformation_mode": aligned}, arrays)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_suppression(rng: np.random.Generator) -> None:
    corner = rng.uniform(0, 60, (1, 200, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 40, (1, 200, 2))], axis=2).astype(np.float32)
    scores = rng.permutation(600).reshape(1, 200, 3).astype(np.float32) / 600
    limits = [np.array([1000]), np.array([0.45], np.float32), np.array([0.3001], np.float32)]
    (found,) = _run("NonMaxSuppression", [boxes, np.ascontiguousarray(scores.transpose(0, 2, 1)), *limits], opset=11)
    expected = sorted((-scores[0, box, label], label, box) for _, label, box in found.tolist())
    fields = {"score_threshold": 0.3001, "iou_threshold": 0.45, "max_output_boxes": 600, "background_class": -1}
    problem = Problem("EfficientNMS_TRT", {**fields, "score_activation": 0, "box_coding": 0}, [boxes, scores])
    count, kept, score, label = run_in_engine(problem)
    assert count.item() == len(expected) > 20
    assert label[0, : len(expected)].tolist() == [item[1] for item in expected]
    np.testing.assert_array_equal(score[0, : len(expected)], [-item[0] for item in expected])
    np.testing.assert_array_equal(kept[0, : len(expected)], boxes[0, [item[2] for item in expected]])


def test_deformable_attention(rng: np.random.Generator) -> None:
    shapes, heads, depth, queries, points = [(5, 7), (3, 2)], 2, 4, 6, 3
    sizes = [height * width for height, width in shapes]
    value = rng.normal(size=(2, sum(sizes), heads, depth)).astype(np.float32)
    places = rng.uniform(-0.2, 1.2, (2, queries, heads, 2, points, 2)).astype(np.float32)
    weights = rng.uniform(size=(2, queries, heads, 2, points)).astype(np.float32)
    starts = np.array([0, sizes[0]])
    expected = np.zeros((2, queries, heads, depth), np.float32)
    for level, (height, width) in enumerate(shapes):
        planes = value[:, starts[level] : starts[level] + sizes[level]].transpose(0, 2, 3, 1)
        planes = np.ascontiguousarray(planes).reshape(2 * heads, depth, height, width)
        grid = np.ascontiguousarray(places[:, :, :, level].transpose(0, 2, 1, 3, 4)).reshape(
            2 * heads, queries, points, 2
        )
        (sampled,) = _run("GridSample", [planes, grid * 2 - 1], opset=16, align_corners=0)
        sampled = sampled.reshape(2, heads, depth, queries, points)
        expected += np.einsum("nmdqp,nqmp->nqmd", sampled, weights[:, :, :, level])
    arrays = [value, np.array(shapes), starts, places, weights]
    (got,) = run_in_engine(Problem("MultiscaleDeformableAttnPlugin_TRT", {}, arrays))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_deformable_convolution(rng: np.random.Generator) -> None:
    arrays = [
        rng.normal(size=(2, 4, 7, 6)),
        rng.normal(size=(6, 2, 3, 2)),
        rng.uniform(-2, 2, (2, 24, 4, 7)),
        rng.normal(size=6),
        rng.uniform(size=(2, 12, 4, 7)),
    ]
    image, weight, offset, bias, mask = (array.astype(np.float32) for array in arrays)
    shape = {"strides": [2, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 2, "offset_group": 2}
    model = _make("DeformConv", [image, weight, offset, bias, mask], 1, 19, kernel_shape=[3, 2], **shape)
    feeds = {f"x{number}": array for number, array in enumerate((image, weight, offset, bias, mask))}
    (expected,) = onnx.reference.ReferenceEvaluator(onnx.load_model_from_string(model)).run(None, feeds)
    fields = {"stride": (2, 1), "padding": (1, 1), "dilation": (1, 1), "group": 2, "deformable_group": 2}
    (got,) = run_in_engine(Problem("ModulatedDeformConv2d", fields, [image, offset, mask, weight, bias]))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_elements(rng: np.random.Generator, reduction: str) -> None:
    data, updates = (rng.normal(size=(4, 6, 3)).astype(np.float32) for _ in range(2))
    arrays = [data, rng.integers(-6, 6, (4, 6, 3)), updates]
    (expected,) = _run("ScatterElements", arrays, axis=1, reduction=reduction)
    (got,) = run_in_engine(Problem("ScatterElements", {"axis": 1, "reduction": reduction}, arrays))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(rng: np.random.Generator, largest: int) -> None:
    values = rng.integers(-9, 9, (5, 40, 3)).astype(np.float32)
    expected = _run("TopK", [values, np.array([7])], 2, opset=11, axis=1, largest=largest, sorted=1)
    got = run_in_engine(Problem("TopkLastDim", {"type_id": 0, "k": 7, "is_largest": largest, "axis": 1}, [values]))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_normalizations(rng: np.random.Generator) -> None:
    values, scale, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 6, 5, 7), (6,), (6,)))
    (expected,) = _run("InstanceNormalization", [values, scale, bias], epsilon=1e-3)
    fields = {"epsilon": 1e-3, "scales": tuple(scale.tolist()), "bias": tuple(bias.tolist())}
    (got,) = run_in_engine(Problem("InstanceNormalization_TRT", fields, [values]))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    (expected,) = _run("GroupNormalization", [values, scale, bias], opset=21, num_groups=3, epsilon=1e-3)
    (got,) = run_in_engine(Problem("GroupNormalizationPlugin", {"eps": 1e-3, "num_groups": 3}, [values, scale, bias]))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_crop_and_resize(rng: np.random.Generator) -> None:
    images, boxes = (
        rng.normal(size=(2, 3, 9, 8)).astype(np.float32),
        rng.uniform(-0.1, 1.1, (2, 5, 4)).astype(np.float32),
    )
    arrays = [images, boxes.reshape(-1, 4), np.repeat([0, 1], 5).astype(np.int32), np.array([4, 3], np.int32)]
    (expected,) = _run("CropAndResize", arrays, domain="com.microsoft", mode="bilinear", extrapolation_value=0.0)
    (got,) = run_in_engine(
        Problem("CropAndResizeDynamic", {"crop_height": 4, "crop_width": 3}, [images, boxes[..., None]])
    )
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
