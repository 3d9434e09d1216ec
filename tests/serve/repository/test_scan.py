"""What a repository holds: nothing outside of it is reached, and nothing in it stops the rest."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.repository.names import is_model_name, is_version
from dovetail_serve.repository.problems import RepositoryError
from dovetail_serve.repository.scan import find_misnamed, scan_model, scan_repository
from dovetail_serve.repository.watching import RepositoryWatch


def add(root: Path, path: str, data: bytes = b"plan") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def test_models_and_versions_are_found_by_name(tmp_path: Path) -> None:
    for path in ("a/1/model.plan", "a/12/model.onnx", "a/2/model.plan", "a/config.toml", "b/1/model.onnx"):
        add(tmp_path, path)
    found = scan_repository(tmp_path)
    assert list(found) == ["a", "b"]
    assert list(found["a"].versions) == ["1", "2", "12"]
    assert found["a"].config == tmp_path / "a" / "config.toml"
    assert found["a"].versions["12"].source == tmp_path / "a" / "12" / "model.onnx"
    assert found["b"].config is None


def test_what_is_no_model_by_its_name_is_left_out(tmp_path: Path) -> None:
    for path in (".git/1/model.plan", "_a/1/model.plan", "mod\u202eel/1/model.plan", "a b/1/model.plan", "README.md"):
        add(tmp_path, path)
    assert scan_repository(tmp_path) == {}


def test_models_under_names_that_no_model_may_have_are_found(tmp_path: Path) -> None:
    for path in (".git/1/model.plan", "a b/1/model.plan", "a+b/2/model.onnx", "my notes/text.md", "m/1/model.plan"):
        add(tmp_path, path)
    (tmp_path / "l ink").symlink_to(tmp_path / "m")
    assert find_misnamed(tmp_path) == ["a b", "a+b"]


def test_what_is_no_version_by_its_name_is_left_out(tmp_path: Path) -> None:
    for path in ("m/1/model.plan", "m/01/model.plan", "m/.2/model.plan", "m/latest/model.plan", "m/\u0661/model.plan"):
        add(tmp_path, path)
    assert list(scan_model(tmp_path, "m").versions) == ["1"]


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        (["m/1/notes.txt"], "it has neither model.plan nor model.onnx"),
        (["m/1/model.plan", "m/1/model.onnx"], "it has model.plan and model.onnx"),
    ],
)
def test_a_version_that_cannot_be_loaded_says_why(tmp_path: Path, paths: list[str], problem: str) -> None:
    for path in paths:
        add(tmp_path, path)
    version = scan_model(tmp_path, "m").versions["1"]
    assert version.source is None
    assert problem in version.problem


def test_a_model_without_versions_says_so(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    assert "it has no version" in scan_repository(tmp_path)["m"].problem
    add(tmp_path, "m/v1/model.plan")
    add(tmp_path, "m/notes.txt")
    assert scan_repository(tmp_path)["m"].problem.endswith("with model.plan or model.onnx, got v1")


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = add(tmp_path, "outside/1/model.plan").parents[1]
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(outside)
    (root / "m").mkdir()
    (root / "m" / "1").symlink_to(outside / "1")
    (root / "n" / "1").mkdir(parents=True)
    (root / "n" / "1" / "model.plan").symlink_to(outside / "1" / "model.plan")
    (root / "self").symlink_to(root)
    found = scan_repository(root)
    assert "links are not followed" in found["linked"].problem
    assert "links are not followed" in found["self"].problem
    assert "links are not followed" in found["m"].versions["1"].problem
    assert "model.plan is a link" in found["n"].versions["1"].problem


def test_pipes_and_folders_in_the_place_of_a_plan_are_no_plan(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    os.mkfifo(tmp_path / "m" / "1" / "model.plan")
    (tmp_path / "m" / "2" / "model.onnx").mkdir(parents=True)
    assert all(version.source is None for version in scan_model(tmp_path, "m").versions.values())


def test_a_repository_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="the repository cannot be listed"):
        scan_repository(tmp_path / "gone")


@given(st.text("aZ09._-/\\\0 \u202e\u0661\u00e9", max_size=20))
def test_no_name_of_a_model_or_version_leaves_its_folder(text: str) -> None:
    if is_model_name(text):
        assert Path("/root", text).parent == Path("/root")
        assert not text.startswith(".")
        assert text.isascii()
    if is_version(text):
        assert str(int(text)) == text


def test_a_change_counts_when_it_has_come_to_rest(tmp_path: Path) -> None:
    add(tmp_path, "a/1/model.plan")
    watch = RepositoryWatch()
    watch.note_all(scan_repository(tmp_path))
    assert watch.find_changed(scan_repository(tmp_path)) == []
    add(tmp_path, "a/1/model.plan", b"half")
    add(tmp_path, "b/1/model.plan", b"half")
    assert watch.find_changed(scan_repository(tmp_path)) == []
    add(tmp_path, "a/1/model.plan", b"half and half")
    assert watch.find_changed(scan_repository(tmp_path)) == ["b"]
    assert watch.find_changed(scan_repository(tmp_path)) == ["a"]
    assert watch.find_changed(scan_repository(tmp_path)) == []


def test_a_model_that_is_gone_has_changed(tmp_path: Path) -> None:
    file = add(tmp_path, "a/1/model.plan")
    watch = RepositoryWatch()
    watch.note_all(scan_repository(tmp_path))
    file.unlink()
    file.parent.rmdir()
    file.parents[1].rmdir()
    assert watch.find_changed(scan_repository(tmp_path)) == []
    assert watch.find_changed(scan_repository(tmp_path)) == ["a"]
    assert watch.find_changed(scan_repository(tmp_path)) == []


NAMES = st.sampled_from(
    ["m", "1", "2", "01", "model.plan", "model.onnx", "config.toml", ".x", "\u202e", "a b", "-", "x"]
)
TREES = st.recursive(
    st.sampled_from([b"", b"data"]) | st.sampled_from(["/etc", "..", ".", "nowhere", "1", "../.."]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def _grow(folder: Path, tree: object) -> None:
    if isinstance(tree, dict):
        folder.mkdir(exist_ok=True)
        for name, inner in tree.items():
            _grow(folder / name, inner)
    elif isinstance(tree, bytes):
        folder.write_bytes(tree)
    elif isinstance(tree, str):
        folder.symlink_to(tree)


@given(st.dictionaries(NAMES, TREES, max_size=4))
def test_no_tree_stops_the_scan_or_leads_out_of_it(tree: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        _grow(root, tree)
        for model in scan_repository(root).values():
            assert model.problem or model.versions
            for version in model.versions.values():
                assert version.problem or version.source is not None
                assert version.source is None or version.source.resolve().is_relative_to(root / model.name)
