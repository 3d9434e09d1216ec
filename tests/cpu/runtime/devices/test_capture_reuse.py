"""Random sequences of runs over captured graphs, compared with the same runs on the CPU."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.testing import HostDevice, host_device
from tests.support.device_models import WEIGHT, build, chain, make_model

SEARCHES = int(os.environ.get("DOVETAIL_SEARCHES", "5"))
"""Random programs per model; set it higher for a longer search."""


def _slice_model() -> Any:
    """x @ W, then the rows from ``start`` to the end, which are known only from the values of an input."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="matmul"),
        helper.make_node("Slice", ["a", "start", "end"], ["b"], name="slice"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    kinds = {"start": TensorProto.INT64, "end": TensorProto.INT64}
    inputs = {"x": ["n", 8], "start": [1], "end": [1]}
    return make_model(nodes, inputs, {"y": None}, {"W": WEIGHT}, types=kinds)


class Program:
    """Runs of several contexts and threads over buffers that are used again."""

    def __init__(self, device: HostDevice, model: Any, seed: int) -> None:
        self.rng, self.device, self.model = random.Random(seed), device, model
        config = dt.BuilderConfig()
        config.set_flag(dt.BuilderFlag.REFIT)
        self.engine = build(model, config=config)
        self.reference = dt.compile(model, providers=["cpu"], config=config)
        self.contexts = [self.engine.create_execution_context() for _ in range(2)]
        self.sources = {n: [device.empty((n, 8), np.float32) for _ in range(2)] for n in (1, 3, 4)}
        self.targets = {n: [device.empty((n, 8), np.float32) for _ in range(2)] for n in (1, 3, 4)}
        self.streams = [0, *(stream.handle for stream in self._make_streams())]
        self.has_shape_inputs = len(self.engine.manifest.inputs) > 1
        self.scale = np.float32(1)

    def _make_streams(self) -> list[Any]:
        self.kept = [self.device.create_stream() for _ in range(2)]
        return [stream for stream in self.kept if stream is not None]

    def step(self) -> None:
        """Run once, sometimes after the stream, the context or the weights changed."""
        choice = self.rng.random()
        number = self.rng.randrange(2)
        if choice < 0.05:
            self.contexts[number].close()
            self.contexts[number] = self.engine.create_execution_context()
        elif choice < 0.15:
            self.contexts[number].use_streams({"host_device": self.rng.choice(self.streams)})
        elif choice < 0.2:
            self._refit()
        if choice < 0.4:
            _in_thread(lambda: self._run(self.contexts[number]))
        else:
            self._run(self.contexts[number])

    def _refit(self) -> None:
        self.scale = np.float32(self.rng.uniform(0.5, 2))
        for engine in (self.engine, self.reference):
            refitter = dt.Refitter(engine)
            refitter.set_named_weights("W", WEIGHT * self.scale)
            refitter.refit_cuda_engine()

    def _run(self, context: Any) -> None:
        rows = self.rng.choice((1, 3, 4))
        source, target = self.rng.choice(self.sources[rows]), self.rng.choice(self.targets[rows])
        x = np.random.default_rng(self.rng.randrange(2**32)).standard_normal((rows, 8)).astype(np.float32)
        source.write(x)
        others = [np.array([self.rng.randrange(rows)]), np.array([rows])] if self.has_shape_inputs else []
        wanted = self.reference(x, *others)
        if self.has_shape_inputs or self.rng.random() < 0.3:
            (result,) = context.run([source, *others])
            result = result if isinstance(result, np.ndarray) else result.numpy()
        else:
            target.write(np.full((rows, 8), np.nan, np.float32))
            context.run([source], {"y": target})
            result = self.device.to_host(target)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def _in_thread(work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test's own thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("make", [chain, _slice_model])
def test_random_programs_compute_the_same_with_graphs(make: Callable[[], Any]) -> None:
    replays = 0
    for seed in range(SEARCHES):
        with host_device() as device:
            program = Program(device, make(), seed)
            for _ in range(60):
                program.step()
            replays += device.statistics.replays
    print(f"{60 * SEARCHES} runs, {replays} replays")
    assert replays or make is not chain
