"""The plan of a version: built once of an ONNX model, kept beside it, and built again when that changes."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.loggers import Logger
from dovetail_serve.repository import plans
from dovetail_serve.repository.plans import PlanCopy, provide_plan
from dovetail_serve.repository.problems import RepositoryError
from dovetail_serve.repository.scan import KEPT_PLAN, KEPT_RECORD, scan_model
from dovetail_serve.repository.settings import parse_settings
from tests.serve.small_models import make_model, make_plan, write_model

CPU = b'[build]\nproviders = ["cpu"]\n'


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The versions that were built."""
    done: list[str] = []
    build = plans._build

    def count(version, *others) -> None:
        done.append(version.version)
        build(version, *others)

    monkeypatch.setattr(plans, "_build", count)
    return done


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def add_onnx(root: Path, op: str = "Relu") -> Path:
    folder = root / "models" / "m" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(make_model(op), folder / "model.onnx")
    return folder


def provide(root: Path, config: bytes = CPU) -> PlanCopy:
    files = scan_model(root / "models", "m")
    scratch = root / "scratch"
    scratch.mkdir(exist_ok=True)
    return provide_plan(files, files.versions["1"], parse_settings(config), scratch, Logger())


def run(plan: PlanCopy) -> list[float]:
    with dt.load(plan.path) as engine:
        return engine(np.array([[-1, 2, 0, 3]], np.float32)).tolist()[0]


def test_a_model_is_built_once_and_kept_beside(tmp_path: Path, builds: list[str]) -> None:
    folder = add_onnx(tmp_path)
    assert run(provide(tmp_path)) == [0, 2, 0, 3]
    assert (folder / KEPT_PLAN).is_file()
    assert set(json.loads((folder / KEPT_RECORD).read_text())) == {"key", "sha256"}
    assert run(provide(tmp_path)) == [0, 2, 0, 3]
    assert builds == ["1"]


def test_another_model_and_other_options_build_anew(tmp_path: Path, builds: list[str]) -> None:
    add_onnx(tmp_path)
    provide(tmp_path)
    add_onnx(tmp_path, "Neg")
    assert run(provide(tmp_path)) == [1, -2, 0, -3]
    provide(tmp_path, CPU + b"shapes = {x = [[1, 4], [2, 4], [8, 4]]}")
    assert len(builds) == 3
    provide(tmp_path, b"instances = 2\n" + CPU + b"shapes = {x = [[1, 4], [2, 4], [8, 4]]}")
    assert len(builds) == 3


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"key": 3}', b"[" * 50_000])
def test_a_damaged_record_builds_anew(tmp_path: Path, builds: list[str], damage: bytes) -> None:
    folder = add_onnx(tmp_path)
    provide(tmp_path)
    (folder / KEPT_RECORD).write_bytes(damage)
    assert run(provide(tmp_path)) == [0, 2, 0, 3]
    assert len(builds) == 2


def test_a_damaged_kept_plan_is_built_again(
    tmp_path: Path, builds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = add_onnx(tmp_path)
    provide(tmp_path)
    (folder / KEPT_PLAN).write_bytes(b"damaged")
    assert run(provide(tmp_path)) == [0, 2, 0, 3]
    assert len(builds) == 2
    assert "m/1: the kept plan is damaged and is built again" in caplog.text


def test_where_the_folder_is_not_writable_the_plan_is_kept_elsewhere(
    tmp_path: Path, builds: list[str], cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = add_onnx(tmp_path)
    write = plans._write_kept

    def refuse(target: Path, *others) -> None:  # root may write everywhere, so a mode would not do
        if target == folder:
            raise PermissionError(13, "Permission denied")
        write(target, *others)

    monkeypatch.setattr(plans, "_write_kept", refuse)
    with caplog.at_level(logging.WARNING):
        provide(tmp_path)
    assert "as its folder is not writable: Permission denied" in caplog.text
    assert len(list(cache.rglob(KEPT_PLAN))) == 1
    assert run(provide(tmp_path)) == [0, 2, 0, 3]
    assert builds == ["1"]


def test_the_server_has_a_copy_that_nobody_writes_over(tmp_path: Path) -> None:
    path = write_model(tmp_path / "models", "m")
    plan = provide(tmp_path)
    with dt.load(plan.path) as engine:
        path.write_bytes(b"\0" * len(make_plan("relu")))
        assert engine(np.array([[-1, 2, 0, 3]], np.float32)).tolist() == [[0, 2, 0, 3]]
    plan.remove()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_what_cannot_be_built_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = add_onnx(tmp_path)
    (folder / "model.onnx").write_bytes(b"no model")
    with pytest.raises(dt.DovetailError):
        provide(tmp_path)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]


def test_a_file_that_is_gone_since_it_was_listed_is_an_error(tmp_path: Path) -> None:
    path = write_model(tmp_path / "models", "m")
    files = scan_model(tmp_path / "models", "m")
    path.unlink()
    with pytest.raises(RepositoryError, match="m/1: a file cannot be read"):
        provide_plan(files, files.versions["1"], parse_settings(b""), tmp_path, Logger())
