"""Builds execute C++ plugins: those that fail, write past their memory or declare aliases end the build."""

from __future__ import annotations

import onnx
import pytest

import dovetail as dt
from tests.support.native_libraries import Compile

FAULTS = {
    "EnqueueThrows": "enqueue",
    "EnqueueStatus": "enqueue returned status",
    "ConfigureThrows": "no configuration today",
    "ConfigureStatus": "configure_plugin returned status 3",
    "WritesPastOutput": "enqueue wrote .* past its end of output 0",
    "WorkspaceOverrun": "enqueue wrote .* past its end of the workspace",
    "HugeWorkspace": "workspace",
    "AliasOutOfRange": "get_aliased_input must return -1 or the index of an input",
}


@pytest.mark.parametrize("fault", ["None", *FAULTS])
def test_a_broken_library_ends_the_build(compile_library: Compile, fault: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "own" : 1]> '
        f"g (float[2,3] x) => (float[2,3] y) {{ y = own.{fault}(x) }}"
    )
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.load_library(compile_library("broken"))
    if fault == "None":
        dt.compile(model, registry=registry, providers=["cpu"]).close()
        return
    with pytest.raises(dt.DovetailError, match=FAULTS[fault]) as caught:
        dt.compile(model, registry=registry, providers=["cpu"])
    text = str(caught.value)
    assert fault in text
    assert text.count("fix:") <= 1
