"""What sessions are told about memory, and that preparing the allocator takes none."""

from __future__ import annotations

import sys
from pathlib import Path

import onnxruntime
import pytest

from dovetail.providers.onnxruntime.memory import prepare_allocator, save_memory

MB = 1 << 20


@pytest.mark.parametrize(("weights_bytes", "has_pattern"), [([], True), ([10 * MB], True), ([40 * MB] * 2, False)])
def test_only_large_weights_go_without_the_block_of_all_values(weights_bytes: list[int], has_pattern: bool) -> None:
    options = onnxruntime.SessionOptions()
    save_memory(options, weights_bytes)
    assert options.enable_mem_pattern is has_pattern


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
@pytest.mark.parametrize("weights_bytes", [[], [1], [10 * MB] * 3, [100 * MB] * 10])
def test_preparing_the_allocator_takes_no_memory(weights_bytes: list[int]) -> None:
    before = _resident_bytes()
    prepare_allocator(weights_bytes)
    assert _resident_bytes() - before < 2 * MB


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
