"""The one opener: regular files and nothing else, whole or not at all, whatever call of the system fails."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dovetail.build.calibrate.calibrators import ArrayCalibrator
from dovetail.build.tune.cache import TimingCache, TimingCacheFile, TimingValue
from dovetail.errors import BuildError, DovetailError, ModelError
from dovetail.files import NotRegularError, append_bytes, open_regular, read_bytes, replacing
from dovetail.network.importer.importer import import_model
from dovetail.plan.container import Blob, PlanFile, write_plan
from tests.support.odd_files import ODD_KINDS, SYSTEM_ERRORS, FailingCalls, make_odd_file

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and devices as POSIX has them")
WEIGHT = Blob(name="w", dtype="U8", shape=(2,), data=b"\1\2")


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_nothing_but_regular_files_is_opened_or_replaced(tmp_path: Path, kind: str) -> None:
    place, target = tmp_path / "odd", tmp_path / "target"
    target.write_bytes(b"kept")
    make_odd_file(place, kind, target)
    with pytest.raises(NotRegularError):
        read_bytes(place, 10)
    with pytest.raises(NotRegularError):
        append_bytes(place, b"x")
    with pytest.raises(NotRegularError), replacing(place):
        pass
    assert target.read_bytes() == b"kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd", "target"]


def test_a_link_is_followed_where_a_user_named_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link", follow=True) as file:
        assert file.read() == b"abc"
    with pytest.raises(NotRegularError):
        open_regular("a\0b")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "dangling"])
def test_a_model_that_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    make_odd_file(tmp_path / "m.onnx", kind, tmp_path / "target")
    with pytest.raises(ModelError, match="the file cannot be read"):
        import_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_a_calibration_cache_that_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "ranges"
    (tmp_path / "target").write_bytes(b"kept")
    make_odd_file(place, kind, tmp_path / "target")
    calibrator = ArrayCalibrator([{"x": np.zeros(1, np.float32)}], cache_path=place)
    with pytest.raises(BuildError, match=r"the calibration cache cannot be read: it is .*\n.*fix"):
        calibrator.read_calibration_cache()
    with pytest.raises(BuildError, match=r"the calibration cache cannot be written: it is .*\n.*fix"):
        calibrator.write_calibration_cache(b"{}")
    assert (tmp_path / "target").read_bytes() == b"kept"


def test_old_temporary_files_are_swept_and_those_of_others_are_not(tmp_path: Path) -> None:
    path, seen = tmp_path / "m.plan", []
    with replacing(path):
        seen += [each.name for each in tmp_path.iterdir()]
    (name,) = seen
    stray, fresh, foreign = (tmp_path / n for n in (name, f"{name[:-5]}x.tmp", ".dovetail-00000000-1.tmp"))
    for each in (stray, fresh, foreign):
        each.write_bytes(b"half")
    os.utime(stray, (0, time.time() - 7200))
    with replacing(path) as file:
        file.write(b"new")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([fresh.name, foreign.name, "m.plan"])


@pytest.mark.parametrize("number", SYSTEM_ERRORS)
def test_a_plan_is_the_old_or_the_new_one_whatever_call_fails(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "m.plan", FailingCalls(monkeypatch)
    write_plan(path, b"{}", [WEIGHT])
    for turn in itertools.count(1):
        failed = False
        with calls.fail(turn, number):
            try:
                write_plan(path, b'{"new": 1}', [WEIGHT])
            except DovetailError:
                failed = True
        with PlanFile.open(path) as file:
            assert file.manifest in (b"{}", b'{"new": 1}')
        write_plan(path, b"{}", [WEIGHT])
        if calls.count < turn:
            assert not failed
            break
    assert turn > 5


@pytest.mark.parametrize("number", SYSTEM_ERRORS)
def test_no_timing_is_lost_whatever_call_fails(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, one = FailingCalls(monkeypatch), TimingValue(time_us=1.5)
    for turn in itertools.count(1):
        path = tmp_path / f"{turn}.json"
        TimingCacheFile(path).merge_and_save(TimingCache())
        TimingCacheFile(path).record("a", one)
        file, failed = TimingCacheFile(path), False
        with calls.fail(turn, number):
            try:
                file.merge_and_save(TimingCache())
            except DovetailError:
                failed = True
        assert TimingCacheFile(path).load().query_keys() == ["a"]
        if calls.count < turn:
            assert not failed
            break
    assert turn > 5
