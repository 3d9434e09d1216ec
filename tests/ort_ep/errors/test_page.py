"""What the page about ONNX Runtime names is there, in every version that is supported."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Final

import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state
import pytest

from tests.support.ort_ep import RUNTIME

pytestmark = pytest.mark.versions

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = (ROOT / "docs/inside-onnxruntime.md", ROOT / "packages/onnxruntime-ep-dovetail/README.md")
_NAMES: Final = re.compile(r"\b(?:ort|onnxruntime)((?:\.[A-Za-z_]\w*)+)")
_NOT_IN: Final = {"get_registered_ep_kernel_defs": (1, 24)}
"""What the pages say that a version does not have."""


def _names() -> list[str]:
    found = {match[1] for page in PAGES for match in _NAMES.finditer(page.read_text(encoding="utf-8"))}
    return sorted(found)


@pytest.mark.parametrize("name", _names())
def test_names_are_there(name: str) -> None:
    if _NOT_IN.get(name.rpartition(".")[2], (0, 0)) >= RUNTIME:
        pytest.skip("the page says so")
    assert reduce(getattr, name.removeprefix(".").split("."), onnxruntime) is not None


def test_the_install_line_installs_onnx_runtime() -> None:
    (line,) = re.findall(r"^pip install .*$", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert "onnxruntime" in line.split()
