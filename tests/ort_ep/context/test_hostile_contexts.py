"""Compiled models that were damaged or written by somebody else: each ends in a status that says why."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime.capi import onnxruntime_pybind11_state as fails

import dovetail
from dovetail.plan.container import PlanFile
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, run_plain

Session = Callable[..., ort.InferenceSession]


@pytest.fixture(scope="module")
def compiled(registration: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A compiled model with its plan beside it, and one with it inside."""
    found = {}
    for embed in "01":
        path = tmp_path_factory.mktemp("compiled") / "c.onnx"
        entries = {"ep.context_enable": "1", "ep.context_embed_mode": embed, "ep.context_file_path": str(path)}
        ort_ep.dovetail_session(plain_model(), entries=entries, claim="all")
        found[embed] = path
    return found


@pytest.fixture
def beside(compiled: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the model with its plan beside it."""
    shutil.copytree(compiled["0"].parent, tmp_path / "model")
    return tmp_path / "model" / "c.onnx"


def change(path: Path, **values: Any) -> Path:
    """Change attributes of the node; None takes one away."""
    model = onnx.load(path)
    (node,) = model.graph.node
    kept = [attribute for attribute in node.attribute if attribute.name not in values]
    made = [onnx.helper.make_attribute(name, value) for name, value in values.items() if value is not None]
    del node.attribute[:]
    node.attribute.extend([*kept, *made])
    onnx.save(model, path)
    return path


def refuse(path: Path, text: str) -> None:
    ort_ep.refuse(text, lambda: ort_ep.dovetail_session(path, fallback=False))


def plan_of(path: Path) -> Path:
    return next(path.parent.glob("*.plan"))


PLACES = {
    "absolute": ("/etc/passwd", "the location is absolute"),
    "parent": ("../secret.plan", "has '..' in it"),
    "windows": ("C:\\secret.plan", "the location is absolute"),
    "folder": ("inner", "not a regular file"),
    "nothing": ("none.plan", "the file does not exist"),
    "dot": (".", "names no file"),
    "zero": ("a\0b.plan", "not a file name"),
    "no text": (b"\xff\xfe\x80", "the file does not exist"),
}


@pytest.mark.parametrize(("name", "text"), PLACES.values(), ids=list(PLACES))
def test_a_plan_lies_in_the_folder_of_the_model(beside: Path, name: Any, text: str) -> None:
    shutil.copy(plan_of(beside), beside.parent.parent / "secret.plan")
    (beside.parent / "inner").mkdir()
    refuse(change(beside, ep_cache_context=name), text)


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_links_are_not_followed(beside: Path, make: Any) -> None:
    outside = shutil.move(plan_of(beside), beside.parent.parent / "outside.plan")
    make(outside, beside.parent / "linked.plan")
    refuse(change(beside, ep_cache_context="linked.plan"), "link")


def test_an_empty_plan(beside: Path) -> None:
    plan_of(beside).write_bytes(b"")
    refuse(beside, "too short to be a plan")


def test_another_plan_under_the_name(beside: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(other)}
    ort_ep.dovetail_session(plain_model(), entries=entries, claim="all", exclude="")
    model = plain_model()
    model.graph.node[1].op_type = "Neg"
    entries["ep.context_file_path"] = str(tmp_path / "neg.onnx")
    ort_ep.dovetail_session(model, entries=entries, claim="all")
    shutil.copy(next(tmp_path.glob("neg_*.plan")), plan_of(beside))
    refuse(beside, "the plan is not that of the model")


@pytest.mark.parametrize("offset", [0, 9, 200, -1])
def test_a_damaged_plan(beside: Path, offset: int) -> None:
    content = bytearray(plan_of(beside).read_bytes())
    content[offset] ^= 0x55
    plan_of(beside).write_bytes(content)
    refuse(beside, "Dovetail: ")


NOTES: dict[str, Any] = {
    "none": None,
    "no json": "{",
    "a list": "[]",
    "no digest": "{}",
    "a number": json.dumps({"manifest_sha256": 3}),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("notes", NOTES.values(), ids=list(NOTES))
def test_notes_must_name_the_plan(beside: Path, notes: Any) -> None:
    refuse(change(beside, notes=notes), "does not say which plan it is")


def test_a_node_without_a_plan(beside: Path) -> None:
    refuse(change(beside, ep_cache_context=None), "missing or empty")
    refuse(change(beside, ep_cache_context=""), "missing or empty")


def test_a_node_whose_plan_is_in_another(beside: Path) -> None:
    refuse(change(beside, main_context=0), "lies in another node")


def test_a_plan_inside_that_is_none(beside: Path) -> None:
    refuse(change(beside, embed_mode=1), "header is over its size limit|header is longer")


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT8, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16])
@pytest.mark.parametrize("side", ["input", "output"])
def test_memory_of_another_type_is_not_written(beside: Path, side: str, kind: int) -> None:
    model = onnx.load(beside)
    getattr(model.graph, side)[0].type.tensor_type.elem_type = kind
    onnx.save(model, beside)
    refuse(beside, "the plan has another type")


def test_another_number_of_values(beside: Path) -> None:
    model = onnx.load(beside)
    model.graph.node[0].output.append("more")
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", 1, ["N", 8]))
    onnx.save(model, beside)
    refuse(beside, "the plan has other outputs; expected 2, got 1")


def test_a_value_that_is_read_twice(beside: Path) -> None:
    model = onnx.load(beside)
    model.graph.node[0].input[:] = ["x", "x"]
    onnx.save(model, beside)
    refuse(beside, "used twice or not at all")


def test_a_node_of_somebody_else_is_left_alone(beside: Path) -> None:
    path = change(beside, source="OtherExecutionProvider")
    ort_ep.refuse("EPContext", lambda: ort_ep.dovetail_session(path, fallback=True, claim="all"))


def test_a_wrong_shape_is_an_error_of_the_run(beside: Path) -> None:
    model = onnx.load(beside)
    for value in model.graph.input:
        value.type.tensor_type.ClearField("shape")
    onnx.save(model, beside)
    session = ort_ep.dovetail_session(beside, fallback=False)
    with pytest.raises(Exception, match="InputError"):
        session.run(None, {"x": np.ones((4, 3), np.float32), "z": np.ones((1, 8), np.float32)})
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_a_failed_session_does_not_harm_the_next(beside: Path, compiled: dict[str, Path]) -> None:
    refuse(change(beside, notes="{"), "which plan")
    session = ort_ep.dovetail_session(compiled["0"], fallback=False)
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_a_plan_that_carries_code_is_not_loaded(beside: Path, tmp_path: Path) -> None:
    library = tmp_path / "carried.py"
    library.write_text("raise SystemExit('the code of a plan ran')\n")
    builder = dovetail.Builder()
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    config.plugins_to_serialize = [str(library)]
    engine = dovetail.compile(plain_model(), config=config)
    engine.save(plan_of(beside))
    with PlanFile.open(plan_of(beside)) as file:
        digest = hashlib.sha256(file.manifest).hexdigest()
    refuse(change(beside, notes=json.dumps({"manifest_sha256": digest})), "carries the plugin library")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_never_gives_a_wrong_result(compiled: dict[str, Path], data: st.DataObject) -> None:
    model = onnx.load(compiled["1"])
    attribute = next(a for a in model.graph.node[0].attribute if a.name == "ep_cache_context")
    content = bytearray(attribute.s)
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    attribute.s = bytes(content[: data.draw(st.sampled_from([len(content), place]))])
    try:
        session = ort_ep.dovetail_session(model, fallback=False)
    except fails.Fail as error:
        assert "Dovetail: " in str(error)  # noqa: PT017 - damage that nothing reads is allowed
    else:
        np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
