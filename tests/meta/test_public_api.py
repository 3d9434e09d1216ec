"""The public API is what the snapshot says: nothing goes, comes or changes by accident (docs/stability.md)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = (ROOT / "tests" / "data" / "public_api.txt").read_text(encoding="utf-8")


def test_the_snapshot_is_that_of_the_source() -> None:
    command = [sys.executable, str(ROOT / "tools" / "public_api"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"if it is meant, run tools/public_api and tell of it in CHANGELOG.md\n{done.stdout}"


def test_the_snapshot_has_signatures_members_and_aliases() -> None:
    lines = SNAPSHOT.splitlines()
    assert any(line.startswith("dovetail.compile(model, example_inputs=None, *, providers=None") for line in lines)
    assert "    run(self, *arrays, output_names=None, **named)" in lines
    assert "dovetail.ICudaEngine = dovetail.Engine" in lines
    assert " at 0x" not in SNAPSHOT


def test_every_package_is_typed() -> None:
    packages = [path for path in ROOT.glob("packages/*/src/*") if (path / "__init__.py").is_file()]
    assert len(packages) > 4
    assert [path.name for path in packages if not (path / "py.typed").is_file()] == []
