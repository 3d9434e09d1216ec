"""Rule 1.4: tactics, workspace, the timing cache, metadata."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import (
    LINEAR,
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


# tactics


class Tactical(Plus):
    """Formats and tactics that depend on each other."""

    formats = (LINEAR, trt.TensorFormat.HWC)

    def configure_plugin(self, inp: Any, out: Any) -> None:
        super().configure_plugin(inp, out)
        self.configured = inp[0].desc.format

    def get_valid_tactics(self) -> Any:
        super().get_valid_tactics()
        return [1, 2] if self.configured == LINEAR else [5]

    def enqueue(self, input_desc: Any, *rest: Any) -> None:
        assert self.tactic in ([1, 2] if input_desc[0].format == LINEAR else [5])
        super().enqueue(input_desc, *rest)


def test_tactics_are_asked_for_the_combination_that_was_configured() -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Tactical(1.0, trace), (1, 3, 2, 2)))
    assert {d[0] for d in details(trace, "enqueue")} == {1, 2, 5}
    x = np.ones((1, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(load(plan, PlusCreator(Tactical))(x), x + 1)


@pytest.mark.parametrize("tactics", [[0], [1, 1], [-3], ["1"], None, [1.5]], ids=repr)
def test_tactics_are_unique_positive_integers(tactics: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_valid_tactics"):
        build(one_plugin(breaking("get_valid_tactics", tactics)()))


@pytest.mark.parametrize("tactics", [(1, 2), np.array([1, 2], np.int32), [np.int64(1), np.int64(2)], range(1, 3)])
def test_tactics_may_come_in_any_sequence_of_integers(tactics: Any) -> None:
    class Sequenced(Plus):
        def get_valid_tactics(self) -> Any:
            return tactics

        def set_tactic(self, tactic: int) -> None:
            assert type(tactic) is int
            super().set_tactic(tactic)

    trace: list[Any] = []
    build(one_plugin(Sequenced(1.0, trace)))
    assert set(details(trace, "set_tactic")) == {1, 2}


def test_the_fastest_tactic_is_chosen_and_stored() -> None:
    import time

    class Racing(Plus):
        tactics = (1, 2)

        def compute(self, *args: Any) -> None:
            if self.tactic == 1:
                time.sleep(0.002)
            super().compute(*args)

    trace: list[Any] = []
    load(build(one_plugin(Racing())), PlusCreator(Racing, trace))
    assert details(trace, "set_tactic") == [2]


# workspace


class Scratch(Plus):
    """Needs room for its input in the workspace."""

    def get_workspace_size(self, inp: Any, out: Any) -> int:
        super().get_workspace_size(inp, out)
        return 4 * int(np.prod(tuple(inp[0].max)))

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.note("workspace", workspace)
        x, copy = as_array(inputs[0], input_desc[0]), as_array(workspace, input_desc[0])
        copy[...] = x
        as_array(outputs[0], output_desc[0])[...] = copy + np.float32(self.addend)


def test_workspace_is_asked_for_the_maximum_and_suffices_for_every_shape() -> None:
    trace: list[Any] = []
    plan = build(one_plugin(Scratch(1.0, trace), (-1, 3)), profiles=[{"x": ((1, 3), (2, 3), (500, 3))}])
    assert {tuple(d[0][0].max) for d in details(trace, "get_workspace_size")} == {(500, 3)}
    engine = load(plan, PlusCreator(Scratch))
    for rows in (1, 500, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), x + 1)


def test_without_workspace_the_address_is_null() -> None:
    trace: list[Any] = []
    load(build(one_plugin(Plus())), PlusCreator(Plus, trace))(X)
    assert details(trace, "enqueue")[0][-1] == 0


def test_a_limit_on_workspace_refuses_what_needs_more() -> None:
    with pytest.raises(trt.BuildError, match="bytes of workspace"):
        build(
            one_plugin(Scratch(), (64, 64)),
            configure=lambda c: c.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1024),
        )


@pytest.mark.parametrize("result", [RuntimeError("no idea"), None, -1, "8", 2.5], ids=repr)
def test_a_workspace_size_that_is_no_number_of_bytes_fails_the_build(result: Any) -> None:
    with pytest.raises(trt.PluginError, match="get_workspace_size"):
        build(one_plugin(breaking("get_workspace_size", result)()))


def test_a_strict_build_takes_no_broken_workspace() -> None:
    def strict(config: Any) -> None:
        config.strict = True

    with pytest.raises(trt.PluginError, match="get_workspace_size"):
        build(one_plugin(breaking("get_workspace_size", RuntimeError("no idea"))()), configure=strict)


def test_workspace_sizes_of_numpy_integers() -> None:
    class Numpy(Scratch):
        def get_workspace_size(self, inp: Any, out: Any) -> Any:
            return np.int64(super().get_workspace_size(inp, out))

    np.testing.assert_array_equal(load(build(one_plugin(Numpy())), PlusCreator(Numpy))(X), X + 1)


# timing cache


class Timed(Plus):
    tactics = (1, 2)


def _count_runs(cache_id: Any, cache: Any, addend: float = 1.0) -> int:
    trace: list[Any] = []
    plugin = Timed(addend, trace)
    if cache_id != "unset":
        plugin.timing_cache_id = cache_id

    def use(config: Any) -> None:
        assert config.set_timing_cache(cache, False)

    build(one_plugin(plugin), configure=use)
    return len(details(trace, "enqueue"))


@pytest.mark.parametrize("cache_id", ["", "addend=1"])
def test_an_id_lets_later_builds_skip_timing(cache_id: str) -> None:
    config = trt.Builder(Messages()).create_builder_config()
    cache = config.create_timing_cache(b"")
    assert _count_runs(cache_id, cache) > 1
    assert _count_runs(cache_id, cache) == 1
    again = config.create_timing_cache(bytes(cache.serialize()))
    assert _count_runs(cache_id, again) == 1
    assert _count_runs(cache_id + "other", again) > 1


@pytest.mark.parametrize("cache_id", [None, "unset"])
def test_without_an_id_every_build_times_again(cache_id: Any) -> None:
    cache = trt.BuilderConfig().create_timing_cache(b"")
    assert _count_runs(cache_id, cache) > 0
    assert _count_runs(cache_id, cache) > 0


def test_the_key_has_shapes_formats_and_the_plugins_identity() -> None:
    cache = trt.BuilderConfig().create_timing_cache(b"")
    _count_runs("mine", cache)
    keys = cache.queryKeys()
    assert len(keys) == 2
    assert all(part in keys[0] for part in ("Plus", "2x3", "FLOAT", "LINEAR", "mine"))


# metadata


def test_metadata_reaches_the_inspector() -> None:
    plugin = Plus()
    plugin.metadata_string = "addend is one"

    def detailed(config: Any) -> None:
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    engine = load(build(one_plugin(plugin), configure=detailed), PlusCreator())
    inspector = engine.create_engine_inspector()
    layers = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))["Layers"]
    assert layers[0]["Metadata"] == "addend is one"
    assert "addend is one" in inspector.get_layer_information(0, trt.LayerInformationFormat.ONELINE)
