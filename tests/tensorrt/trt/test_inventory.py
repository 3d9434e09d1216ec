"""The names of the API, from a list of them: classes, members, values of enumerations, keywords and defaults."""

from __future__ import annotations

import inspect
import json
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_tensorrt import trt

INVENTORY = json.loads(Path(__file__).with_name("inventory.json").read_text(encoding="utf-8"))
CLASSES: dict[str, dict[str, Any]] = INVENTORY["classes"]
MEMBERS = [(name, member) for name, about in CLASSES.items() for member in about.get("members", ())]
VALUES = [(name, member, value) for name, about in CLASSES.items() for member, value in about.get("values", {}).items()]
SIGNATURES: dict[str, str] = INVENTORY["signatures"]
DEFAULTS = [(name, member, value) for name, about in INVENTORY["defaults"].items() for member, value in about.items()]
PARTS = {
    "dovetail_tensorrt.v2": {
        "IPluginCreator",
        "IPluginV2",
        "IPluginV2DynamicExt",
        "IPluginV2DynamicExtBase",
        "IPluginV2Ext",
        "IPluginV2Layer",
        "PluginCreatorVersion",
    },
    "dovetail_tensorrt.trt.plugin": {"KernelLaunchParams"},
    "dovetail_tensorrt.trt.plugin.requests": {"QuickPluginCreationRequest"},
}
"""Names that other parts of the package bring."""


def _find(name: str) -> Any:
    for module, names in PARTS.items():
        if name in names:
            pytest.importorskip(module, reason=f"{name} needs {module}, which is not here", exc_type=ImportError)
    return getattr(trt, name)


@cache
def _instances() -> dict[str, Any]:
    """Objects of the classes whose members are set when one is made."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 2))
    weights = network.add_constant((2, 2), np.ones((2, 2), np.float32))
    layer = network.add_elementwise(x, weights.get_output(0), trt.ElementWiseOperation.SUM)
    network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = builder.build_engine_with_config(network, config)
    runtime = trt.Runtime(logger)
    refitter = trt.Refitter(engine, logger)
    return {
        "Logger": logger,
        "Builder": builder,
        "INetworkDefinition": builder.create_network(),
        "IBuilderConfig": builder.create_builder_config(),
        "IOptimizationProfile": builder.create_optimization_profile(),
        "ITensor": x,
        "Runtime": runtime,
        "ICudaEngine": engine,
        "IExecutionContext": engine.create_execution_context(),
        "Refitter": refitter,
        "EngineInspector": engine.create_engine_inspector(),
        "ISerializationConfig": engine.create_serialization_config(),
        "OnnxParser": trt.OnnxParser(builder.create_network(), logger),
        "IPluginRegistry": builder.get_plugin_registry(),
        "TimingCacheValue": trt.TimingCacheValue(),
        "InterfaceInfo": trt.IPluginV3().interface_info,
        "ISymExpr": trt.ISymExpr(),
        "PluginTensorDesc": trt.PluginTensorDesc(),
        "PluginField": trt.PluginField(),
    }


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "Severity"])
def test_the_class_is_there(name: str) -> None:
    assert isinstance(_find(name), type)


@pytest.mark.parametrize("name", INVENTORY["module"])
def test_the_name_of_the_module_is_there(name: str) -> None:
    assert hasattr(trt, name)


@pytest.mark.parametrize(("name", "member"), MEMBERS, ids=[".".join(pair) for pair in MEMBERS])
def test_the_member_is_there(name: str, member: str) -> None:
    found = _find(name)
    declared = {each for base in found.__mro__ for each in vars(base).get("__annotations__", {})}
    # What a subclass must set is refused until it does, so that reading it from the class raises.
    declared |= {each for base in found.__mro__ for each in vars(base)}
    instance = found() if name == "KernelLaunchParams" else _instances().get(name)
    assert member in declared or hasattr(instance, member)


@pytest.mark.parametrize(("name", "member", "value"), VALUES, ids=[f"{n}.{m}" for n, m, _ in VALUES])
def test_the_value_is_right(name: str, member: str, value: int) -> None:
    enum = _find(name)
    assert issubclass(enum, IntEnum)
    assert int(enum[member]) == value
    assert enum.__members__[member].name == member


@pytest.mark.parametrize("call", SIGNATURES)
def test_keywords_and_defaults_are_right(call: str) -> None:
    target: Any = trt
    for part in call.split("."):
        target = getattr(target, part)
    given = [parameter for name, parameter in inspect.signature(target).parameters.items() if name != "self"]
    wanted = [part.partition("=") for part in SIGNATURES[call].split(", ")] if SIGNATURES[call] else []
    assert [parameter.name for parameter in given][: len(wanted)] == [name for name, _, _ in wanted]
    for parameter, (_, has_default, default) in zip(given, wanted, strict=False):
        if has_default:
            value = parameter.default
            assert str(int(value) if isinstance(value, IntEnum) else repr(value)) == default
    assert all(parameter.default is not parameter.empty for parameter in given[len(wanted) :])


@pytest.mark.parametrize(("name", "member", "value"), DEFAULTS, ids=[f"{n}.{m}" for n, m, _ in DEFAULTS])
def test_the_attribute_begins_as_documented(name: str, member: str, value: Any) -> None:
    assert getattr(_instances()[name], member) == value


def test_the_aliases_are_members_of_the_type() -> None:
    assert trt.float32 is trt.DataType.FLOAT
    assert trt.bool is trt.DataType.BOOL
    assert trt.e8m0 is trt.DataType.E8M0


def test_the_version_is_one_that_others_can_compare() -> None:
    assert [int(part) for part in trt.__version__.split(".")][:3] == [11, 1, 0]


def test_value_types_are_the_engines_own() -> None:
    assert trt.Dims is dovetail.Dims
    assert trt.IPluginV3 is dovetail.IPluginV3
