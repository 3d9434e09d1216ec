"""The library is registered once in a process; tests that need it otherwise start a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import ort_ep


@pytest.fixture(scope="session")
def registration() -> str:
    """The name under which the library is registered."""
    return ort_ep.register()


@pytest.fixture
def dovetail_session(registration: str) -> Callable[..., Any]:
    """``dovetail_session(model, **ep_options)``: see ``tests.support.ort_ep``."""
    return ort_ep.dovetail_session


@pytest.fixture
def assigned() -> Callable[..., dict[str, list[str]]]:
    """``assigned(session)``: the operators by execution provider."""
    return ort_ep.assigned
