"""What each built-in plugin is checked and built with: fields, shapes and types that are typical of its use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class PluginCase:
    """One plugin with its inputs."""

    name: str
    version: str = "1"
    fields: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[Shapes, ...]
    types: tuple[str, ...]


F, INDEX = "FLOAT", "INT32"

QUICK = ("nms", "pillars", "roi align", "scatter")
"""What is tried of every kind where there is little time."""


def mark_slow(names: Iterable[str]) -> list[Any]:
    """The names of cases as parameters of a test, most of them slow."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


CASES = {
    "nms": PluginCase(
        name="EfficientNMS_TRT",
        fields={
            "score_threshold": 0.2,
            "iou_threshold": 0.4,
            "max_output_boxes": 6,
            "background_class": -1,
            "score_activation": 0,
            "class_agnostic": 0,
            "box_coding": 0,
        },
        shapes=(((2, 9, 4), (2, 9, 3)), ((1, 30, 4), (1, 30, 3)), ((2, 0, 4), (2, 0, 3))),
        types=(F, F),
    ),
    "nms with anchors": PluginCase(
        name="EfficientNMS_TRT",
        fields={
            "score_threshold": 0.2,
            "iou_threshold": 0.4,
            "max_output_boxes": 6,
            "background_class": 0,
            "score_activation": 1,
            "class_agnostic": 1,
            "box_coding": 1,
        },
        shapes=(((2, 9, 3, 4), (2, 9, 3), (1, 9, 4)), ((3, 4, 3, 4), (3, 4, 3), (1, 4, 4))),
        types=(F, F, F),
    ),
    "roi align": PluginCase(
        name="ROIAlign_TRT",
        version="2",
        fields={"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 3.0},
        shapes=(((2, 3, 8, 7), (5, 4), (5,)), ((4, 3, 4, 4), (9, 4), (9,)), ((2, 3, 8, 7), (0, 4), (0,))),
        types=(F, F, INDEX),
    ),
    "deformable attention": PluginCase(
        name="MultiscaleDeformableAttnPlugin_TRT",
        version="2",
        shapes=(
            ((2, 12, 2, 4), (3, 2), (3,), (2, 5, 2, 3, 4, 2), (2, 5, 2, 3, 4)),
            ((1, 9, 2, 4), (2, 2), (2,), (1, 7, 2, 2, 3, 2), (1, 7, 2, 2, 3)),
        ),
        types=(F, INDEX, INDEX, F, F),
    ),
    "deformable convolution": PluginCase(
        name="ModulatedDeformConv2d",
        version="2",
        fields={"stride": (1, 2), "padding": (1, 1), "dilation": (1, 1), "group": 2, "deformable_group": 2},
        shapes=(
            ((2, 4, 6, 7), (2, 36, 6, 4), (2, 18, 6, 4), (6, 2, 3, 3), (6,)),
            ((1, 4, 3, 3), (1, 36, 3, 2), (1, 18, 3, 2), (6, 2, 3, 3), (6,)),
        ),
        types=(F,) * 5,
    ),
    "scatter": PluginCase(
        name="ScatterElements",
        version="2",
        fields={"axis": 1, "reduction": "add"},
        shapes=(((3, 4), (3, 5), (3, 5)), ((6, 8), (2, 8), (2, 8)), ((3, 4), (3, 0), (3, 0))),
        types=(F, "INT64", F),
    ),
    "top k": PluginCase(
        name="TopkLastDim",
        fields={"type_id": 0, "k": 3, "is_largest": 1, "axis": 1},
        shapes=(((2, 8, 3),), ((5, 40, 3),), ((0, 8, 3),)),
        types=(F,),
    ),
    "instance normalization": PluginCase(
        name="InstanceNormalization_TRT",
        version="3",
        fields={"epsilon": 1e-4, "scales": (1.0, 0.5, 2.0), "bias": (0.0, 1.0, -1.0), "relu": 1, "alpha": 0.25},
        shapes=(((2, 3, 8, 8),), ((1, 3, 5, 33),), ((0, 3, 8, 8),)),
        types=(F,),
    ),
    "instance normalization of volumes": PluginCase(
        name="InstanceNormalization_TRT",
        version="3",
        fields={"epsilon": 1e-3, "scales": (1.0, 0.5, 2.0), "bias": (0.0, 1.0, -1.0), "relu": 0, "alpha": 0.0},
        shapes=(((2, 3, 4, 4, 4),), ((1, 3, 5, 2, 3),)),
        types=("HALF",),
    ),
    "group normalization": PluginCase(
        name="GroupNormalizationPlugin",
        fields={"eps": 1e-4, "num_groups": 2},
        shapes=(((2, 6, 8, 8), (6,), (6,)), ((1, 6, 5, 3), (6,), (6,))),
        types=(F, F, F),
    ),
    "pillars": PluginCase(
        name="PillarScatterPlugin",
        fields={"dense_shape": (5, 6)},
        shapes=(((2, 8, 4), (2, 8, 4), (2,)), ((1, 5, 3), (1, 5, 4), (1,))),
        types=(F, INDEX, INDEX),
    ),
    "crop": PluginCase(
        name="CropAndResizeDynamic",
        version="2",
        fields={"crop_width": 3, "crop_height": 2},
        shapes=(((2, 3, 8, 8), (2, 5, 4, 1)), ((1, 3, 4, 5), (1, 2, 4, 1)), ((2, 3, 8, 8), (2, 0, 4, 1))),
        types=(F, F),
    ),
    "pyramid": PluginCase(
        name="PyramidROIAlign_TRT",
        fields={"fpn_scale": 2, "pooled_size": 2, "image_size": (4, 4), "sampling_ratio": 2},
        shapes=(
            ((2, 7, 4), (2, 3, 8, 8), (2, 3, 4, 4), (2, 3, 2, 2), (2, 3, 1, 1)),
            ((1, 3, 4), (1, 3, 9, 7), (1, 3, 5, 4), (1, 3, 3, 2), (1, 3, 1, 1)),
        ),
        types=(F,) * 5,
    ),
    "disentangled attention": PluginCase(
        name="DisentangledAttention_TRT",
        version="2",
        fields={"span": 4, "factor": 0.125},
        shapes=(((2, 16, 16), (2, 16, 8), (2, 16, 8)), ((3, 5, 5), (3, 5, 8), (3, 5, 8))),
        types=(F,) * 3,
    ),
}
