"""One plan for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.batch.support import make_plan


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_plan(tmp_path_factory.mktemp("plan") / "square.plan")


@pytest.fixture(scope="session")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A plan with a layer that fails for some numbers, and the library of the layer."""
    folder = tmp_path_factory.mktemp("fragile")
    library = folder / "fragile_layers.py"
    return make_plan(folder / "fragile.plan", library=library), library
