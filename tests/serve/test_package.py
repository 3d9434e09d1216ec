"""The package as it is installed: light to import, and found by the command line."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points


def test_importing_it_imports_none_of_what_it_serves_with() -> None:
    code = "import dovetail_serve, sys; print([name for name in ('starlette', 'grpc', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_its_commands_are_offered() -> None:
    offered = {each.name for each in entry_points(group="dovetail.commands")}
    assert {"batch", "serve"} <= offered
