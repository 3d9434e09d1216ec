"""Rule 1.4: what happens when a method fails: which failures end a build or a run, and how they are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as trt
from tests.conformance.contract.authors import (
    Messages,
    Plus,
    PlusCreator,
    breaking,
    build,
    details,
    load,
    one_plugin,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# what ends a build or a run: statuses other than 0, and exceptions


@pytest.mark.parametrize("method", ["configure_plugin", "set_tactic"])
@pytest.mark.parametrize("result", [-1, 3, RuntimeError("no")], ids=repr)
def test_failures_that_end_the_build(method: str, result: Any) -> None:
    with pytest.raises(trt.PluginError, match=rf"{method}[\s\S]*"):
        build(one_plugin(breaking(method, result)()))


@pytest.mark.parametrize("method", ["clone", "attach_to_context", "get_fields_to_serialize", "get_valid_tactics"])
def test_exceptions_that_end_the_build_name_the_method_and_the_line(method: str) -> None:
    with pytest.raises(trt.PluginError, match=rf"{method} raised RuntimeError: oh no") as error:
        build(one_plugin(breaking(method, RuntimeError("oh no"))()))
    assert "authors.py:" in str(error.value)
    assert "Plus" in str(error.value)


@pytest.mark.parametrize("method", ["set_tactic", "on_shape_change", "attach_to_context", "enqueue", "clone"])
def test_exceptions_at_run_time_name_the_method_and_the_line(method: str) -> None:
    plan = build(one_plugin(Plus()))
    with pytest.raises(trt.PluginError, match=r"raised RuntimeError: oh no") as error:
        load(plan, PlusCreator(breaking(method, RuntimeError("oh no"))))(X)
    assert "authors.py:" in str(error.value)


def test_a_status_of_on_shape_change_ends_the_run() -> None:
    with pytest.raises(trt.PluginError, match="on_shape_change returned status 7"):
        load(build(one_plugin(Plus())), PlusCreator(breaking("on_shape_change", 7)))(X)


def test_the_next_run_after_a_failed_shape_change_tells_the_shapes_again() -> None:
    class Once(Plus):
        def on_shape_change(self, inp: Any, out: Any) -> None:
            super().on_shape_change(inp, out)
            if len(details(self.trace, "on_shape_change")) == 1:
                raise RuntimeError("not yet")

    trace: list[Any] = []
    engine = load(build(one_plugin(Plus())), PlusCreator(Once, trace))
    with pytest.raises(trt.PluginError, match="not yet"):
        engine(X)
    np.testing.assert_array_equal(engine(X), X + 1)
    assert len(details(trace, "on_shape_change")) == 2


def test_errors_of_a_build_are_recorded() -> None:
    recorder = trt.ErrorRecorder()
    builder = trt.Builder(Messages())
    builder.error_recorder = recorder
    network = builder.create_network()
    [y] = one_plugin(breaking("configure_plugin", 1)())(network)
    network.mark_output(y)
    with pytest.raises(trt.PluginError):
        builder.build_serialized_network(network, builder.create_builder_config())
    assert recorder.num_errors() == 1
    assert "configure_plugin" in recorder.get_error_desc(0)


def test_failing_output_types_reach_the_error_recorder() -> None:
    recorder = trt.ErrorRecorder()
    builder = trt.Builder(Messages())
    builder.error_recorder = recorder
    network = builder.create_network()
    with pytest.raises(trt.PluginError):
        one_plugin(breaking("get_output_data_types", ValueError("no types"))())(network)
    assert "get_output_data_types" in recorder.get_error_desc(0)


def test_a_destroy_that_raises_is_reported_and_stops_nothing(capfd: Any) -> None:
    class Stuck(Plus):
        def destroy(self) -> None:
            super().destroy()
            raise RuntimeError("cannot let go")

    logger, trace = Messages(), []
    plan = build(one_plugin(Stuck(1.0, trace)), logger=logger)
    assert "cannot let go" in logger.text() + capfd.readouterr().err
    engine = load(plan, PlusCreator(Stuck, trace))
    np.testing.assert_array_equal(engine(X), X + 1)
    engine.close()
    import gc

    del engine
    gc.collect()
    made = {n for n, m, _ in trace if m == "get_capability_interface"}
    assert len(made - {n for n, m, _ in trace if m == "destroy"}) == 1  # the user's own
