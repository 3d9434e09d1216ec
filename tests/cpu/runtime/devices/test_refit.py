"""New weights on a device that packs them: a weight that is not packed again, or wrongly, gives wrong numbers."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dovetail as dt
from dovetail.errors import ProviderError, UsageError
from dovetail.provider.interfaces import LoadedPartition, RefitMode
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import X, build, expected, make_model

RNG = np.random.default_rng(3)
OLD, NEW = ({name: RNG.standard_normal((8, 8)).astype(np.float32) for name in ("V", "W")} for _ in range(2))


def _model(weights: dict[str, Any]) -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "V"], ["c"], name="second"),
        helper.make_node("Add", ["c", "V"], ["y"], name="add"),
    ]
    return make_model(nodes, {"x": [8, 8]}, {"y": [8, 8]}, weights)


Y = RNG.standard_normal((8, 8)).astype(np.float32)


def _build(*flags: dt.BuilderFlag) -> dt.Engine:
    config = dt.BuilderConfig()
    for flag in flags or (dt.BuilderFlag.REFIT,):
        config.set_flag(flag)
    return build(_model(OLD), config=config)


def _refit(engine: dt.Engine, **weights: Any) -> None:
    refitter = dt.Refitter(engine)
    for name, array in weights.items():
        refitter.set_named_weights(name, array)
    refitter.refit_cuda_engine()


KINDS = pytest.mark.parametrize("compiles", [False, True], ids=["kernels", "partition"])
MODES = pytest.mark.parametrize("mode", [RefitMode.IN_PLACE, RefitMode.RECREATE])


@KINDS
@MODES
@pytest.mark.parametrize("packs", [False, True])
def test_new_weights_are_used(compiles: bool, mode: str, packs: bool) -> None:
    with host_device(compiles=compiles, packs=packs, refit_mode=mode):
        engine = _build()
        assert bool(engine.manifest.packed) == packs
        np.testing.assert_allclose(engine(Y), expected(_model(OLD), Y), rtol=1e-5)
        _refit(engine, **NEW)
        np.testing.assert_allclose(engine(Y), expected(_model(NEW), Y), rtol=1e-5)
        _refit(engine, W=OLD["W"])
        np.testing.assert_allclose(engine(Y), expected(_model({**NEW, "W": OLD["W"]}), Y), rtol=1e-5)


def test_refits_leave_nothing_of_the_partitions_of_before() -> None:
    with host_device(compiles=True, refit_mode=RefitMode.RECREATE):
        engine = _build()
        before = _count_partitions()
        for _ in range(5):
            _refit(engine, W=NEW["W"])
            engine(Y)
        assert _count_partitions() <= before


def _count_partitions() -> int:
    gc.collect()
    return sum(isinstance(each, LoadedPartition) for each in gc.get_objects())


@KINDS
def test_a_captured_graph_is_not_replayed_with_old_weights(compiles: bool) -> None:
    with host_device(compiles=compiles, packs=True) as device:
        engine = _build()
        for weights in (OLD, NEW, OLD):
            _refit(engine, **weights)
            for _ in range(4):
                np.testing.assert_allclose(engine(Y), expected(_model(weights), Y), rtol=1e-5)
        assert device.statistics.captures > 0


@KINDS
def test_a_refitted_engine_is_saved_with_what_was_packed_again(compiles: bool, tmp_path: Path) -> None:
    with host_device(compiles=compiles, packs=True):
        engine = _build()
        _refit(engine, **NEW)
        engine.save(tmp_path / "plan")
        np.testing.assert_allclose(dt.load(tmp_path / "plan")(Y), expected(_model(NEW), Y), rtol=1e-5)


@KINDS
@MODES
def test_a_stripped_plan_gets_its_packed_weights_by_packing(compiles: bool, mode: str, tmp_path: Path) -> None:
    with host_device(compiles=compiles, packs=True, refit_mode=mode):
        _build(dt.BuilderFlag.STRIP_PLAN).save(tmp_path / "plan")
        engine = dt.load(tmp_path / "plan")
        stripped = {name for name, record in engine.manifest.blobs.items() if record.stripped}
        assert stripped == {"V", "W", *engine.manifest.packed}
        assert dt.Refitter(engine).get_missing_weights() == ["V", "W"]
        with pytest.raises(UsageError, match="not in the plan"):
            engine(Y)
        _refit(engine, **NEW)
        np.testing.assert_allclose(engine(Y), expected(_model(NEW), Y), rtol=1e-5)


def test_a_plan_that_is_not_for_refit_has_the_packed_weight_alone() -> None:
    with host_device(packs=True, ops=["MatMul"]):
        engine = build(make_model([helper.make_node("MatMul", ["x", "W"], ["y"])], {"x": [3, 8]}, {"y": None}, OLD))
        assert set(engine.manifest.blobs) & {"W", "packed:W"} == {"packed:W"}
        assert engine.manifest.packed["packed:W"].sources == {"W": ""}
        np.testing.assert_allclose(engine(X), X @ OLD["W"], rtol=1e-5)


@KINDS
def test_a_weight_that_is_packed_in_another_way_gives_other_numbers(compiles: bool) -> None:
    """What the tests above would see if a weight was not transposed again."""
    with host_device(compiles=compiles, packs=True) as device:
        engine = _build()
        device.pack_weight = lambda recipe, sources: next(iter(sources.values()))  # type: ignore[method-assign]
        _refit(engine, **NEW)
        assert not np.allclose(engine(Y), expected(_model(NEW), Y))


def _give_other_shape(device: HostDevice) -> None:
    device.pack_weight = lambda recipe, sources: np.zeros(3, np.float32)  # type: ignore[method-assign]


def _raise(device: HostDevice) -> None:
    from dataclasses import replace

    device.options = replace(device.options, raises_in=["pack_weight"])


@pytest.mark.parametrize(
    ("spoil", "message"), [(_give_other_shape, "another type or shape than the build"), (_raise, "pack_weight raised")]
)
@KINDS
def test_a_provider_that_cannot_pack_leaves_the_engine_as_it_was(compiles: bool, spoil: Any, message: str) -> None:
    with host_device(compiles=compiles, packs=True) as device:
        engine = _build()
        spoil(device)
        with pytest.raises(ProviderError, match=message):
            _refit(engine, **NEW)
        np.testing.assert_allclose(engine(Y), expected(_model(OLD), Y), rtol=1e-5)


def test_a_partition_that_fails_to_take_a_weight_is_named() -> None:
    from dataclasses import replace

    with host_device(compiles=True) as device:
        engine = _build()
        device.options = replace(device.options, raises_in=["refit"])
        with pytest.raises(ProviderError, match=r"'host_device'.*refit of weight"):
            _refit(engine, **NEW)


@KINDS
def test_each_device_of_a_provider_packs_its_own(compiles: bool) -> None:
    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    config.layer_providers = {"first": "host_device", "second": "host_device:1"}
    with host_device(compiles=compiles, packs=True, num_devices=2):
        engine = build(_model(OLD), "host_device", "host_device:1", config=config)
        packers = {record.provider for record in engine.manifest.packed.values()}
        assert packers == {"host_device", "host_device:1"}
        _refit(engine, **NEW)
        np.testing.assert_allclose(engine(Y), expected(_model(NEW), Y), rtol=1e-5)


def test_a_source_that_the_network_does_not_have_is_refused() -> None:
    from dataclasses import replace as change

    with host_device(packs=True) as device:
        built = device.build_kernel

        def rename(request: Any, context: Any) -> Any:
            kernel = built(request, context)
            weights = {slot: change(weight, sources=("ghost",)) for slot, weight in kernel.weights.items()}
            return change(kernel, weights=weights)

        device.build_kernel = rename  # type: ignore[method-assign]
        with pytest.raises(ProviderError, match=r"step 'first'.*names a source.*'ghost'"):
            _build()
