"""Compiled models: written by a session or by ``ModelCompiler``, loaded again without a build."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import dovetail
from onnxruntime_ep_dovetail.compiled import store as ep_context
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain, two_part_model

pytestmark = pytest.mark.versions

Session = Callable[..., ort.InferenceSession]
EMBED = pytest.mark.parametrize("embed", ["0", "1"], ids=["beside", "inside"])


@dovetail.layer("ContextTwice")
def twice(x: Any) -> Any:
    """A custom layer that a plan needs."""
    return x + x


def compile_model(make: Session, model: Any, target: Path, embed: str, **entries: str) -> ort.InferenceSession:
    given = {"ep.context_enable": "1", "ep.context_embed_mode": embed, "ep.context_file_path": str(target)}
    return make(model, entries={**given, **entries}, claim="all")


def context_nodes(path: Path) -> list[dict[str, Any]]:
    nodes = onnx.load(path).graph.node
    return [
        {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} for n in nodes if n.op_type == "EPContext"
    ]


@pytest.fixture
def no_builds(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make every way to build an engine fail from the call on."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("an engine was built")

    def apply() -> None:
        monkeypatch.setattr(dovetail, "compile", refuse)
        monkeypatch.setattr("dovetail.build.builder.Builder.build_plan", refuse)
        monkeypatch.setattr("dovetail.build.planner.build_plan", refuse)

    return apply


@EMBED
def test_a_compiled_model_runs_without_a_build(
    dovetail_session: Session, no_builds: Any, tmp_path: Path, embed: str
) -> None:
    model, target = tmp_path / "m.onnx", tmp_path / "c.onnx"
    onnx.save(plain_model(), model)
    made = compile_model(dovetail_session, model, target, embed)
    np.testing.assert_allclose(made.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
    no_builds()
    with pytest.raises(Exception, match="an engine was built"):
        dovetail_session(model, claim="all")
    loaded = dovetail_session(target, fallback=False)
    assert ort_ep.assigned(loaded) == {ort_ep.EP: ["EPContext"]}
    for rows in (4, 1, 9):
        np.testing.assert_allclose(loaded.run(None, feeds(rows))[0], run_plain(feeds(rows)), rtol=1e-5)


@EMBED
def test_the_node_says_whose_it_is(dovetail_session: Session, tmp_path: Path, embed: str) -> None:
    target = tmp_path / "c.onnx"
    compile_model(dovetail_session, plain_model(), target, embed, **{"ep.context_node_name_prefix": "edge_"})
    (node,) = context_nodes(target)
    assert (node["source"], node["embed_mode"], node["main_context"]) == (ort_ep.EP.encode(), int(embed), 1)
    assert node["partition_name"].startswith(b"edge_")
    plans = sorted(path.name for path in tmp_path.glob("*.plan"))
    assert plans == ([node["ep_cache_context"].decode()] if embed == "0" else [])
    assert not plans or plans[0].startswith("c_edge_")


def test_without_a_path_the_compiled_model_lies_beside_the_model(dovetail_session: Session, tmp_path: Path) -> None:
    onnx.save(plain_model(), tmp_path / "m.onnx")
    dovetail_session(tmp_path / "m.onnx", entries={"ep.context_enable": "1"}, claim="all")
    assert len(list(tmp_path.glob("m_ctx_*.plan"))) == 1
    loaded = dovetail_session(tmp_path / "m_ctx.onnx", fallback=False)
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_a_model_with_two_partitions_has_two_plans(dovetail_session: Session, no_builds: Any, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(target)}
    dovetail_session(two_part_model(), entries=entries, fallback=True, claim="all", exclude="Sqrt")
    assert [node.op_type for node in onnx.load(target).graph.node] == ["EPContext", "Sqrt", "EPContext"]
    assert len(list(tmp_path.glob("*.plan"))) == 2
    no_builds()
    x = {"x": feeds()["x"]}
    got = dovetail_session(target, fallback=True).run(None, x)[0]
    np.testing.assert_allclose(got, -np.sqrt(np.maximum(x["x"], 0)), rtol=1e-6)


def test_model_compiler_to_a_file(registration: str, dovetail_session: Session, tmp_path: Path) -> None:
    model, target = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(plain_model(), model)
    options = ort_ep.session_options(fallback=False)
    options.add_provider_for_devices(ort_ep.devices(), {"claim": "all"})
    ort.ModelCompiler(options, str(model), embed_compiled_data_into_model=False).compile_to_file(str(target))
    loaded = dovetail_session(target, fallback=False)
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_model_compiler_in_memory(registration: str, dovetail_session: Session, no_builds: Any) -> None:
    options = ort_ep.session_options(fallback=False)
    options.add_provider_for_devices(ort_ep.devices(), {"claim": "all"})
    source = plain_model().SerializeToString()
    compiled = ort.ModelCompiler(options, source, embed_compiled_data_into_model=True).compile_to_bytes()
    no_builds()
    loaded = dovetail_session(compiled, fallback=False)
    assert ort_ep.assigned(loaded) == {ort_ep.EP: ["EPContext"]}
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_a_compiled_model_from_memory_finds_its_plan_by_the_option(dovetail_session: Session, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    compile_model(dovetail_session, plain_model(), target, "0")
    content = target.read_bytes()
    with pytest.raises(Exception, match=r"the model came from memory\n  fix: .*ep\.context_file_path"):
        dovetail_session(content, fallback=False)
    loaded = dovetail_session(content, entries={"ep.context_file_path": str(target)}, fallback=False)
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_a_plan_beside_a_model_in_memory_has_no_place(registration: str) -> None:
    options = ort_ep.session_options(fallback=False)
    options.add_provider_for_devices(ort_ep.devices(), {"claim": "all"})
    compiler = ort.ModelCompiler(options, plain_model().SerializeToString(), embed_compiled_data_into_model=False)
    with pytest.raises(Exception, match=r"ep\.context_embed_mode=1"):
        compiler.compile_to_bytes()


@EMBED
def test_custom_layers_are_stored_by_name(dovetail_session: Session, tmp_path: Path, embed: str) -> None:
    target = tmp_path / "c.onnx"
    compile_model(dovetail_session, plugin_model("ContextTwice"), target, embed)
    x = {"x": feeds()["x"]}
    got = dovetail_session(target, fallback=False).run(None, x)[0]
    np.testing.assert_array_equal(got, -2 * np.maximum(x["x"], 0))


@EMBED
def test_a_missing_plugin_ends_session_creation(dovetail_session: Session, tmp_path: Path, embed: str) -> None:
    target = tmp_path / "c.onnx"

    @dovetail.layer("ContextGone")
    def gone(x: Any) -> Any:
        return x * 3

    compile_model(dovetail_session, plugin_model("ContextGone"), target, embed)
    registry = dovetail.get_plugin_registry()
    creators = [creator for creator in registry.all_creators if creator.name == "ContextGone"]
    for creator in creators:
        registry.deregister_creator(creator)
    with pytest.raises(Exception, match="ContextGone") as failure:
        dovetail_session(target, fallback=False)
    assert "Dovetail" in str(failure.value)
    for creator in creators:
        registry.register_creator(creator, "")
    dovetail_session(target, fallback=False)


@EMBED
def test_sessions_that_share_hold_a_plan_once(dovetail_session: Session, tmp_path: Path, embed: str) -> None:
    share = {"ep.share_ep_contexts": "1"}
    paths = [tmp_path / name for name in ("a.onnx", "b.onnx")]
    for path in paths:
        compile_model(dovetail_session, plain_model(), path, embed, **share)
    assert len(list(tmp_path.glob("*.plan"))) == (embed == "0")
    before = len(ep_context._shared)
    sessions = [dovetail_session(path, entries=share, fallback=False) for path in paths]
    assert len(ep_context._shared) == before + 1
    alone = dovetail_session(paths[0], fallback=False)
    for session in (*sessions, alone):
        np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)
    del session, sessions
    assert len(ep_context._shared) == before


def test_a_compiled_model_is_not_compiled_again_by_mistake(dovetail_session: Session, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    compile_model(dovetail_session, plain_model(), target, "1")
    again = tmp_path / "again.onnx"
    compile_model(dovetail_session, target, again, "0")
    loaded = dovetail_session(again, fallback=False)
    np.testing.assert_allclose(loaded.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)


def test_the_model_says_where_it_runs(dovetail_session: Session, tmp_path: Path) -> None:
    target = tmp_path / "c.onnx"
    compile_model(dovetail_session, plain_model(), target, "1")
    metadata = {entry.key: entry.value for entry in onnx.load(target).metadata_props}
    info = json.loads(metadata[f"ep_compatibility_info.{ort_ep.EP}"])
    assert info["dovetail"] == dovetail.__version__
    assert [device["provider"] for device in info["devices"]] == ["cpu"]
