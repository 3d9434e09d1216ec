"""Numbers of the enumerations: plans, scripts and other tools store them."""

from __future__ import annotations

from enum import IntEnum

import pytest

from dovetail.network.api import enums

LAST = {
    "ActivationType": ("GELU_TANH", 13),
    "AttentionIOForm": ("PACKED_NHD", 1),
    "AttentionNormalizationOp": ("SOFTMAX", 1),
    "BoundingBoxFormat": ("CENTER_SIZES", 1),
    "CausalMaskKind": ("LOWER_RIGHT", 2),
    "CollectiveOperation": ("SCATTER", 7),
    "CumulativeOperation": ("SUM", 0),
    "ElementWiseOperation": ("LESS", 13),
    "FillOperation": ("RANDOM_NORMAL", 2),
    "GatherMode": ("ND", 2),
    "InterpolationMode": ("CUBIC", 2),
    "KVCacheMode": ("LINEAR", 0),
    "LayerType": ("DIST_COLLECTIVE", 56),
    "LoopOutput": ("REVERSE", 2),
    "MatrixOperation": ("VECTOR", 2),
    "MoEActType": ("SILU", 1),
    "NetworkDefinitionCreationFlag": ("PREFER_JIT_PYTHON_PLUGINS", 2),
    "PaddingMode": ("SAME_LOWER", 3),
    "PoolingType": ("MAX_AVERAGE_BLEND", 2),
    "ReduceOperation": ("NONE", 5),
    "ResizeCoordinateTransformation": ("HALF_PIXEL", 2),
    "ResizeRoundMode": ("CEIL", 3),
    "ResizeSelector": ("UPPER", 1),
    "SampleMode": ("REFLECT", 4),
    "ScaleMode": ("ELEMENTWISE", 2),
    "ScatterMode": ("ND", 1),
    "TopKOperation": ("MIN", 1),
    "TripLimit": ("WHILE", 1),
    "UnaryOperation": ("ISNAN", 24),
    "WeightsRole": ("ANY", 5),
}


def test_every_enumeration_is_listed() -> None:
    assert set(LAST) == set(enums.__all__)


@pytest.mark.parametrize("name", sorted(LAST))
def test_members_count_from_zero(name: str) -> None:
    enum: type[IntEnum] = getattr(enums, name)
    assert [member.value for member in enum] == list(range(len(enum)))
    last = list(enum)[-1]
    assert (last.name, last.value) == LAST[name]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        (enums.LayerType.PLUGIN_V3, 46),
        (enums.LayerType.CONVOLUTION, 0),
        (enums.ElementWiseOperation.FLOOR_DIV, 7),
        (enums.UnaryOperation.ERF, 19),
        (enums.ActivationType.CLIP, 8),
        (enums.SampleMode.FILL, 3),
    ],
)
def test_numbers_that_scripts_rely_on(member: IntEnum, value: int) -> None:
    assert member == value
