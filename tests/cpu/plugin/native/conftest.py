"""C++ plugin libraries for tests."""

from __future__ import annotations

import pytest

from tests.support import native_libraries
from tests.support.native_libraries import Compile


@pytest.fixture(scope="session")
def compile_library() -> Compile:
    """Compiles a source by its name."""
    return native_libraries.compile_library
