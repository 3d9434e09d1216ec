"""The provider over a device of paper. Without Triton there is nothing to collect: ``make test-cuda`` has it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail_cuda.provider import CudaProvider
    from tests.cuda.host.fake_driver import FakeDriver

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]


@pytest.fixture
def paper(tmp_path: Any) -> Iterator[tuple[CudaProvider, FakeDriver]]:
    """The provider 'cuda', and the driver under it."""
    from tests.cuda.host.fake_provider import fake_cuda

    with fake_cuda(str(tmp_path / "kernels")) as found:
        yield found


@pytest.fixture
def small_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel take attention that is small enough to be interpreted."""
    monkeypatch.setattr("dovetail_cuda.graph.attention.FEW_MULTIPLICATIONS", 0)
