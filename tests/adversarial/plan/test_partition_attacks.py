"""Hostile partitions: what stands in the place of a compiled one is refused, or runs without harm.

The cases are those of ``tests/support/payload_attacks.py``. They run in a process of its own, with the heap checker of
the C library where there is one, in a folder with a file that some of them want to read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plan.compatibility import check_plan
from tests.adversarial.plan.edits import put
from tests.support.attack_plans import Json, target
from tests.support.distributions import PROVIDER_MODULE, install
from tests.support.payload_attacks import CASES

ROOT = Path(__file__).parents[3]
HEAP_CHECKERS = ("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0", "/lib64/libc_malloc_debug.so.0")
Outcome = dict[str, Any]


def _environment(home: Path) -> dict[str, str]:
    names = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    changed = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    checker = next((path for path in HEAP_CHECKERS if Path(path).exists()), None)
    checks = {} if checker is None else {"LD_PRELOAD": checker, "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    return {**kept, **changed, **checks}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Where the plans lie, and a home that is empty."""
    plans, home = tmp_path_factory.mktemp("plans"), tmp_path_factory.mktemp("home")
    np.full(20, 7, np.float32).tofile(plans / "secret.bin")
    return plans, home


@pytest.fixture(scope="module")
def outcomes(folders: tuple[Path, Path]) -> dict[str, Outcome]:
    """What became of each case."""
    plans, home = folders
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.payload_attacks", str(plans)]
    done = subprocess.run(
        command, cwd=plans, env=_environment(home), capture_output=True, text=True, timeout=300, check=False
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{rows[-1:]}\n{done.stderr[-4000:]}"
    return {row.pop("case"): row for row in rows if "file" in row}


def _named(kind: str) -> list[str]:
    return [name for name in CASES if name.startswith(f"{kind}:")]


def test_every_case_has_an_outcome(outcomes: dict[str, Outcome]) -> None:
    assert outcomes.keys() == CASES.keys()


def test_nothing_was_written_beside_the_plan(outcomes: dict[str, Outcome], folders: tuple[Path, Path]) -> None:
    plans, home = folders
    assert sorted(path.name for path in plans.iterdir()) == ["attack.plan", "secret.bin"]
    assert not list(home.rglob("*")), "ONNX Runtime keeps files about its use"


def test_errors_are_short_and_safe_to_show(outcomes: dict[str, Outcome]) -> None:
    parts = [part for row in outcomes.values() for part in row.values() if isinstance(part, dict)]
    texts = [text for part in parts for key, text in part.items() if key.endswith("text") and text]
    assert len(texts) > 100
    for text in texts:
        assert len(text) < 1200
        assert all(line.isprintable() for line in text.splitlines()), text


@pytest.mark.parametrize("case", _named("names a file"))
def test_a_payload_that_names_a_file_never_reaches_onnx_runtime(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    assert (row["file"]["error"], row["memory"]["error"]) == ("PlanCorruptError", "PlanCorruptError")
    assert row["sessions"] == 0


@pytest.mark.parametrize("case", [*_named("garbage"), *_named("cut"), *_named("border")])
def test_a_payload_that_is_another_or_none_is_damage(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    assert (row["file"]["error"], row["memory"]["error"]) == ("PlanCorruptError", "PlanCorruptError")


@pytest.mark.parametrize("case", _named("flipped"))
def test_a_flipped_bit_gives_an_error_or_a_result(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    for place in ("file", "memory"):
        assert row[place]["error"] in (None, "PlanCorruptError", "ProviderError")
        ran = row.get(f"{place} run", {})
        assert (row[place]["error"] is None) == bool(ran)
        assert {ran.get("error"), ran.get("bound error")} <= {None, "ProviderError", "PlanError"}


@pytest.mark.parametrize("case", _named("shape"))
def test_a_result_of_another_shape_is_written_nowhere(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    ran = row.get("file run")
    if ran is None:
        assert row["file"]["error"] == "PlanCorruptError"
        return
    assert ran["bound error"] in ("ProviderError", "PlanError")
    if "planned" in case:
        assert "ran" not in ran
        assert ran["error"] in ("ProviderError", "PlanError")


@pytest.mark.parametrize("case", _named("weights"))
def test_weights_that_do_not_fit_are_damage_or_do_no_harm(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    if row["file"]["error"] is None:
        assert row["file run"]["ran"].startswith("float32")
    else:
        assert row["file"]["error"] == "PlanCorruptError"
        assert row["memory"]["error"] == "PlanCorruptError"


@pytest.mark.parametrize("case", _named("foreign"))
def test_models_that_are_not_for_here_are_refused(case: str, outcomes: dict[str, Outcome]) -> None:
    row = outcomes[case]
    if case == "foreign: nested 20 deep":
        assert row["file run"]["ran"] == "float32 (2, 20)"
    else:
        assert row["file"]["error"] in ("PlanCorruptError", "ProviderError")
        assert row["memory"]["error"] in ("PlanCorruptError", "ProviderError")


@pytest.mark.parametrize("case", _named("bomb"))
def test_memory_that_is_not_there_is_an_error_of_the_run(case: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[case]["file"]["error"] is None
    assert outcomes[case]["file run"]["error"] == "ProviderError"


# settings


def test_a_payload_cannot_choose_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = target("whole").raw
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(dt.ProviderError, match="ORT_LOAD_CONFIG_FROM_MODEL"):
        dt.Runtime().deserialize_cuda_engine(raw)


# versions


class _Notes(dt.ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


def _load_noting(raw: bytes) -> tuple[Any, list[str]]:
    logger = _Notes()
    return dt.Runtime(logger).deserialize_cuda_engine(raw), logger.lines


def test_a_partition_of_this_version_has_no_note() -> None:
    assert _load_noting(target("whole").raw)[1] == []


@pytest.mark.parametrize("version", ["1.24.4", "99.0", "nightly", "\x1b[2J", "9" * 60_000])
def test_a_partition_of_another_version_runs_and_is_noted(version: str) -> None:
    plan = target("whole")
    raw = plan.changed(put("programs/0/steps/0/partition/version", version))
    engine, notes = _load_noting(raw)
    assert len(notes) == 1
    assert notes[0].isprintable()
    assert len(notes[0]) < 300
    assert "and again by" in notes[0]
    expected = dt.Runtime().deserialize_cuda_engine(plan.raw)(*plan.arrays())
    np.testing.assert_array_equal(engine(*plan.arrays()), expected)


@pytest.mark.parametrize(("version", "verdict"), [("0.9.1", "rebuild"), ("2.0", "rebuild"), ("1.0.0", "usable")])
def test_another_version_of_the_provider_is_judged(version: str, verdict: str, tmp_path: Path) -> None:
    def edit(manifest: Json) -> None:
        for device in manifest["devices"]:
            if device["provider"] == "onnxruntime":
                device["version"] = version

    path = tmp_path / "versions.plan"
    path.write_bytes(target("whole").changed(edit))
    report = check_plan(path)
    assert report.verdict == verdict
    assert "onnxruntime" in " ".join(report.reasons)


# providers


def _moved_to(provider: str) -> bytes:
    """The plan "whole" for another provider."""

    def edit(manifest: Json) -> None:
        (device,) = (device for device in manifest["devices"] if device["provider"] == "onnxruntime")
        device["provider"] = provider
        manifest["devices"] = [device]
        manifest["programs"][0]["steps"][0]["provider"] = provider

    return target("whole").changed(edit)


def test_a_partition_of_a_provider_that_is_not_here() -> None:
    with pytest.raises(dt.PlanDeviceMismatchError, match="quantum"):
        dt.Runtime().deserialize_cuda_engine(_moved_to("quantum"))


def test_a_partition_of_a_provider_that_takes_none() -> None:
    with pytest.raises(dt.ProviderError, match="it takes no partitions"):
        dt.Runtime().deserialize_cuda_engine(_moved_to("cpu"))


def test_a_partition_of_a_provider_with_an_older_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = PROVIDER_MODULE.format(name="elder").replace("api_version = API_VERSION", "api_version = API_VERSION - 1")
    entries = {"dovetail.providers": {"elder": "elder_provider:create_factory"}}
    install(tmp_path, "elder-package", entries, {"elder_provider": module})
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(dt.ProviderError, match="another version of the contract"):
        dt.Runtime().deserialize_cuda_engine(_moved_to("elder"))
