"""The first use of Dovetail: Ctrl-C leaves a process that can build, and nothing comes from the current folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail._interrupts import UninterruptedImport

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")

INTERRUPTED = """
import os, signal, sys
import dovetail

class Finder:
    seen = 0
    def find_spec(self, name, path=None, target=None):
        if name.startswith(PREFIX):
            Finder.seen += 1
            if Finder.seen == TURN:
                os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Finder())
try:
    dovetail.compile
    print("no interrupt")
except KeyboardInterrupt:
    print("interrupted")
sys.meta_path.pop(0)
import numpy as np
network = dovetail.Builder().create_network()
x = network.add_input("x", dovetail.float32, (2,))
network.mark_output(network.add_identity(x).get_output(0))
print(dovetail.compile(network, providers=["cpu"])(np.ones(2, np.float32)))
"""


@posix_only
@pytest.mark.parametrize(("prefix", "turn"), [("numpy", 3), ("onnx_ir", 10), ("dovetail.", 30)])
def test_ctrl_c_in_the_first_import_leaves_a_process_that_builds(prefix: str, turn: int) -> None:
    program = INTERRUPTED.replace("PREFIX", repr(prefix)).replace("TURN", str(turn))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout.split("\n")[:2] == ["interrupted", "[1. 1.]"], done.stderr


@posix_only
def test_an_interrupt_waits_and_is_not_lost() -> None:
    reached = []

    def import_slowly() -> None:
        with UninterruptedImport():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        import_slowly()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Interrupts are heard here and in child processes, also where whoever started the tests had them ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_other_threads_hear_of_no_signal() -> None:
    def enter() -> None:
        with UninterruptedImport():
            entered.append(signal.getsignal(signal.SIGINT))

    entered: list[object] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("name", ["argparse", "json", "numpy", "onnx", "rich", "shutil"])
def test_the_command_imports_nothing_from_the_current_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("print('taken from here')\nraise SystemExit(9)\n", encoding="utf-8")
    command = [sys.executable, "-m", "dovetail", "env"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert "taken from here" not in done.stdout
    assert done.returncode == 0, done.stderr
