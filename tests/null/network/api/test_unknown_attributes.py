"""Attributes that networks, layers, configurations and profiles do not have are errors with the nearest name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.network.api.layers.base import ILayer


def _classes(base: type) -> list[type]:
    return [kind for each in base.__subclasses__() for kind in (each, *_classes(each))]


def test_no_layer_class_has_attributes_of_its_instances_only() -> None:
    dt.Network()  # imports every layer
    kinds = [kind for kind in _classes(ILayer) if kind.__module__.startswith("dovetail.")]
    assert [kind.__name__ for kind in kinds if kind.__dictoffset__] == []
    assert len(kinds) > 50


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (dt.BuilderConfig, "builder_optimisation_level", "builder_optimization_level"),
        (dt.BuilderConfig, "provider", "providers"),
        (dt.BuilderConfig, "timing_cache", "timing_cache_path"),
        (dt.OptimizationProfile, "shape", "shapes"),
        (dt.Network, "naem", "name"),
    ],
)
def test_a_misspelt_setting_names_the_nearest_one(kind: Any, name: str, meant: str) -> None:
    text = rf"'{kind.__name__}' object has no attribute '{name}'\n  fix: did you mean '{meant}'"
    with pytest.raises(AttributeError, match=text):
        setattr(kind(), name, 5)


def test_a_setting_with_no_near_name_lists_the_settings() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'fp61'\n  fix: set one of aliases, avg_timing_iterations"):
        dt.BuilderConfig().fp61 = True  # type: ignore[attr-defined]


def test_layers_and_tensors_reject_what_they_do_not_have() -> None:
    network = dt.Network()
    x = network.add_input("x", dt.float32, (1, 2, 8, 8))
    layer = network.add_convolution_nd(x, 2, (3, 3), np.ones((2, 2, 3, 3), np.float32))
    with pytest.raises(AttributeError, match=r"'IConvolutionLayer' .* 'stride'\n  fix: did you mean 'stride_nd'"):
        layer.stride = (2, 2)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'ITensor' .*'d_type'\n  fix: did you mean 'dtype'"):
        x.d_type = dt.float16  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'ILoop' .*'label'"):
        network.add_loop().label = "loop"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'IIfConditional' .*'label'"):
        network.add_if_conditional().label = "if"  # type: ignore[attr-defined]


def test_a_subclass_of_a_program_accepts_any_attribute() -> None:
    class Mine(dt.BuilderConfig):
        pass

    config = Mine()
    config.note = "mine"  # type: ignore[attr-defined]
    assert config.note == "mine"  # type: ignore[attr-defined]
