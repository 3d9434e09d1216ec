"""A host device of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ort_devices import DeviceInOrt, devices_in_ort


@pytest.fixture
def device() -> Iterator[DeviceInOrt]:
    """A device that ONNX Runtime knows."""
    with devices_in_ort() as (made,):
        yield made
