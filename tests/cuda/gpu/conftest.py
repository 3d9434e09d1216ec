"""What needs a CUDA device: the provider on it, whether the package is installed or only on the path."""

from __future__ import annotations

import os
from typing import Any

import pytest

from dovetail.provider.loader import get_provider, has_provider, register_provider
from dovetail_cuda.provider import CudaFactory
from dovetail_cuda.run.driver import Driver


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep every n-th test from the i-th on for ``SHARD=i/n``, and none where there is no device."""
    shard = os.environ.get("SHARD")
    if shard:
        number, count = _read_shard(shard)
        config.hook.pytest_deselected(items=[item for at, item in enumerate(items) if at % count != number - 1])
        items[:] = items[number - 1 :: count]
    if not Driver().count_devices():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def _read_shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"SHARD is a part of so many, such as 1/3, and not {text!r}")
    return int(number), int(count)


@pytest.fixture(scope="session")
def cuda() -> Any:
    """The provider on the first device."""
    if not has_provider("cuda"):
        register_provider(CudaFactory())
    return get_provider("cuda")
