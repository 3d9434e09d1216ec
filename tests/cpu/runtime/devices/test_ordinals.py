"""Several devices of one provider in one plan: each has its own stream, arena and weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.plan.compatibility import check_plan
from dovetail.provider.loader import get_provider
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import WEIGHT, X, build, chain, expected, make_model, steps_of

FIRST, SECOND = "host_device", "host_device:1"


def _second() -> HostDevice:
    device = get_provider(SECOND)
    assert isinstance(device, HostDevice)
    return device


def _build(shapes: dict[str, object] | None = None) -> dt.Engine:
    config = dt.BuilderConfig()
    for layer in ("softmax", "add"):
        config.layer_providers[layer] = SECOND
    return build(chain(), FIRST, SECOND, config=config, **({"shapes": shapes} if shapes else {}))


@pytest.mark.parametrize("has_bounds", [True, False])
def test_a_plan_over_two_devices(tmp_path: Path, has_bounds: bool) -> None:
    with host_device(num_devices=2) as device:
        engine = _build({"x": ((1, 8), (3, 8), (5, 8))} if has_bounds else None)
        engine.save(tmp_path / "plan")
        engine = dt.load(tmp_path / "plan")
        (program,) = engine.manifest.programs
        assert [record.provider for record in engine.manifest.devices] == ["cpu", SECOND, FIRST]
        assert {step.provider for step in program.steps if step.kind == "kernel"} == {FIRST, SECOND}
        assert set(program.arenas) == ({FIRST, SECOND} if has_bounds else set())
        for rows in (3, 5, 3, 3, 3):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(engine(x), expected(chain(), x), rtol=1e-6)
        assert device.statistics.captures > 0
        assert _second().statistics.captures > 0
        assert (device.id, _second().id) == (FIRST, SECOND)
        assert check_plan(tmp_path / "plan").verdict == "optimal"


@pytest.mark.parametrize("are_peers", [True, False])
def test_copies_between_them(are_peers: bool) -> None:
    with host_device(num_devices=2, peers=[FIRST, SECOND] if are_peers else []):
        engine = _build()
        between = f"Copy b {FIRST} -> {SECOND}"
        assert (between in [step.name for step in engine.manifest.programs[0].steps]) == are_peers
        for _ in range(4):
            np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-6)


def test_weights_lie_on_the_device_that_reads_them() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="one"),
        helper.make_node("MatMul", ["a", "W"], ["y"], name="two"),
    ]
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]}, {"W": WEIGHT})
    config = dt.BuilderConfig()
    config.layer_providers["two"] = SECOND
    with host_device(num_devices=2):
        engine = build(model, FIRST, SECOND, config=config)
        weights = [value for value in engine.manifest.programs[0].values if value.kind == "constant"]
        assert {value.memory for value in weights} == {FIRST, SECOND}
        np.testing.assert_allclose(engine(X), expected(model, X), rtol=1e-5)


def test_arrays_of_one_are_not_arrays_of_the_other() -> None:
    with host_device(num_devices=2) as device:
        second = _second()
        assert second.import_array(device.to_device(X)) is None
        config = dt.BuilderConfig()
        config.layer_providers["*"] = SECOND
        config.io_memory = {"x": SECOND, "y": SECOND}
        engine = build(chain(), FIRST, SECOND, config=config)
        assert {step.partition("@")[2] for step in steps_of(engine)} == {SECOND}
        second.statistics.reset()
        np.testing.assert_allclose(engine(second.to_device(X)), expected(chain(), X), rtol=1e-6)
        assert second.statistics.copies_to_device == 0


def test_a_plugin_or_layer_for_a_device_that_is_not_there_names_those_that_are() -> None:
    with host_device(num_devices=2), pytest.raises(ProviderError, match="it has no device 2 here") as caught:
        build(chain(), FIRST, "host_device:2")
    assert caught.value.expected == "one of host_device, host_device:1"


def test_a_plan_for_a_device_that_is_gone_is_named(tmp_path: Path) -> None:
    with host_device(num_devices=2):
        _build().save(tmp_path / "plan")
    with host_device():
        assert check_plan(tmp_path / "plan").verdict == "rebuild"
        with pytest.raises(ProviderError, match=r"'host_device'.*no device 1 here"):
            dt.load(tmp_path / "plan")


def test_options_for_one_of_them() -> None:
    config = dt.BuilderConfig()
    config.provider_options = {"host_device:1": {"budget_bytes": "100"}, "host_device": {"budget_bytes": "200"}}
    with host_device(num_devices=2, cost_bytes=100):
        engine = build(chain(), FIRST, SECOND, config=config)
        placed = [step.provider for step in engine.manifest.programs[0].steps if step.kind == "kernel"]
        assert placed == [FIRST, FIRST, SECOND, "cpu"]
