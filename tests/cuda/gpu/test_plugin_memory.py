"""What plugins take from PyTorch and CuPy while they are captured stays theirs in the replays, and nobody else's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.support.plugins import ScalePlugin

torch: Any = pytest.importorskip("torch", reason="needs PyTorch with CUDA")
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy")

SHAPE = (256, 1024)
X = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)


class TorchTwice(ScalePlugin):
    """Takes memory of PyTorch for what lies between."""

    formats = (dt.TensorFormat.LINEAR,)
    types = (dt.float32,)
    preferred_memory = "cuda"

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target = (torch.as_tensor(_open(each), device="cuda") for each in (inputs[0], outputs[0]))
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            between = source + 1.0
            target.copy_(between + between)


class CupyTwice(TorchTwice):
    """Takes memory of CuPy for what lies between."""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target = (_open(each) for each in (inputs[0], outputs[0]))
        with cupy.cuda.ExternalStream(stream):
            between = source + cupy.float32(1.0)
            cupy.copyto(target, between + between)


class CopyingTwice(TorchTwice):
    """Copies from the host to memory of CuPy, which cannot be captured."""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        source, target = (_open(each) for each in (inputs[0], outputs[0]))
        with cupy.cuda.ExternalStream(stream):
            cupy.copyto(target, (source + cupy.asarray(np.ones(1, np.float32))) * cupy.float32(2))


def _open(address: int) -> Any:
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, X.nbytes, None), 0)
    return cupy.ndarray(SHAPE, cupy.float32, memory)


def _engine(kind: type[ScalePlugin]) -> Any:
    class Creator(dt.IPluginCreatorV3One):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.plugin_version, self.plugin_namespace = "TestScale", "1", ""
            self.field_names = dt.PluginFieldCollection([])

        def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
            return kind(2.0)

    registry = dt.PluginRegistry()
    registry.register_creator(Creator())
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, SHAPE)
    h = network.add_activation(x, dt.ActivationType.RELU).get_output(0)
    layer = network.add_plugin_v3([h], [], kind(2.0))
    layer.name = "twice"
    network.mark_output(network.add_activation(layer.get_output(0), dt.ActivationType.RELU).get_output(0))
    config = builder.create_builder_config()
    config.providers = ["cuda", "cpu"]
    return dt.compile(network, config=config, registry=registry)


def _expect(x: Any) -> Any:
    return (np.maximum(x, 0) + 1) * 2


@pytest.mark.parametrize("kind", [TorchTwice, CupyTwice])
def test_memory_that_a_replay_uses_belongs_to_nobody_else(cuda: Any, kind: type[ScalePlugin]) -> None:
    context = _engine(kind).create_execution_context()
    for _ in range(3):
        np.testing.assert_allclose(context.run([X])[0], _expect(X), rtol=1e-6)
    assert [each.step for each in context.uncaptured_steps if each.step == "twice"] == []
    taken = [torch.full(SHAPE, 7.0, device="cuda") for _ in range(8)]
    also_taken = [cupy.full(SHAPE, 7.0, cupy.float32) for _ in range(8)]
    torch.cuda.synchronize()
    for scale in range(3):
        np.testing.assert_allclose(context.run([X * scale])[0], _expect(X * scale), rtol=1e-6)
    assert all(bool((each == 7.0).all()) for each in taken)
    assert all(bool((each == 7.0).all()) for each in also_taken)


def test_graphs_end_while_others_are_captured(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, enqueue, num_calls = _engine(TorchTwice), TorchTwice.enqueue, 0
    ending = engine.create_execution_context()
    for _ in range(3):
        ending.run([X])

    def end_another(self: Any, *arguments: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        enqueue(self, *arguments)
        if num_calls == 2:
            ending.close()

    monkeypatch.setattr(TorchTwice, "enqueue", end_another)
    context = engine.create_execution_context()
    for scale in range(4):
        np.testing.assert_allclose(context.run([X * scale])[0], _expect(X * scale), rtol=1e-6)
    assert num_calls == 2


def test_a_plugin_that_copies_from_the_host_runs_between_graphs(cuda: Any) -> None:
    context = _engine(CopyingTwice).create_execution_context()
    for scale in range(5):
        np.testing.assert_allclose(context.run([X * scale])[0], _expect(X * scale), rtol=1e-6)
    (reason,) = [each.reason for each in context.uncaptured_steps if each.step == "twice"]
    assert "failed while its stream was captured" in reason
