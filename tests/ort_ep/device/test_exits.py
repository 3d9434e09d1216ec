"""Processes that end while ONNX Runtime still has things on a device: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

_START = """
import sys
import numpy as np
import onnxruntime as ort
from tests.support.ort_devices import devices_in_ort
from tests.support.ort_ep_models import feeds, plain_model

manager = devices_in_ort()
(device,) = manager.__enter__()
value = device.value(np.ones((4, 16), np.float32))
stream = device.ep_device.create_sync_stream()
session = device.session(plain_model())
session.run(None, feeds())
"""
_ENDS = {
    "all is left as it is": "",
    "a module that goes last has it": "sys.kept = (value, stream, session)",
    "a cycle has it": "cycle = [value, stream, session]; cycle.append(cycle); del value, stream, session",
    "unregistered before": "manager.__exit__(None, None, None); sys.kept = (value, session)",
    "unregistered at the end": "del value, stream, session; manager.__exit__(None, None, None)",
    "work still waits": "ort.copy_tensors([value], [device.empty((4, 16))], stream); sys.kept = stream",
    "the device fails": "device.break_in('synchronize_stream', 'close_stream', 'synchronize')",
}


@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS.keys())
def test_a_process_ends(end: str) -> None:
    code = _START + end
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (finished.returncode, finished.stdout) == (0, "")
    assert "Traceback" not in finished.stderr
