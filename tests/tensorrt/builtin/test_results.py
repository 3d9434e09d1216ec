"""Every built-in plugin against a plain reference, through an engine that was stored and loaded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tensorrt.builtin.problems import PROBLEMS, Problem, make_border_regions
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, run_in_engine


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_gives_what_the_reference_gives(name: str, data: st.DataObject) -> None:
    problem: Problem = data.draw(PROBLEMS[name])
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    dtype = problem.inputs[0].dtype
    compare(run_in_engine(problem), expected, dtype=dtype if dtype.kind == "f" else np.float32)


def test_boxes_behind_the_best_4096_scores_take_no_part() -> None:
    boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (1, 4200, 1))
    boxes[0, 4090:] += 10 * np.arange(1, 111, dtype=np.float32)[:, None]
    scores = np.linspace(1, 0.5, 4200, dtype=np.float32).reshape(1, 4200, 1)
    fields = {"score_threshold": 0.1, "iou_threshold": 0.5, "max_output_boxes": 200, "background_class": -1}
    problem = Problem("EfficientNMS_TRT", {**fields, "score_activation": 0, "box_coding": 0}, [boxes, scores])
    count, kept, *_ = run_in_engine(problem)
    assert count.item() == 7
    np.testing.assert_array_equal(kept[0, :7, 0], [0, 10, 20, 30, 40, 50, 60])


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_region_on_the_border_between_maps_stays_on_the_finer(is_absolute: bool) -> None:
    problem = make_border_regions(is_absolute=is_absolute)
    (got,) = run_in_engine(problem)
    assert got.reshape(-1).tolist() == ([1, 1, 2, 2, 3] if is_absolute else [1, 1, 2, 3])
    compare([got], REFERENCES[problem.name](problem.inputs, problem.fields), dtype=np.float32)
