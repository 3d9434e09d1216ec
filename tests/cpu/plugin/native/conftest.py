"""C++ plugin libraries, compiled once for all tests."""

from __future__ import annotations

import pytest

from tests.support.native_libraries import Compile, make_compiler


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a source by its name."""
    return make_compiler(tmp_path_factory.mktemp("libraries"))
