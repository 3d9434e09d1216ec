"""Where a plan with partitions lies, and what becomes of its file meanwhile: the engine is that of the checked bytes.

A provider that maps the weights opens the file a second time, by its path. That path may be a link, it may have names
that no model can spell, and by then another file may lie there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.errors import PlanCorruptError, PlanError
from dovetail.plan import container
from dovetail.plan.container import PlanFile
from dovetail.providers.onnxruntime import provider
from tests.support.attack_plans import target

X = np.linspace(-1, 1, 40, dtype=np.float32).reshape(2, 20)
needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


@cache
def _expected() -> Any:
    return dt.Runtime().deserialize_cuda_engine(target("whole").raw)(X)


@cache
def _other() -> bytes:
    """A right plan of the same size and border with another weight."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.full((20, 20), 5, np.float32), "w")
    graph = helper.make_graph(nodes, "whole", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return bytes(dt.compile(model).serialize())


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """The plan in a file."""
    _other()  # it loads a partition too, which must not happen inside of a loader that a test has changed
    path = tmp_path / "m.plan"
    path.write_bytes(target("whole").raw)
    return path


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each partition was loaded."""
    for build in (_expected, _other, _refittable):
        build()  # these load partitions too
    seen: list[str] = []
    for name in ("_load_mapped", "_load_shared"):
        method = getattr(provider.OnnxRuntimeProvider, name)

        def noting(self: Any, *args: Any, _name: str = name, _method: Any = method) -> Any:
            seen.append(_name)
            return _method(self, *args)

        monkeypatch.setattr(provider.OnnxRuntimeProvider, name, noting)
    return seen


def _check(path: str | Path) -> None:
    with dt.load(path) as engine:
        np.testing.assert_array_equal(engine(X), _expected())


# names


NAMES = [
    "a b/c d .plan",
    " leading and trailing ",
    "ünï/日本語🎉.plan",
    "..plan",
    "...",
    "a'b\"c.plan",
    "%2e%2e%2fm.plan",
    "$HOME.plan",
    "-",
    "*/?.plan",
    "_ORT_MEM_ADDR_/m.plan",
    "n" * 200 + "/" + "m" * 250,
]
POSIX_NAMES = ["a\nb.plan", "a\\b.plan", "..\\m.plan", "a:b.plan", "\x01\x1b[2J.plan"]


@pytest.mark.skipif(sys.platform == "win32", reason="these are no names there")
@pytest.mark.parametrize("name", [*NAMES, *POSIX_NAMES], ids=ascii)
def test_any_name_will_do(name: str, plan: Path, loads: list[str]) -> None:
    path = plan.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plan.read_bytes())
    _check(path)
    assert loads == ["_load_mapped"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes only there")
@pytest.mark.parametrize("name", [b"caf\xe9.plan", b"caf\xe9/m.plan"])
def test_names_that_are_no_text_are_shared_from_memory(name: bytes, plan: Path, loads: list[str]) -> None:
    path = plan.parent / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(plan.read_bytes())
    _check(path)
    assert loads == ["_load_shared"]


@pytest.mark.skipif(sys.platform != "linux", reason="how long a path may be is another question elsewhere")
def test_a_path_too_long_to_be_opened_again(plan: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plan.parent)
    for _ in range(20):
        folder = "d" * 240
        Path(folder).mkdir()
        os.chdir(folder)
    Path("m.plan").write_bytes(target("whole").raw)
    _check("m.plan")
    assert loads == ["_load_shared"]


@needs_links
def test_links_are_followed(plan: Path, loads: list[str]) -> None:
    folder = plan.parent / "links"
    folder.mkdir()
    (folder / "file.plan").symlink_to(plan)
    (folder / "chain.plan").symlink_to("file.plan")
    (folder / "folder").symlink_to(plan.parent, target_is_directory=True)
    (folder / "hard.plan").hardlink_to(plan)
    for name in ("file.plan", "chain.plan", "folder/m.plan", "hard.plan", "folder/links/chain.plan"):
        _check(folder / name)
    assert loads == ["_load_mapped"] * 5


@needs_links
def test_a_link_that_leads_nowhere_or_to_itself(tmp_path: Path) -> None:
    (tmp_path / "nowhere.plan").symlink_to("gone")
    (tmp_path / "circle.plan").symlink_to("circle.plan")
    for name in ("nowhere.plan", "circle.plan"):
        with pytest.raises(PlanError, match="cannot be read"):
            dt.load(tmp_path / name)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors have paths only there")
def test_a_path_of_a_descriptor(plan: Path) -> None:
    with plan.open("rb") as file:
        _check(f"/proc/self/fd/{file.fileno()}")
        _check(f"/dev/fd/{file.fileno()}")


def test_relative_paths_and_folders_that_are_changed_meanwhile(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plan.parent)
    (plan.parent / "inner").mkdir()
    _check("m.plan")
    _check("inner/../m.plan")
    file = PlanFile.open("m.plan")
    monkeypatch.chdir(plan.parent / "inner")
    with file:
        assert file.path == os.path.realpath(plan)


@pytest.mark.skipif(os.name != "posix", reason="folders have no such right elsewhere")
def test_a_folder_that_nobody_may_write_to(plan: Path) -> None:
    plan.chmod(0o400)
    plan.parent.chmod(0o500)
    try:
        _check(plan)
    finally:
        plan.parent.chmod(0o700)


# the same from everywhere


@pytest.mark.parametrize("name", ["whole", "partitions", "sequences"])
def test_a_file_and_its_bytes_are_the_same_engine(name: str, tmp_path: Path) -> None:
    plan = target(name)
    path = tmp_path / "m.plan"
    path.write_bytes(plan.raw)
    runtime, _ = plan.runtime()
    by_path, by_bytes = runtime.load_engine(path), runtime.deserialize_cuda_engine(plan.raw)
    assert by_path.manifest == by_bytes.manifest
    assert bytes(by_path.serialize()) == bytes(by_bytes.serialize())
    results = [engine(*plan.arrays()) for engine in (by_path, by_bytes)]
    np.testing.assert_equal(results[0], results[1])


# files that go or are replaced


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is mapped cannot be removed there")
def test_a_plan_that_is_removed_or_replaced_after_loading(plan: Path) -> None:
    with dt.load(plan) as engine:
        plan.unlink()
        np.testing.assert_array_equal(engine(X), _expected())
        plan.write_bytes(_other())
        np.testing.assert_array_equal(engine.create_execution_context().run([X])[0], _expected())
        engine.save(plan)
    _check(plan)


def _replace(path: Path, raw: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(raw)
    new.replace(path)


def _after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> None:
    """Have something happen just before a function of the loader goes on."""
    function = getattr(owner, name)

    def changed(*args: Any, **kwargs: Any) -> Any:
        act()
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, changed)


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is mapped cannot be replaced there")
class TestReplacedMeanwhile:
    """Another plan, right in itself, takes the place of the one that is being loaded."""

    def test_before_its_path_is_looked_at(self, plan: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        _after(monkeypatch, container, "_map", lambda: _replace(plan, _other()))
        with dt.load(plan) as engine:
            np.testing.assert_array_equal(engine(X), _expected())
        assert loads == ["_load_shared"]

    def test_while_the_provider_opens_it(self, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _after(monkeypatch, provider, "create_session", lambda: _replace(plan, _other()))
        with pytest.raises(PlanCorruptError, match="replaced while it was loaded"):
            dt.load(plan)

    def test_and_put_back_before_anybody_looks(self, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        create = provider.create_session

        def swapped(*args: Any, **kwargs: Any) -> Any:
            aside = plan.with_name("aside")
            plan.rename(aside)
            plan.write_bytes(_other())
            try:
                return create(*args, **kwargs)
            finally:
                aside.replace(plan)

        monkeypatch.setattr(provider, "create_session", swapped)
        with pytest.raises(PlanCorruptError, match="replaced while it was loaded"):
            dt.load(plan)

    def test_or_is_gone_when_the_provider_opens_it(self, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _after(monkeypatch, provider, "create_session", plan.unlink)
        with pytest.raises(PlanError):
            dt.load(plan)

    def test_written_into(self, plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _after(monkeypatch, provider, "create_session", lambda: plan.write_bytes(_other()))
        with pytest.raises(PlanCorruptError):
            dt.load(plan)


# weights that change


def test_weights_are_replaced_when_the_file_is_gone(tmp_path: Path, loads: list[str]) -> None:
    path = tmp_path / "refit.plan"
    path.write_bytes(_refittable())
    engine = dt.load(path)
    before = engine(X)
    if sys.platform != "win32":
        path.unlink()
    refitter = dt.Refitter(engine)
    refitter.set_named_weights("w", np.full((20, 20), 5, np.float32))
    assert refitter.refit_cuda_engine()
    np.testing.assert_allclose(engine(X), dt.Runtime().deserialize_cuda_engine(_other())(X), rtol=1e-6)
    assert not np.allclose(engine(X), before)
    assert loads[:2] == ["_load_mapped", "_load_shared"]  # and once more for the engine that it is compared with


@cache
def _refittable() -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20]) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((20, 20), np.float32), "w")
    graph = helper.make_graph(nodes, "whole", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    return bytes(dt.compile(model, config=config).serialize())
