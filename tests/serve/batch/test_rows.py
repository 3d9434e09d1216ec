"""What a row of a model is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError, UsageError
from dovetail.expr import Constant
from dovetail.inputs.specs import InputSpec
from dovetail_serve.batch.rows import RowForm, dims_text, find_row_form, require_fit
from tests.serve.batch.support import make_plan


def form_of(path: Path, batch_size: int | None = None) -> RowForm:
    with dovetail.load(path) as engine:
        return find_row_form(engine.manifest, batch_size)


def test_a_varying_first_dimension_counts_rows(plan: Path) -> None:
    form = form_of(plan)
    assert form.has_batch_axis
    assert (form.least_rows, form.most_rows) == (1, 32)
    assert dims_text(form.inputs[0]) == "4"
    assert form_of(plan, 7).most_rows == 7


def test_a_first_dimension_of_one_is_left_out(tmp_path: Path) -> None:
    form = form_of(make_plan(tmp_path / "one.plan", (1, 4)))
    assert (form.has_batch_axis, form.most_rows) == (True, 1)
    assert dims_text(form.inputs[0]) == "4"


def test_other_models_take_whole_inputs(tmp_path: Path) -> None:
    path = make_plan(tmp_path / "whole.plan", (2, 4))
    form = form_of(path)
    assert not form.has_batch_axis
    assert dims_text(form.inputs[0]) == "2x4"
    with pytest.raises(UsageError, match="one row at a time"):
        form_of(path, 2)


def test_types_are_converted_where_all_values_fit() -> None:
    spec = InputSpec(name="x", dtype="float32", dims=[Constant(2)])
    assert require_fit(np.zeros(2, np.int16), spec, "here").dtype == np.float32
    with pytest.raises(InputError, match="here: the type does not fit; expected float32, got int64"):
        require_fit(np.zeros(2, np.int64), spec, "here")
    with pytest.raises(InputError, match="here: the shape of a row does not fit; expected 2, got 2x1"):
        require_fit(np.zeros((2, 1), np.float32), spec, "here")
