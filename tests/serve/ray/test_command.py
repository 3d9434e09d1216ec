"""``dovetail serve --ray``: says where replicas are, and ends them with a signal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serve.batch.support import make_plan
from tests.serve.ray.apart import run_apart


@pytest.mark.timeout(600)
def test_replicas_are_told_and_end_with_a_signal(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "square" / "1"
    folder.mkdir(parents=True)
    make_plan(tmp_path / "model.plan").rename(folder / "model.plan")
    endpoints, log = tmp_path / "endpoints.json", tmp_path / "log"
    options = ["--http-port", 8300, "--grpc-port", 8301, "--replicas", 2, "--cpus", 0.5, "--endpoints", endpoints]
    words = ["serve", tmp_path / "models", "--ray", "local", *options, "--json", "--quiet"]
    assert run_apart("command_program", [endpoints, *words], log, timeout_s=500)
    assert json.loads(endpoints.read_text()) == {
        "http": ["http://127.0.0.1:8300", "http://127.0.0.1:8302"],
        "grpc": ["127.0.0.1:8301", "127.0.0.1:8303"],
    }
    text = log.read_text()
    document, _ = json.JSONDecoder().raw_decode(text[text.index("\n{\n") + 1 :])
    states = [model["state"] for replica in document["replicas"] for model in replica["models"]]
    assert states == ["READY", "READY"]
