"""Hundreds of damaged model files, imported in a process of their own: an error of ours or a model, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adversarial.network.mutations import COUNT, make_mutation

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="it limits memory and makes pipes")


def test_a_number_is_always_the_same_mutation() -> None:
    assert COUNT >= 500
    assert make_mutation(17) == make_mutation(17)
    assert len({make_mutation(number)[1] for number in range(COUNT)}) >= 500


@needs_posix
@pytest.mark.timeout(300)
def test_every_mutation_ends_well() -> None:
    command = [sys.executable, "-m", "tests.adversarial.network.mutations"]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, f"ended with {done.returncode} at mutation {done.stderr.splitlines()[-1:]}"
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["foreign"] == []
    assert report["outside"] == []
    assert report["slow"] == []
    assert sum(report["results"].values()) == COUNT
    assert report["results"]["ModelError"] > COUNT / 2
    assert report["results"]["imported"] > COUNT / 20
    assert report["peak_kib"] < 1 << 20
