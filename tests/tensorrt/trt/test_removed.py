"""Names of version 8: they are not there, and the message says what is."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages, build, make_network


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    logger = KeptMessages()
    builder, network = make_network(logger)
    engine = build(logger)
    return {
        "Builder": builder,
        "IBuilderConfig": builder.create_builder_config(),
        "ICudaEngine": engine,
        "IExecutionContext": engine.create_execution_context(),
        "INetworkDefinition": network,
        "Runtime": trt.Runtime(logger),
    }


@pytest.mark.parametrize(
    ("kind", "name", "fix"),
    [
        ("Builder", "build_engine", "build_serialized_network and Runtime.deserialize_cuda_engine"),
        ("IBuilderConfig", "max_workspace_size", "set_memory_pool_limit"),
        ("ICudaEngine", "num_bindings", "num_io_tensors"),
        ("IExecutionContext", "execute_async_v2", "set_tensor_address and execute_async_v3"),
        ("INetworkDefinition", "add_fully_connected", "add_matrix_multiply"),
    ],
)
def test_a_removed_name_says_what_took_its_place(objects: dict[str, Any], kind: str, name: str, fix: str) -> None:
    assert not hasattr(objects[kind], name)
    text = f"'{kind}' object has no attribute '{name}': it is of version 8, and version 10 removed it"
    with pytest.raises(AttributeError, match=rf"{text}\n  fix: use {fix}"):
        getattr(objects[kind], name)


def test_a_removed_name_cannot_be_set(objects: dict[str, Any]) -> None:
    with pytest.raises(AttributeError, match=r"max_workspace_size.*\n  fix: use set_memory_pool_limit"):
        objects["IBuilderConfig"].max_workspace_size = 1 << 30
    with pytest.raises(AttributeError, match=r"fp16_mode.*\n  fix: use set_flag"):
        objects["Builder"].fp16_mode = True
    assert not hasattr(objects["IBuilderConfig"], "max_workspace_size")


@pytest.mark.parametrize("kind", ["Builder", "ICudaEngine", "INetworkDefinition", "Runtime"])
def test_any_other_name_is_missing_as_ever(objects: dict[str, Any], kind: str) -> None:
    with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute 'nothing'$"):
        _ = objects[kind].nothing


def test_everything_that_takes_the_place_of_something_is_there(objects: dict[str, Any]) -> None:
    from dovetail_tensorrt.trt.removed import _REPLACED

    known = {name for each in objects.values() for name in dir(each)}
    for name, instead in _REPLACED.items():
        if instead[0].islower() and "_" in instead.split()[0]:
            assert instead.split()[0].partition("(")[0].strip(",") in known, name
