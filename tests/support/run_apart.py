"""Runs programs that each end their own process, fast: one process imports everything and forks for each of them.

It reads a JSON list of ``{"name", "path"}`` from its input, where a path is that of a module, and writes a
JSON mapping from name to exit code and output. A program is over when its process is, so what counts is the end of a
whole interpreter.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np  # noqa: F401 - imported once for all
import onnxruntime as ort  # noqa: F401

import dovetail
import onnxruntime_ep_dovetail.factory  # noqa: F401
from tests.support import ort_ep_models

LIMIT_S = 60
dovetail.compile(ort_ep_models.plain_model(), providers=["cpu"])  # imports what building needs


def wait(child: int) -> int:
    """The exit code of a process; one that takes too long is ended, with a code that no other end has."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1000


results = {}
mine = None
for program in json.load(sys.stdin):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1), os.dup2(errors.fileno(), 2)
            mine = program
            break
        code = wait(child)
        texts = [(file.seek(0), file.read())[1] for file in (out, errors)]
        results[program["name"]] = [code, *texts]

if mine is None:
    json.dump(results, sys.stdout)
else:
    sys.path.insert(0, str(Path(mine["path"]).parent))
    importlib.import_module(Path(mine["path"]).stem)
    print("done", flush=True)
