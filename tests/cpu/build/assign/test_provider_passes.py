"""Passes of providers: their own rewrites, which are checked, and the fusions of Dovetail for whoever wants them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

import dovetail as dt
from dovetail.errors import ProviderError
from dovetail.loggers import Severity
from dovetail.provider.interfaces import BuildContext, BuiltPartition, RewriteContext
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import WEIGHT, X, build, chain, expected, make_model, steps_of


class _Listener(dt.ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        if severity == Severity.VERBOSE:
            self.lines.append(msg)


Rewrite = Callable[[ir.Model, RewriteContext], Sequence[str]]


def _set_rewrite(device: HostDevice, rewrite: Rewrite) -> None:
    device.rewrite = rewrite  # type: ignore[method-assign]


def test_a_provider_rewrites_its_nodes_and_is_asked_again() -> None:
    listener = _Listener()
    with host_device(rewrites=True):
        engine = build(chain(), logger=listener)
        assert "LeakyRelu@host_device" in steps_of(engine)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)
    assert "provider 'host_device': rewrite: Relu 'relu' became LeakyRelu" in listener.lines


def test_nodes_of_others_are_not_its_own() -> None:
    with host_device(rewrites=True, ops=["MatMul", "LeakyRelu"]):
        engine = build(chain())
        assert "Relu@cpu" in steps_of(engine)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)


def test_a_second_device_rewrites_what_is_its_own() -> None:
    config = dt.BuilderConfig()
    config.layer_providers = {"relu": "host_device:1"}
    with host_device(rewrites=True, num_devices=2):
        engine = build(chain(), "host_device", "host_device:1", config=config)
        assert "LeakyRelu@host_device:1" in steps_of(engine)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)


def test_what_it_writes_and_does_not_take_goes_to_others() -> None:
    with host_device(rewrites=True, ops=["MatMul", "Relu"]):
        engine = build(chain())
        assert "LeakyRelu@cpu" in steps_of(engine)
        np.testing.assert_allclose(engine(X), expected(chain(), X), rtol=1e-5)


def test_a_rewrite_can_be_left_out() -> None:
    config = dt.BuilderConfig()
    config.passes_off = ["rewrite"]
    with host_device(rewrites=True):
        assert "Relu@host_device" in steps_of(build(chain(), config=config))


def test_a_partition_is_compiled_from_what_was_rewritten() -> None:
    with host_device(rewrites=True, compiles=True) as device:
        seen = _watch(device)
        np.testing.assert_allclose(build(chain())(X), expected(chain(), X), rtol=1e-5)
    assert "LeakyRelu" in seen
    assert "Relu" not in seen


def _watch(device: HostDevice) -> list[str]:
    """The operators in the partitions that it compiles from now on."""
    seen: list[str] = []
    original = device.build_partition

    def build_partition(model: ir.Model, context: BuildContext) -> BuiltPartition:
        seen.extend(node.op_type for node in model.graph)
        return original(model, context)

    device.build_partition = build_partition  # type: ignore[method-assign]
    return seen


def _drop_a_value(model: ir.Model, context: RewriteContext) -> Sequence[str]:
    """Leave a node that reads what nobody makes."""
    node = next(node for node in model.graph if node.op_type == "Softmax")
    node.replace_input_with(0, ir.Value(name="nothing"))
    return ["made a hole"]


def _rename_the_output(model: ir.Model, context: RewriteContext) -> Sequence[str]:
    model.graph.outputs[0].name = "other"
    return ["renamed"]


@pytest.mark.parametrize("rewrite", [_drop_a_value, _rename_the_output])
def test_a_rewrite_that_leaves_a_broken_model_is_named(rewrite: Rewrite) -> None:
    with host_device() as device:
        _set_rewrite(device, rewrite)
        with pytest.raises(ProviderError, match=r"'host_device': rewrite left a model that is not whole"):
            build(chain())


@pytest.mark.parametrize("lines", [None, "one text", 3])
def test_a_rewrite_that_tells_nothing_is_named(lines: Any) -> None:
    with host_device() as device:
        _set_rewrite(device, lambda model, context: lines)
        with pytest.raises(ProviderError, match="'host_device': rewrite gave no lines"):
            build(chain())


def test_fusions_are_for_providers_that_compile_too() -> None:
    """Gelu as exporters write it is one node in the partition, unless the provider fuses by itself."""
    half, one, root = (np.array(n, np.float32) for n in (0.5, 1.0, np.sqrt(2.0)))
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"]),
        helper.make_node("Div", ["a", "root"], ["b"]),
        helper.make_node("Erf", ["b"], ["c"]),
        helper.make_node("Add", ["c", "one"], ["d"]),
        helper.make_node("Mul", ["a", "d"], ["e"]),
        helper.make_node("Mul", ["e", "half"], ["y"]),
    ]
    weights = {"W": WEIGHT, "half": half, "one": one, "root": root}
    model = make_model(nodes, {"x": ["n", 8]}, {"y": ["n", 8]}, weights)
    for fuses in (True, False):
        with host_device(compiles=True) as device:
            device.fuses = fuses
            seen = _watch(device)
            np.testing.assert_allclose(build(model)(X), expected(model, X), rtol=1e-4, atol=1e-5)
            assert ("Gelu" in seen, "Erf" in seen) == (fuses, not fuses)


def test_a_rewrite_is_told_which_weights_stay() -> None:
    seen: list[frozenset[str]] = []

    def rewrite(model: ir.Model, context: RewriteContext) -> Sequence[str]:
        seen.append(context.keep)
        return []

    config = dt.BuilderConfig()
    config.set_flag(dt.BuilderFlag.REFIT)
    with host_device() as device:
        _set_rewrite(device, rewrite)
        build(chain())
        build(chain(), config=config)
    assert seen[0] == frozenset()
    assert "W" in seen[-1]
