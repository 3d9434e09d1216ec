"""Exceptions and null results of every method of the C++ interfaces: a named error; a signal for destructors only."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import PluginError
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import INCLUDE, Compile

PROGRAM = Path(__file__).parent / "programs" / "throw_everywhere.py"
HEADERS = ("plugin.h", "plugin_quick.h", "plugin_v2.h")
VERSIONED = ("IPluginV3OneCore", "IPluginV3OneBuild", "IPluginV3OneRuntime", "IPluginCreatorV3One", "IPluginCreator")
QUICK_ONES = ("IPluginV3QuickCore", "IPluginV3QuickBuild", "IPluginV3QuickRuntime", "IPluginCreatorV3Quick")
OLDER = ("IPluginV2", "IPluginV2Ext", "IPluginV2IOExt", "IPluginV2DynamicExt")
NOT_CALLED = {
    "getAPILanguage": "the language of a library is known",
    "getInterfaceInfo of IPluginV3": "a creator of its interface made it",
    "getTensorRTVersion of IPluginCreator": "the interface of a creator is that of getInterfaceInfo",
    "setPluginNamespace of IPluginCreator": "called for registered creators only, see REGISTERED",
    **{f"configureWithFormat of {name}": "these have configurePlugin" for name in OLDER[1:]},
    "isOutputBroadcastAcrossBatch": "outputs are never broadcast",
    "canBroadcastInputAcrossBatch": "inputs are never broadcast",
}
"""Methods that Dovetail does not call, with the reason."""
LIBRARY = ("library.getCreators", "library.setLoggerFinder", "library.initLibNvInferPlugins")
REGISTERED = tuple(
    f"registered.{method}"
    for method in (
        "constructor",
        "getInterfaceInfo",
        "getPluginName",
        "getPluginVersion",
        "getPluginNamespace",
        "setPluginNamespace",
    )
)
RESOURCE = ("IPluginResource.clone", "IPluginResource.release")
DESTRUCTORS = ("IPluginV3.~", "Quick.~", "IPluginResource.~", *(f"{name}.~" for name in OLDER))
KINDS = {
    "runtime_error": "thrown by IPluginV3.clone",
    "string": "thrown by IPluginV3.clone",
    "literal": "a literal that is thrown",
    "int": "an exception that is no std::exception, the int 41",
    "bad_alloc": "std::bad_alloc",
    "silent": "an exception without a text, of type (anonymous namespace)::Silent",
    "pointer": "an exception that is no std::exception, of type (anonymous namespace)::Unusual const*",
    "custom": "an exception that is no std::exception, of type (anonymous namespace)::Unusual",
}
NULLS = {
    "IPluginV3OneCore.getPluginName": "getPluginName returned null",
    "IPluginV3OneCore.getPluginVersion": "getPluginVersion returned null",
    "IPluginV3OneCore.getPluginNamespace": "getPluginNamespace returned null",
    "IPluginV3OneCore.getInterfaceInfo": "getCapabilityInterface(CORE) returned another interface",
    "IPluginV3OneBuild.getInterfaceInfo": "getCapabilityInterface(BUILD) returned another interface",
    "IPluginV3OneRuntime.getInterfaceInfo": "getCapabilityInterface(RUNTIME) returned another interface",
    "IPluginV3OneRuntime.attachToContext": "attachToContext returned null",
    "IPluginV3OneRuntime.getFieldsToSerialize": "getFieldsToSerialize returned null",
    "IPluginV3.getCapabilityInterface": "returned None",
    "IPluginV3.clone": "clone returned null",
    "IPluginCreatorV3One.getInterfaceInfo": "an interface that is not supported",
    "IPluginCreatorV3One.getPluginName": "getPluginName of a creator returned null",
    "IPluginCreatorV3One.getPluginVersion": "getPluginVersion of a creator returned null",
    "IPluginCreatorV3One.getPluginNamespace": "getPluginNamespace of a creator returned null",
    "IPluginCreatorV3One.getFieldNames": "getFieldNames returned null",
    "IPluginCreatorV3One.createPlugin": "createPlugin returned null",
    "IPluginCreator.getInterfaceInfo": "an interface that is not supported",
    "IPluginCreator.getPluginName": "getPluginName of a creator returned null",
    "IPluginCreator.createPlugin": "createPlugin returned null",
    "IPluginCreator.deserializePlugin": "deserializePlugin returned null",
    "IPluginV2DynamicExt.getPluginType": "getPluginName returned null",
    "IPluginV2DynamicExt.getPluginVersion": "getPluginVersion returned null",
    "IPluginV2DynamicExt.clone": "clone returned null",
    "IPluginV3QuickCore.getInterfaceInfo": "has a capability that is not of the quick interface",
    "IPluginV3QuickBuild.getInterfaceInfo": "has a capability that is not of the quick interface",
    "IPluginV3QuickRuntime.getInterfaceInfo": "has a capability that is not of the quick interface",
    "IPluginV3QuickCore.getPluginName": "getPluginName returned null",
    "IPluginCreatorV3Quick.getInterfaceInfo": "an interface that is not supported",
    "IPluginCreatorV3Quick.createPlugin": "createPlugin returned null",
    "Quick.getCapabilityInterface": "returned None",
    "IPluginResource.clone": "IPluginResource::clone returned null",
    "registered.getInterfaceInfo": "a creator of the interface null, which is not supported",
    "registered.getPluginName": "getPluginName of a creator returned null",
    "library.getCreators": "getCreators returned a null creator or a wrong count",
}
"""Methods that must not return null, and the error."""
NULLS_ALLOWED = (
    "IPluginV3OneBuild.getTimingCacheID",
    "IPluginV3OneBuild.getMetadataString",
    "IPluginV2DynamicExt.getPluginNamespace",
    "IPluginCreator.getFieldNames",
    "IPluginCreator.getPluginNamespace",
    "IPluginV3QuickBuild.getTimingCacheID",
)
REPRESENTATIVES = (
    *(f"{name}:runtime_error" for name in (*LIBRARY, *REGISTERED, *RESOURCE)),
    *(f"IPluginV3.clone:{kind}" for kind in KINDS),
    *(f"{name}:runtime_error" for name in DESTRUCTORS),
    "IPluginV3OneBuild.getWorkspaceSize:runtime_error",
    "IPluginV2DynamicExt.getWorkspaceSize:runtime_error",
    "IPluginV2DynamicExt.terminate:runtime_error",
    "IPluginV2DynamicExt.destroy:runtime_error",
    "IPluginV2Ext.detachFromContext:runtime_error",
    "IPluginV2IOExt.initialize:runtime_error",
    "IPluginV2.serialize:runtime_error",
    "IPluginCreator.getPluginName:runtime_error",
    "IPluginCreatorV3One.getPluginNamespace:runtime_error",
    "IPluginCreatorV3Quick.getPluginVersion:runtime_error",
    "IPluginV3QuickBuild.getNbSupportedFormatCombinations:runtime_error",
    "library.getCreators:huge count",
    "library.getCreators:null",
    "IPluginCreatorV3One.getInterfaceInfo:null",
    "IPluginV3OneBuild.getInterfaceInfo:null",
    "IPluginV3QuickBuild.getInterfaceInfo:null",
    "registered.getInterfaceInfo:null",
    "IPluginV3OneCore.getPluginName:null",
)
"""Faults of the quick run; the others run with the marker `slow`."""

Results = dict[str, dict[str, Any]]


def read_interfaces() -> dict[str, tuple[str, set[str], set[str]]]:
    """Each class of the headers: its base, the virtual methods that it declares, and those that it makes final."""
    found = {}
    for header in HEADERS:
        text = (INCLUDE / "dovetail" / header).read_text(encoding="utf-8")
        for name, base, body in re.findall(r"^class (\w+)(?: : public (\w+))?\n\{(.*?)^\};", text, re.M | re.S):
            methods = set(re.findall(r"virtual [^;{()]*?(~?\w+)\(", body))
            final = set(re.findall(r"(\w+)\((?:[^()]|\(\))*\) (?:const )?final", body))
            found[name] = (base, methods, final)
    return found


def list_methods() -> Iterator[str]:
    """All methods of all interfaces, as the test library names them."""
    interfaces = read_interfaces()
    for name in (*VERSIONED, *QUICK_ONES, "IPluginV3"):
        yield f"{name}.getInterfaceInfo"
        yield from (f"{name}.{method}" for method in interfaces[name][1])
    yield "IPluginV3OneBuildV2.getAliasedInput"
    for name in OLDER:
        methods, final, base = set[str](), set[str](), name
        while base in interfaces:
            base, own, ended = interfaces[base]
            methods |= own
            final |= ended - own  # another overload of the same name stays open
        yield from (f"{name}.{method}" for method in methods - final if not method.startswith("~"))
    yield from (f"Quick.{method}" for method in interfaces["IPluginV3"][1])
    yield from (*RESOURCE, *LIBRARY, *REGISTERED, *DESTRUCTORS)


METHODS = sorted(set(list_methods()))


def reason_not_called(method: str) -> str | None:
    interface, name = method.split(".")
    return NOT_CALLED.get(name) or NOT_CALLED.get(f"{name} of {interface}")


def run_faults(compile_library: Compile, faults: list[str]) -> Results:
    library = compile_library("throws", "-DREGISTERS")
    command = [sys.executable, str(PROGRAM), str(library), "none.none:none", *faults]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["fault"]: result for result in results}


@pytest.fixture(scope="module")
def quick(compile_library: Compile) -> Results:
    return run_faults(compile_library, list(REPRESENTATIVES))


@pytest.fixture(scope="module")
def every(compile_library: Compile) -> Results:
    nulls = [f"{method}:null" for method in (*NULLS, *NULLS_ALLOWED)]
    return run_faults(compile_library, [*(f"{method}:runtime_error" for method in METHODS), *nulls])


def check_fault(results: Results, fault: str) -> None:
    """Check that an error has the method and the text, or that an exception of a destructor terminated the process."""
    method, _, kind = fault.partition(":")
    result = results[fault]
    if method in DESTRUCTORS:
        assert result["signal"] == signal.SIGABRT, result
        return
    assert (result["signal"], result["exit"]) == (0, 0), result
    texts = [*result["errors"], *result["logged"]]
    if kind == "null":
        assert any(NULLS[method] in text for text in texts), texts
        return
    if kind == "huge count":
        assert any("a null creator or a wrong count; got 2147483647" in text for text in texts), texts
        return
    name = method.split(".")[1]
    name = name.replace("constructor", "the constructor of a creator")
    words = KINDS[kind].replace("IPluginV3.clone", method)
    assert any(re.search(rf"{re.escape(name)}\S* .*threw an exception: {re.escape(words)}", text) for text in texts), (
        name,
        texts,
    )


def test_the_plugins_without_a_fault_are_right(quick: Results) -> None:
    result = quick["none.none:none"]
    assert (result["is_right"], result["errors"], result["logged"]) == (True, [], []), result


@pytest.mark.parametrize("fault", REPRESENTATIVES)
def test_a_fault_of_a_method_is_a_named_error(quick: Results, fault: str) -> None:
    check_fault(quick, fault)


def test_a_workspace_size_that_throws_fails_the_build(quick: Results) -> None:
    for interface in ("IPluginV3OneBuild", "IPluginV2DynamicExt"):
        (error,) = quick[f"{interface}.getWorkspaceSize:runtime_error"]["errors"]
        assert f"getWorkspaceSize threw an exception: thrown by {interface}.getWorkspaceSize" in error


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", METHODS)
def test_an_exception_of_any_method_is_a_named_error(every: Results, method: str) -> None:
    if reason_not_called(method):
        result = every[f"{method}:runtime_error"]
        assert (result["signal"], result["is_right"], result["errors"]) == (0, True, [])
    else:
        check_fault(every, f"{method}:runtime_error")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", NULLS)
def test_a_null_result_is_a_named_error(every: Results, method: str) -> None:
    check_fault(every, f"{method}:null")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", NULLS_ALLOWED)
def test_an_allowed_null_result_is_no_error(every: Results, method: str) -> None:
    result = every[f"{method}:null"]
    assert (result["signal"], result["is_right"], result["errors"]) == (0, True, [])


def test_the_old_entry_point_that_throws_is_named(compile_library: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_library("throws", "-DOLD_ENTRY")
    monkeypatch.setenv("DOVETAIL_TEST_FAULT", "library.getPluginCreators:int")
    with pytest.raises(PluginError, match="getPluginCreators threw an exception: an exception that is no std"):
        PluginRegistry().load_library(path)
