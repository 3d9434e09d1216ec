"""The commands of docs/cpp-plugins.md run as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "cpp-plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
TOOLS = ("g++", "nvcc", "cmake", "pkg-config")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split()[0] + str(BLOCKS.index(block)))
def test_commands_run(block: str, tmp_path: Path) -> None:
    missing = [tool for tool in TOOLS if f"{tool} " in block and shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]} here")
    for folder in ("examples", "tests"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = ["bash", "-euo", "pipefail", "-c", block]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_there_are_commands() -> None:
    assert len(BLOCKS) >= 5


def test_every_header_that_is_named_exists() -> None:
    include = ROOT / "packages/dovetail/src/dovetail/include"
    named = set(re.findall(r"`((?:Nv|cuda_|cublas|cudnn|driver_|vector_)\w*\.h)`", TEXT))
    assert len(named) > 10
    assert all((include / name).is_file() or (include / "no_cuda" / name).is_file() for name in named), named
