"""What ``enqueue`` returns: None and 0 are success; any other status fails the run, and at build the tactic."""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import decode_manifest
from dovetail.testing import host_device
from tests.support.plugins import PlainCreator, ScalePlugin, build_engine


class Code(enum.IntEnum):
    SUCCESS = 0
    ILLEGAL_ADDRESS = 700


class Plain(enum.Enum):
    DONE = 0
    FAILED = 2


FAILURES = [
    *(1, -1, np.int32(3), np.int64(-7), True, False, np.array(2), np.array([4]), 1.0, float("nan"), np.float32(0.5)),
    *(Code.ILLEGAL_ADDRESS, (Code.ILLEGAL_ADDRESS,), Plain.FAILED, ctypes.c_int(3)),
]
SUCCESSES = [
    *(None, 0, np.int32(0), 0.0, "done", np.ones(3), ()),
    *(Code.SUCCESS, (Code.SUCCESS,), Plain.DONE, ctypes.c_int(0)),
]
X = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)


class Reporting(ScalePlugin):
    """Returns what the class says, and does nothing when that is a failure."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    tactics: tuple[int, ...] = ()
    returned: Any = None
    is_failing = False

    def enqueue(self, *args: Any) -> Any:
        if not type(self).is_failing:
            super().enqueue(*args)
        return type(self).returned


@pytest.fixture
def plugin_class() -> type[Reporting]:
    return type("Reporting", (Reporting,), {})


def _engine(plugin_class: type[Reporting]) -> Any:
    plan, runtime = build_engine(plugin_class(2.0), PlainCreator("TestScale", plugin_class))
    return runtime.deserialize_cuda_engine(plan)


def _fail(plugin_class: type[Reporting], status: Any) -> None:
    plugin_class.returned, plugin_class.is_failing = status, True


def _mend(plugin_class: type[Reporting]) -> None:
    plugin_class.returned, plugin_class.is_failing = None, False


@pytest.mark.parametrize("status", FAILURES, ids=repr)
@pytest.mark.parametrize("earlier_runs", [0, 1, 3])
def test_a_failure_status_fails_the_run(plugin_class: type[Reporting], status: Any, earlier_runs: int) -> None:
    engine = _engine(plugin_class)
    for _ in range(earlier_runs):
        np.testing.assert_array_equal(engine(X), 2 * X)
    _fail(plugin_class, status)
    with pytest.raises(dt.PluginError, match="enqueue returned status") as caught:
        engine(X)
    assert "TestScale" in str(caught.value)
    assert "0 or None" in str(caught.value)
    _mend(plugin_class)
    np.testing.assert_array_equal(engine(X), 2 * X)


@pytest.mark.parametrize("returned", SUCCESSES, ids=repr)
def test_what_is_no_failure_runs(plugin_class: type[Reporting], returned: Any) -> None:
    engine = _engine(plugin_class)
    plugin_class.returned = returned
    for _ in range(3):
        np.testing.assert_array_equal(engine(X), 2 * X)


@pytest.mark.parametrize("earlier_runs", [0, 1, 3])
def test_a_failure_status_fails_a_run_by_address(plugin_class: type[Reporting], earlier_runs: int) -> None:
    context, x, y = _engine(plugin_class).create_execution_context(), X.copy(), np.zeros_like(X)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    for _ in range(earlier_runs):
        assert context.execute_async_v3(0)
    y[...] = -5
    _fail(plugin_class, 4)
    for _ in range(2):
        with pytest.raises(dt.PluginError, match="enqueue returned status 4"):
            context.execute_async_v3(0)
    assert (y == -5).all()
    assert context.error_recorder.num_errors() == 2


def test_a_failure_status_in_a_loop_and_beside_other_steps(plugin_class: type[Reporting]) -> None:
    floats, bools, ints = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    body = helper.make_graph(
        [
            helper.make_node("TestScale", ["state"], ["next"], domain="test", factor=2.0),
            helper.make_node("Identity", ["was"], ["going"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", ints, []),
            helper.make_tensor_value_info("was", bools, []),
            helper.make_tensor_value_info("state", floats, [3]),
        ],
        [helper.make_tensor_value_info("going", bools, []), helper.make_tensor_value_info("next", floats, [3])],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Loop", ["m", "", "a"], ["b"], body=body),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "loop",
        [helper.make_tensor_value_info("x", floats, [3])],
        [helper.make_tensor_value_info("y", floats, [3])],
        [helper.make_tensor("m", ints, [], [2])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", plugin_class), "")
    engine = dt.compile(helper.make_model(graph, opset_imports=imports, ir_version=10), registry=registry)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(engine(x), 4 * x)
    _fail(plugin_class, 2)
    with pytest.raises(dt.PluginError, match="enqueue returned status 2"):
        engine(x)
    _mend(plugin_class)
    np.testing.assert_array_equal(engine(x), 4 * x)


# at build


def _rows(plugin: Any) -> dict[int, Any]:
    plan, _ = build_engine(plugin, PlainCreator("TestScale", type(plugin)))
    return {row.tactic: row for row in decode_manifest(PlanFile.from_bytes(plan).manifest).tuning[0].candidates}


@pytest.mark.parametrize("status", FAILURES, ids=repr)
def test_failed_tactics_do_not_outvote_the_right_one(status: Any) -> None:
    class Voting(Reporting):
        tactics = (1, 2, 3, 4)

        def enqueue(self, *args: Any) -> Any:
            return ScalePlugin.enqueue(self, *args) if self.tactic == 3 else status

    rows = _rows(Voting(2.0))
    assert rows[3].chosen
    assert {rows[tactic].status for tactic in (1, 2, 4)} == {"failed"}
    assert "enqueue returned status" in rows[1].reason


def test_tactics_that_write_nothing_fail() -> None:
    class Idle(Reporting):
        tactics = (1, 2, 3, 4)

        def enqueue(self, *args: Any) -> None:
            if self.tactic in (1, 2):
                ScalePlugin.enqueue(self, *args)

    rows = _rows(Idle(2.0))
    assert rows[1].chosen or rows[2].chosen
    assert {rows[tactic].status for tactic in (3, 4)} == {"failed"}
    assert "wrote none of its outputs" in rows[3].reason


def test_when_every_tactic_returns_a_failure_the_build_fails() -> None:
    class Broken(Reporting):
        tactics = (1, 2)

        def enqueue(self, *args: Any) -> int:
            return 5

    with pytest.raises(dt.BuildError, match="every tactic failed") as caught:
        _rows(Broken(2.0))
    assert "enqueue returned status 5" in str(caught.value)


def test_a_failure_status_on_a_device(plugin_class: type[Reporting]) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("TestScale", ["a"], ["b"], domain="test", factor=2.0, name="scale"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "device", ports[:1], ports[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", plugin_class), "")
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    x = np.ones(3, np.float32)
    with host_device(name="status_device", ops=["Relu"]):
        engine = dt.compile(model, providers=["status_device", "cpu"], registry=registry)
        for _ in range(3):
            np.testing.assert_array_equal(engine(x), 2 * x)
        engine.close()
        engine = dt.compile(model, providers=["status_device", "cpu"], registry=registry)
        _fail(plugin_class, 9)
        with pytest.raises(dt.PluginError, match="enqueue returned status 9"):
            engine(x)
        engine.close()
        with pytest.raises(dt.PluginError, match=r"layer 'scale'.*enqueue returned status 9"):
            dt.compile(model, providers=["status_device", "cpu"], registry=registry)
