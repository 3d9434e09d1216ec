"""The README of the package: its program runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "packages/dovetail-tensorrt/README.md"


def test_the_program_of_the_readme_runs() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    env = dict(os.environ)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
