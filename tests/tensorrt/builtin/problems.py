"""Random problems for each built-in plugin, as strategies of Hypothesis: fields, and inputs that fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Array = npt.NDArray[Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Problem:
    """What a plugin is asked to compute."""

    name: str
    fields: dict[str, Any]
    inputs: list[Array]
    version: str = "1"


SIZES, FEW, FLAGS = st.integers(1, 6), st.integers(1, 3), st.integers(0, 1)
TYPES = st.sampled_from((np.float32, np.float16))
INDEX_TYPES = st.sampled_from((np.int32, np.int64))


def _rng(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@st.composite
def nms_problems(draw: Draw) -> Problem:
    rng, dtype = _rng(draw), draw(TYPES)
    n, anchors, classes = draw(FEW), draw(st.integers(0, 12)), draw(FEW)
    coding, has_anchors = draw(FLAGS), draw(st.booleans())
    shared = draw(st.sampled_from(((anchors, 4), (anchors, 1, 4), (anchors, classes, 4))))
    boxes = rng.uniform(0, 4, (n, *shared)) if not has_anchors else rng.uniform(-1, 1, (n, *shared))
    scores = rng.permutation(n * anchors * classes).reshape(n, anchors, classes) / max(n * anchors * classes, 1)
    inputs = [boxes.astype(dtype), scores.astype(dtype)]
    activation = draw(FLAGS)
    if activation:
        inputs[1] = (inputs[1].astype(np.float32) * 4 - 2).astype(dtype)
    if has_anchors:
        inputs.append(rng.uniform(0.5, 3, (draw(st.sampled_from((1, n))), anchors, 4)).astype(dtype))
    # Thresholds that no score and hardly any overlap has exactly, so that rounding decides nothing.
    fields = {
        "score_threshold": draw(st.sampled_from((0.0, 0.2001, 0.6003))),
        "iou_threshold": draw(st.sampled_from((0.1003, 0.5007, 1.5))),
        "max_output_boxes": draw(SIZES),
        "background_class": draw(st.integers(-1, 2)),
        "score_activation": activation,
        "class_agnostic": draw(FLAGS),
        "box_coding": coding,
    }
    return Problem("EfficientNMS_TRT", fields, inputs)


@st.composite
def roi_problems(draw: Draw) -> Problem:
    rng, dtype = _rng(draw), draw(TYPES)
    n, c, h, w, r = draw(FEW), draw(FEW), draw(SIZES), draw(SIZES), draw(st.integers(0, 5))
    fields = {
        "coordinate_transformation_mode": draw(FLAGS),
        "mode": draw(FLAGS),
        "output_height": draw(FEW),
        "output_width": draw(FEW),
        "sampling_ratio": draw(st.integers(0, 3)),
        "spatial_scale": draw(st.sampled_from((1.0, 0.5, 2.0))),
    }
    rois = rng.uniform(-3, 9, (r, 4))
    if draw(st.booleans()):
        rois = np.concatenate([rois[:, :2], rois[:, :2] + rng.uniform(0.1, 5, (r, 2))], axis=1)
    images, batch = rng.normal(size=(n, c, h, w)).astype(dtype), rng.integers(0, n, r).astype(draw(INDEX_TYPES))
    return Problem("ROIAlign_TRT", fields, [images, rois.astype(dtype), batch], draw(st.sampled_from("12")))


@st.composite
def pyramid_problems(draw: Draw) -> Problem:
    rng = _rng(draw)
    n, c, r = draw(FEW), draw(FEW), draw(st.integers(0, 6))
    image = (draw(st.integers(4, 32)), draw(st.integers(4, 32)))
    absolute = draw(FLAGS)
    fields = {
        "fpn_scale": draw(st.integers(1, 16)),
        "pooled_size": draw(FEW),
        "image_size": image,
        "roi_coords_absolute": absolute,
        "roi_coords_swap": draw(FLAGS),
        "roi_coords_plusone": draw(FLAGS),
        "roi_coords_transform": draw(st.sampled_from((-1, 0, 1, 2))),
        "sampling_ratio": draw(st.integers(0, 2)),
        "legacy": draw(st.sampled_from((0, 0, 1))),
    }
    reach = max(image) if absolute else 1
    maps = [rng.normal(size=(n, c, draw(SIZES), draw(SIZES))).astype(np.float32) for _ in range(4)]
    return Problem("PyramidROIAlign_TRT", fields, [rng.uniform(-0.2, 1.2, (n, r, 4)).astype(np.float32) * reach, *maps])


@st.composite
def crop_problems(draw: Draw) -> Problem:
    rng = _rng(draw)
    n, c, b = draw(FEW), draw(FEW), draw(st.integers(0, 5))
    images = rng.normal(size=(n, c, draw(SIZES), draw(SIZES))).astype(np.float32)
    boxes = rng.uniform(-0.2, 1.2, (n, b, 4, 1)).astype(np.float32)
    fields = {"crop_height": draw(FEW), "crop_width": draw(FEW)}
    return Problem("CropAndResizeDynamic", fields, [images, boxes], draw(st.sampled_from("12")))


@st.composite
def attention_problems(draw: Draw) -> Problem:
    rng, dtype, index = _rng(draw), draw(TYPES), draw(INDEX_TYPES)
    n, q, m, p, d = draw(FEW), draw(st.integers(0, 5)), draw(FEW), draw(FEW), draw(SIZES)
    shapes = np.array([(draw(SIZES), draw(SIZES)) for _ in range(draw(FEW))])
    sizes = shapes.prod(axis=1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    inputs = [
        rng.normal(size=(n, int(sizes.sum()), m, d)).astype(dtype),
        shapes.astype(index),
        starts.astype(index),
        rng.uniform(-0.3, 1.3, (n, q, m, len(shapes), p, 2)).astype(dtype),
        rng.uniform(0, 1, (n, q, m, len(shapes), p)).astype(dtype),
    ]
    return Problem("MultiscaleDeformableAttnPlugin_TRT", {}, inputs, draw(st.sampled_from("12")))


@st.composite
def convolution_problems(draw: Draw) -> Problem:
    rng, dtype = _rng(draw), draw(TYPES)
    group, shared = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    fields = {
        "stride": (draw(FEW), draw(FEW)),
        "padding": (draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        "dilation": (draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        "group": group,
        "deformable_group": shared,
    }
    n, c, o = draw(st.integers(1, 2)), 2 * draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    taps, size = (draw(FEW), draw(FEW)), (draw(SIZES), draw(SIZES))
    out = tuple(
        max(
            (size[k] + 2 * fields["padding"][k] - fields["dilation"][k] * (taps[k] - 1) - 1) // fields["stride"][k] + 1,
            0,
        )
        for k in (0, 1)
    )
    inputs = [
        rng.normal(size=(n, c, *size)),
        rng.uniform(-2, 2, (n, 2 * shared * taps[0] * taps[1], *out)),
        rng.uniform(0, 1, (n, shared * taps[0] * taps[1], *out)),
        rng.normal(size=(o, c // group, *taps)),
    ]
    if draw(st.booleans()):
        inputs.append(rng.normal(size=o))
    return Problem(
        "ModulatedDeformConv2d", fields, [array.astype(dtype) for array in inputs], draw(st.sampled_from("12"))
    )


@st.composite
def scatter_problems(draw: Draw) -> Problem:
    rng = _rng(draw)
    dtype = draw(st.sampled_from((np.float32, np.float16, np.int32, np.int64)))
    shape = [draw(st.integers(1, 5)) for _ in range(draw(FEW))]
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    places = [draw(st.integers(0, size)) for size in shape]
    places[axis] = draw(st.integers(0, 8))
    size = shape[axis]
    indices = rng.integers(-size, size, places).astype(draw(INDEX_TYPES))
    data, updates = (rng.integers(-4, 5, s).astype(dtype) for s in (shape, places))
    fields = {"axis": axis, "reduction": draw(st.sampled_from(("add", "mul", "max", "min")))}
    return Problem("ScatterElements", fields, [data, indices, updates], draw(st.sampled_from("12")))


@st.composite
def topk_problems(draw: Draw) -> Problem:
    rng = _rng(draw)
    dtype, number = draw(st.sampled_from(((np.float32, 0), (np.float16, 1), (np.int32, 3))))
    shape = [draw(st.integers(1, 9)) for _ in range(draw(FEW))]
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    values = rng.integers(-4, 5, shape).astype(dtype)  # few values, so that there are ties
    fields = {"type_id": number, "k": draw(st.integers(1, shape[axis])), "is_largest": draw(FLAGS), "axis": axis}
    return Problem("TopkLastDim", fields, [values])


@st.composite
def instance_problems(draw: Draw) -> Problem:
    rng, dtype = _rng(draw), draw(TYPES)
    c = draw(FEW)
    shape = (draw(st.integers(0, 3)), c, *(draw(SIZES) for _ in range(draw(FEW))))
    fields = {
        "epsilon": draw(st.sampled_from((1e-5, 1e-2))),
        "scales": tuple(rng.normal(size=c).astype(np.float32).tolist()),
        "bias": tuple(rng.normal(size=c).astype(np.float32).tolist()),
        "relu": draw(FLAGS),
        "alpha": draw(st.sampled_from((0.0, 0.25))),
    }
    return Problem(
        "InstanceNormalization_TRT", fields, [rng.normal(size=shape).astype(dtype)], draw(st.sampled_from("123"))
    )


@st.composite
def group_problems(draw: Draw) -> Problem:
    rng = _rng(draw)
    groups = draw(FEW)
    c = groups * draw(FEW)
    shape = (draw(st.integers(0, 3)), c, draw(SIZES), draw(SIZES))
    inputs = [rng.normal(size=each).astype(np.float32) for each in (shape, (c,), (c,))]
    return Problem(
        "GroupNormalizationPlugin", {"eps": draw(st.sampled_from((1e-5, 1e-2))), "num_groups": groups}, inputs
    )


@st.composite
def pillar_problems(draw: Draw) -> Problem:
    rng, dtype, index = _rng(draw), draw(TYPES), draw(INDEX_TYPES)
    n, p, c, shape = draw(FEW), draw(st.integers(0, 6)), draw(FEW), (draw(SIZES), draw(SIZES))
    inputs = [
        rng.normal(size=(n, p, c)).astype(dtype),
        rng.integers(-1, 8, (n, p, 4)).astype(index),
        rng.integers(0, p + 2, n).astype(index),
    ]
    return Problem("PillarScatterPlugin", {"dense_shape": shape}, inputs)


@st.composite
def disentangled_problems(draw: Draw) -> Problem:
    rng, dtype = _rng(draw), draw(TYPES)
    b, s, span = draw(FEW), draw(st.integers(0, 24)), draw(st.integers(2, 8))
    inputs = [rng.normal(size=shape).astype(dtype) for shape in ((b, s, s), (b, s, 2 * span), (b, s, 2 * span))]
    return Problem("DisentangledAttention_TRT", {"span": span, "factor": 0.25}, inputs, draw(st.sampled_from("12")))


def make_border_regions(*, is_absolute: bool) -> Problem:
    """Regions whose areas are exactly those at which the map changes, with a constant map for each level."""
    image = (5, 7)
    fields = {"fpn_scale": 1, "pooled_size": 1, "image_size": image, "roi_coords_absolute": int(is_absolute)}
    fields |= {"roi_coords_plusone": 1, "roi_coords_swap": 1, "sampling_ratio": 1}
    # In pixels, with the last one counted: 1 x 1 is the second border, 1 x 4 and 2 x 2 the third.
    boxes = np.array([[0, 7, 0, 7], [5, 0, 5, 0], [0, 0, 0, 3], [1, 2, 2, 3], [0, 0, 2, 2]], np.float32)
    maps = [np.full((1, 1, 3, 3), level, np.float32) for level in range(4)]
    if not is_absolute:
        boxes = np.array([[0, 1.1, -0.1, 1.2], [1.2, 0, 1, 0], [0, 0, 0, 3 / 8], [0, 0, 1, 1]], np.float32)
    return Problem("PyramidROIAlign_TRT", fields, [boxes[None], *maps])


PROBLEMS = {
    "nms": nms_problems(),
    "roi align": roi_problems(),
    "deformable attention": attention_problems(),
    "deformable convolution": convolution_problems(),
    "scatter": scatter_problems(),
    "top k": topk_problems(),
    "instance normalization": instance_problems(),
    "group normalization": group_problems(),
    "pillars": pillar_problems(),
    "crop": crop_problems(),
    "pyramid": pyramid_problems(),
    "disentangled attention": disentangled_problems(),
}
