"""Replicas on Ray under load: none of what happens to one costs a request of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serve.ray.apart import run_apart


@pytest.mark.timeout(900)
def test_replicas_die_reload_and_grow_under_load(tmp_path: Path) -> None:
    assert run_apart("serving_program", [tmp_path], tmp_path / "log", timeout_s=800)
    results = json.loads((tmp_path / "results.json").read_text())
    print(json.dumps(results, indent=1))
    assert results["states"] == [["READY", "READY"]] * 2

    kill = results["kill"]
    assert kill["failed"] == []
    assert kill["lost_by_others"] == 0
    assert kill["broken"] <= 3, "each client has one connection to it"
    assert kill["requests"] > 50

    replace = results["replace"]
    assert (replace["failed"], replace["lost"]) == ([], 0)
    assert set(replace["values"]) <= {2.0, 3.0}

    damage = results["damage"]
    assert "replica 0" in damage["refused"]
    assert (damage["values"], damage["failed"]) == ([3.0], [])

    assert results["pile"]["answers"] == 80
    assert results["drained"]
    assert results["late"] == [1.0]
