"""Every kernel of the built-in plugins compiles for sm_90, in processes of their own."""

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton: make test-cuda has it", allow_module_level=True)

from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.store import KernelStore
from dovetail_tensorrt.builtin.device.launch import make_request
from tests.tensorrt.builtin.launches import list_launches


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_kernel_compiles_for_sm_90(tmp_path: Path) -> None:
    requests = list({launch.variant: make_request(launch, 90) for launch in list_launches()}.values())
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            compiled = KernelStore(tmp_path, farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") and not code.scratch_bytes for code in compiled)
    assert {request.function for request in requests} >= {"suppress_boxes", "align_regions", "attend", "normalize"}
