"""Kernels of built-in plugins, interpreted over memory of the host, against the plain references."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton: make test-cuda has it", allow_module_level=True)

from dovetail_tensorrt.builtin.device import selection
from dovetail_tensorrt.builtin.host import detection
from tests.tensorrt.builtin.cases import mark_slow
from tests.tensorrt.builtin.interpreted import run_interpreted
from tests.tensorrt.builtin.problems import PROBLEMS, Problem, make_border_regions
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, create


@pytest.mark.parametrize("name", mark_slow(PROBLEMS))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kernels_give_what_the_reference_gives(name: str, data: st.DataObject) -> None:
    problem: Problem = data.draw(PROBLEMS[name])
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    dtype = problem.inputs[0].dtype
    got = run_interpreted(create(problem), problem.inputs, [array.shape for array in expected])
    compare(got, expected, dtype=dtype if dtype.kind == "f" else np.float32)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_region_on_the_border_between_maps_stays_on_the_finer(is_absolute: bool) -> None:
    problem = make_border_regions(is_absolute=is_absolute)
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    compare(run_interpreted(create(problem), problem.inputs, [expected[0].shape]), expected, dtype=np.float32)


def _crowd(num_boxes: int, num_classes: int, *, has_ties: bool) -> Problem:
    rng = np.random.default_rng(4)
    corner = rng.uniform(0, 20, (1, num_boxes, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 5, (1, num_boxes, 2))], axis=2).astype(np.float32)
    size = num_boxes * num_classes
    scores = rng.permutation(size).reshape(1, num_boxes, num_classes) / size
    scores = np.floor(scores * 8) / 8 if has_ties else scores
    # With ties no box is dropped, so that every candidate is seen; without, most of them are.
    limits = {"iou_threshold": 1.5 if has_ties else 0.2003, "max_output_boxes": 200}
    fields = {"score_threshold": 0.0, "background_class": 1, **limits}
    fields |= {"score_activation": 0, "class_agnostic": 0, "box_coding": 0}
    return Problem("EfficientNMS_TRT", fields, [boxes, scores.astype(np.float32)])


@pytest.mark.parametrize("has_ties", [False, True])
def test_more_boxes_than_candidates_are_cut_down_to_the_best(monkeypatch: pytest.MonkeyPatch, has_ties: bool) -> None:
    for module in (detection, selection):  # the interpreter needs a minute for as many as there are on a device
        monkeypatch.setattr(module, "MAX_CANDIDATES", 128)
    problem = _crowd(1500, 3, has_ties=has_ties)
    expected = create(problem).compute(problem.inputs, [])
    assert expected[0].item() == 128 if has_ties else 20 < expected[0].item() < 128
    got = run_interpreted(create(problem), problem.inputs, [array.shape for array in expected])
    compare(got, expected, dtype=np.float32)


def test_what_names_nothing_is_not_read() -> None:
    """A device cannot raise: a region of no image and a level outside of the values become NaN."""
    images, rois = np.ones((1, 2, 4, 4), np.float32), np.array([[0, 0, 3, 3], [0, 0, 3, 3]], np.float32)
    problem = Problem("ROIAlign_TRT", {}, [images, rois, np.array([0, 9], np.int32)])
    (got,) = run_interpreted(create(problem), problem.inputs, [(2, 2, 1, 1)])
    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1]).all()
    arrays = [np.ones((1, 4, 1, 2)), np.ones((1, 3, 1, 1, 1, 2)) / 2, np.ones((1, 3, 1, 1, 1))]
    value, places, weights = (array.astype(np.float32) for array in arrays)
    levels = [np.array([[9, 9]], np.int32), np.array([0], np.int32)]
    problem = Problem("MultiscaleDeformableAttnPlugin_TRT", {}, [value, *levels, places, weights])
    (got,) = run_interpreted(create(problem), problem.inputs, [(1, 3, 1, 2)])
    assert np.isnan(got).all()
