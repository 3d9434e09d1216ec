"""The provider over a device of paper. Without Triton there is nothing to collect: ``make test-cuda`` has it."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dovetail_cuda.provider import CudaFactory, CudaProvider
    from tests.cuda.host.fake_driver import FakeDriver

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]


_INTERPRETED = (
    "any_agree",
    "any_length_is_one_kernel",
    "can_be_replaced",
    "category",
    "every_candidate",
    "few_queries",
    "gives_what_cpu_gives",
    "give_what_cpu_gives",
    "half_precision",
    "is_filled_behind",
    "merged_projection",
    "sum_that_is_split",
    "transformer",
    "weights_stay_packed",
    "written_out_is_found",
)
_ONE_OF_A_KIND = (
    "[chain]",
    "[four bits]",
    "[moves]",
    "[picks]",
    "[plain]",
    "[rows]",
    "[skip]",
    "[3x3]",
    "TopK]",
    "-Resize]",
    "ScatterND]",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Mark as slow what interprets kernels, which takes seconds each; one of a kind stays."""
    for item in items:
        is_interpreted = any(part in item.name for part in _INTERPRETED)
        if is_interpreted and not item.name.endswith(_ONE_OF_A_KIND):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def paper(tmp_path: Any) -> Iterator[tuple[CudaProvider, FakeDriver]]:
    """The provider 'cuda', and the driver under it."""
    from tests.cuda.host.fake_provider import fake_cuda

    with fake_cuda(str(tmp_path / "kernels")) as found:
        yield found


@pytest.fixture
def provider_without_device() -> Iterator[CudaFactory]:
    """The provider 'cuda' of a machine without a device."""
    from dovetail.provider.loader import register_provider, set_default_options, unregister_provider
    from dovetail_cuda.provider import CudaFactory

    factory = CudaFactory()
    register_provider(factory)
    set_default_options("cuda", {})
    yield factory
    set_default_options("cuda", {})
    unregister_provider("cuda")


@pytest.fixture
def small_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernel take attention that is small enough to be interpreted."""
    monkeypatch.setattr("dovetail_cuda.graph.attention.FEW_MULTIPLICATIONS", 0)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Have SIGINT interrupt, also where the tests were started in the background and it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
