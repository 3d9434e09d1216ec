"""What is decided before Ray is asked: options, scaling, and where plugin libraries are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cli import main
from dovetail.errors import InputError, UsageError
from dovetail_serve.options import ServerOptions
from dovetail_serve.ray import RayOptions, deploy
from dovetail_serve.ray.cluster import locate_plugins, packed_plugins
from dovetail_serve.ray.options import check_ray_options
from dovetail_serve.ray.scaling import Scaler


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replicas": 0}, "at least one replica"),
        ({"replicas": 3, "max_replicas": 2}, "at least 3"),
        ({"num_gpus": -1}, "num_gpus: it cannot be negative"),
        ({"poll_s": 0}, "poll_s: it must be above 0"),
    ],
)
def test_numbers_that_cannot_be_are_told(options: dict[str, int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_ray_options(RayOptions(**options))


@given(
    least=st.integers(1, 4),
    more=st.integers(0, 4),
    looks=st.lists(st.tuples(st.integers(0, 200), st.floats(0.1, 50)), max_size=30),
)
def test_there_are_never_too_few_or_too_many(least: int, more: int, looks: list[tuple[int, float]]) -> None:
    options = RayOptions(replicas=least, max_replicas=least + more, quiet_s=60)
    scaler, count, now_s = Scaler(options), least, 0.0
    for waiting, pause_s in looks:
        now_s += pause_s
        before, count = count, scaler.decide(count, waiting=waiting, now_s=now_s)
        assert least <= count <= least + more
        assert count >= before or (waiting == 0 and count == before - 1)
        assert count > before or waiting <= options.queue_per_replica * before or before == least + more


def test_deploying_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no models"):
        deploy(tmp_path / "none")
    with pytest.raises(UsageError, match="Ray is not connected"):
        deploy(tmp_path, ServerOptions())


def test_plugin_libraries_are_carried_or_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "layers.py"
    library.touch()
    assert packed_plugins([str(library), "@acme", "libacme.so"]) == [str(library)]
    with pytest.raises(InputError, match="no such plugin library"):
        packed_plugins([str(tmp_path / "none.py")])
    carried = tmp_path / "py_modules_files" / "hash"
    carried.mkdir(parents=True)
    (carried / "layers.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(carried)])
    assert locate_plugins(["/elsewhere/layers.py", "@acme"]) == (str(carried / "layers.py"), "@acme")
    with pytest.raises(InputError, match="not on this node"):
        locate_plugins(["/elsewhere/others.py"])


def test_options_of_replicas_need_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path), "--replicas", "2"]) == 1
    assert "--replicas: this is for replicas on a cluster\n  fix: add --ray ADDRESS" in capsys.readouterr().err
