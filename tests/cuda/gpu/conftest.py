"""What needs a CUDA device: the provider on it, whether the package is installed or only on the path."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.provider.loader import get_provider, has_provider, register_provider
from dovetail_cuda.provider import CudaFactory
from dovetail_cuda.run.driver import Driver


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if not Driver().count_devices():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def cuda() -> Any:
    """The provider on the first device."""
    if not has_provider("cuda"):
        register_provider(CudaFactory())
    return get_provider("cuda")
