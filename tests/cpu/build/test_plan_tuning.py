"""Plans that carry candidates: built where the device is not, loaded with defaults, tuned where the device is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import PlanCorruptError, ProviderError, TimingCacheError, UsageError
from dovetail.plan.carried import find_carried_blobs
from dovetail.plan.compatibility import check_plan
from dovetail.plan.container import Blob, PlanFile, write_plan
from dovetail.plan.inspect import inspect_plan
from dovetail.plan.manifest import Manifest, decode_manifest, encode_manifest
from dovetail.plan.untimed import count_untimed
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import X, build, chain, expected

WAYS = ("slow", "middle", "fast")
DEVICE: dict[str, Any] = {"compiles": True, "ways": WAYS, "has_code": True}
SHAPES = {"x": ((1, 8), (3, 8), (5, 8))}


def build_far(path: Path, *, candidate_bytes: int = 1 << 20, shapes: Any = SHAPES, **options: Any) -> Path:
    """A plan for a device that is not here."""
    config = dt.BuilderConfig()
    config.candidate_bytes = candidate_bytes
    with host_device(**{**DEVICE, "is_here": False, **options}):
        build(chain(), shapes=shapes, config=config).save(path)
    return path


def read(path: Path) -> Manifest:
    with PlanFile.open(path) as file:
        return decode_manifest(file.manifest)


def chosen(manifest: Manifest) -> list[tuple[str, str]]:
    rows = [row for table in manifest.tuning for row in table.candidates if row.chosen]
    return [(row.name, row.status) for row in rows]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return build_far(tmp_path / "far.plan")


class Messages(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.texts.append(msg)


def test_without_tuning_the_default_runs_and_one_warning_says_what_to_do(plan: Path) -> None:
    messages = Messages()
    with host_device(**DEVICE):
        engine = dt.load(plan, logger=messages)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
    assert chosen(engine.manifest) == [("slow", "untimed")]
    (warning,) = messages.texts
    assert "1 of 1 choices were not timed" in warning
    assert "'dovetail tune PLAN'" in warning


@pytest.mark.parametrize("shapes", [SHAPES, None], ids=["profile", "open"])
@pytest.mark.parametrize("workspace_bytes", [(0, 0), (0, 4096), (4096, 0)], ids=["none", "more", "less"])
def test_the_fastest_candidate_is_in_the_tuned_plan(
    tmp_path: Path, shapes: Any, workspace_bytes: tuple[int, int]
) -> None:
    """Memory is placed anew, as another candidate may need another workspace."""
    before, after = workspace_bytes
    plan = build_far(tmp_path / "far.plan", shapes=shapes, workspace_bytes=before)
    tuned, messages = tmp_path / "tuned.plan", Messages()
    with host_device(**DEVICE, workspace_bytes=after):
        dt.tune(plan, tuned)
        engine = dt.load(tuned, logger=messages)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        assert chosen(engine.manifest) == [("fast", "timed")]
        assert not count_untimed(engine.manifest)
    assert not messages.texts
    (step,) = engine.manifest.programs[0].steps
    assert step.workspace_bytes == after
    assert step.partition is not None
    assert sorted(step.partition.code) == ["main", "way fast"]
    assert inspect_plan(tuned)["carried"] == {"partitions": 0, "blobs": 0, "size_bytes": 0}
    assert tuned.stat().st_size < plan.stat().st_size


def test_tuning_in_place_twice_leaves_the_plan_as_it_is(plan: Path) -> None:
    with host_device(**DEVICE):
        dt.tune(plan)
        written = plan.read_bytes()
        dt.tune(plan)
    assert plan.read_bytes() == written
    assert chosen(read(plan)) == [("fast", "timed")]


def test_timings_go_into_the_cache_and_come_from_it(plan: Path, tmp_path: Path) -> None:
    cache = tmp_path / "timings"
    with host_device(**DEVICE) as device:
        with pytest.raises(TimingCacheError):
            raise_for(["tune", str(plan), "--timing-cache", str(cache), "--error-on-timing-cache-miss"])
        assert not main(["tune", str(plan), "-o", str(tmp_path / "a"), "--timing-cache", str(cache), "--quiet"])
        device.statistics.reset()
        assert not main(["tune", str(plan), "-o", str(tmp_path / "b"), "--timing-cache", str(cache), "--quiet"])
        assert not device.statistics.launches
    assert chosen(read(tmp_path / "b")) == [("fast", "cached")]


def raise_for(arguments: list[str]) -> None:
    """Run a command with its errors raised."""
    from dovetail.cli.parser import make_parser

    args = make_parser("tune").parse_args(arguments)
    args.run(args)


def test_the_command_shows_what_was_chosen_and_inspect_what_is_carried(plan: Path, capsys: Any) -> None:
    carried = inspect_plan(plan)["carried"]
    assert (carried["partitions"], carried["blobs"]) == (1, 3)
    assert carried["size_bytes"] > 0
    assert not main(["inspect", str(plan)])
    assert "carried for 1 partition(s)" in capsys.readouterr().out
    with host_device(**DEVICE):
        assert not main(["tune", str(plan), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [c["name"] for layer in document["layers"] for c in layer["candidates"] if c["chosen"]] == ["fast"]
    assert document["num_partitions"] == 1
    assert not main(["inspect", str(plan)])
    assert "carried for" not in capsys.readouterr().out
    with host_device(**DEVICE):
        assert not main(["tune", str(plan)])
    assert "nothing to tune, so it stays as it is" in capsys.readouterr().out


def test_the_judge_of_plans_says_what_to_do_and_calls_a_tuned_plan_optimal(plan: Path) -> None:
    with host_device(**DEVICE):
        report = check_plan(plan)
        assert report.verdict == "usable"
        assert "carries candidates: 'dovetail tune' chooses between them on the device" in report.notes
        dt.tune(plan)
        assert check_plan(plan).verdict == "optimal"


def test_a_run_does_not_read_candidates_and_saving_checks_them(plan: Path, tmp_path: Path) -> None:
    manifest = read(plan)
    damaged = sorted(find_carried_blobs(manifest))[0]
    _damage(plan, damaged)
    with host_device(**DEVICE):
        engine = dt.load(plan, logger=Messages())
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)
        with pytest.raises(PlanCorruptError, match="does not match its sha256 digest"):
            engine.save(tmp_path / "again.plan")
        with pytest.raises(PlanCorruptError, match="does not match its sha256 digest"):
            dt.tune(plan)


def test_a_plan_that_is_saved_again_can_still_be_tuned(plan: Path, tmp_path: Path) -> None:
    with host_device(**DEVICE):
        dt.load(plan, logger=Messages()).save(tmp_path / "again.plan")
        assert (tmp_path / "again.plan").read_bytes() == plan.read_bytes()


def _damage(path: Path, name: str) -> None:
    with PlanFile.open(path) as file:
        place = file.blobs[name].begin
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


# what cannot be


def test_what_is_asked_for_in_vain_is_told() -> None:
    messages, config = Messages(), dt.BuilderConfig()
    config.candidate_bytes = 1 << 20
    dt.compile(chain(), providers=["cpu"], config=config, logger=messages)
    assert any("--carry-candidates) has no effect" in text for text in messages.texts)


def test_a_partition_with_more_candidates_than_allowed_is_not_taken() -> None:
    messages, config = Messages(), dt.BuilderConfig()
    config.candidate_bytes = 10
    with host_device(**DEVICE, is_here=False):
        engine = build(chain(), shapes=SHAPES, config=config, logger=messages)
    assert any("carries more candidates than the build allows" in text for text in messages.texts)
    assert {step.provider for step in engine.manifest.programs[0].steps if step.kind != "copy"} == {"cpu"}


def test_a_plan_without_candidates_cannot_be_tuned(tmp_path: Path) -> None:
    plan = build_far(tmp_path / "far.plan", candidate_bytes=0)
    with (
        host_device(**DEVICE),
        pytest.raises(UsageError, match=r"1 of 1 choices were not timed.*and it carries no candidates"),
    ):
        dt.tune(plan)


def test_nothing_is_tuned_where_the_device_is_not(plan: Path) -> None:
    with (
        host_device(**DEVICE, is_here=False),
        pytest.raises(ProviderError, match="its device is not here, so that nothing can be timed"),
    ):
        dt.tune(plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": ["way slow", "other"]}, "it chose device code that the plan does not have; got 'other'"),
        ({"added": {"way middle": b""}}, "two pieces of code have one name; got 'way middle'"),
        ({"workspace_bytes": -1}, "a step needs more workspace than the build allows"),
        ({"payload": "text"}, "the payload is no bytes"),
    ],
)
def test_what_a_provider_gives_is_checked(
    plan: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    before, tune = plan.read_bytes(), HostDevice.tune_partition
    monkeypatch.setattr(HostDevice, "tune_partition", lambda *args: replace(tune(*args), **changes))
    with host_device(**DEVICE), pytest.raises(ProviderError, match=message):
        dt.tune(plan)
    monkeypatch.setattr(HostDevice, "tune_partition", lambda *args: None)
    with host_device(**DEVICE), pytest.raises(ProviderError, match="tune_partition gave no partition"):
        dt.tune(plan)
    assert plan.read_bytes() == before


def _name_no_payload(candidates: dict[str, Any], blobs: dict[str, Any]) -> None:
    candidates["payload"] = next(name for name, blob in blobs.items() if blob["kind"] == "kernel")


def _name_no_blob(candidates: dict[str, Any], blobs: dict[str, Any]) -> None:
    candidates["code"]["way fast"] = "nothing"


def _name_weights(candidates: dict[str, Any], blobs: dict[str, Any]) -> None:
    candidates["code"]["way fast"] = next(name for name, blob in blobs.items() if blob["kind"] == "weights")


def _name_twice(candidates: dict[str, Any], blobs: dict[str, Any]) -> None:
    candidates["code"]["main"] = candidates["code"]["way fast"]


@pytest.mark.parametrize("attack", [_name_no_payload, _name_no_blob, _name_weights, _name_twice])
def test_records_of_candidates_are_checked(
    plan: Path, attack: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    with PlanFile.open(plan) as file:
        document = json.loads(file.manifest)
        (step,) = document["programs"][0]["steps"]
        attack(step["partition"]["candidates"], document["blobs"])
        blobs = [
            Blob(name=name, dtype=info.dtype, shape=tuple(info.shape), data=bytes(file.blob(name)))
            for name, info in file.blobs.items()
        ]
    write_plan(plan, json.dumps(document).encode(), blobs)
    with host_device(**DEVICE):
        for use in (dt.load, dt.tune):
            with pytest.raises(PlanCorruptError):
                use(plan)


def test_device_code_that_nobody_names_is_refused(plan: Path) -> None:
    with PlanFile.open(plan) as file:
        manifest = decode_manifest(file.manifest)
        (step,) = manifest.programs[0].steps
        assert step.partition is not None
        partition = msgspec.structs.replace(step.partition, candidates=None)
        program = msgspec.structs.replace(
            manifest.programs[0], steps=[msgspec.structs.replace(step, partition=partition)]
        )
        blobs = [
            Blob(name=name, dtype=info.dtype, shape=tuple(info.shape), data=bytes(file.blob(name)))
            for name, info in file.blobs.items()
        ]
    write_plan(plan, encode_manifest(msgspec.structs.replace(manifest, programs=[program])), blobs)
    with host_device(**DEVICE), pytest.raises(PlanCorruptError, match="no step names it"):
        dt.load(plan)


def test_tuning_imports_nothing_that_builds() -> None:
    script = (
        "import sys, dovetail; dovetail.tune; import dovetail.cli.commands.tune\n"
        "print([m for m in ('onnx', 'onnx_ir', 'onnxscript', 'sympy', 'torch', 'triton') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
