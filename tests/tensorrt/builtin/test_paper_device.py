"""Engines with built-in plugins on a CUDA device of paper: memory, streams, launches and captured graphs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton: make test-cuda has it", allow_module_level=True)

import dovetail as dt
from dovetail.types import DataType
from dovetail_tensorrt.builtin.device import memory
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import fake_cuda
from tests.cuda.host.interpreter import compile_fake
from tests.tensorrt.builtin.cases import CASES, mark_slow
from tests.tensorrt.builtin.interpreted import Array  # noqa: F401 - has Triton interpret
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, create, load_on_cuda, make_problem, make_registry, run_engine


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The provider 'cuda' over a driver of paper, which built-in plugins find too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(memory, "_compile", compile_fake)
    with fake_cuda(str(tmp_path / "kernels")) as (_, driver):
        monkeypatch.setattr(memory, "_find_driver", lambda: driver)
        memory._open_device.cache_clear()
        yield driver
        memory._open_device.cache_clear()


@pytest.mark.parametrize("name", mark_slow(CASES))
def test_an_engine_runs_the_kernels_of_a_plugin(name: str, paper: FakeDriver) -> None:
    problem = make_problem(CASES[name])
    engine = load_on_cuda(problem)
    assert [step.provider for step in engine.manifest.programs[0].steps if step.kind == "plugin"] == ["cuda"]
    expected = REFERENCES[problem.name](problem.inputs, problem.fields)
    for _ in range(3):  # plain, captured, replayed
        compare(run_engine(engine, problem), expected, dtype=problem.inputs[0].dtype)
    own = {variant[1] for variant in memory._open_device(0)._loaded}
    assert own
    assert own <= set(paper.launched)


def test_a_buffer_that_is_not_aligned_is_told(paper: FakeDriver) -> None:
    from dovetail.errors import PluginError
    from dovetail_tensorrt.builtin.device.launch import DeviceBuffer, KernelLaunch

    device = memory._open_device(0)
    paper.use_context(1000)
    place = paper.allocate(64)
    target = DeviceBuffer(place + 4, DataType.FLOAT)
    launch = KernelLaunch(module="indexing", function="fill_elements", arguments={"target": target}, grid=(1, 1, 1))
    with pytest.raises(PluginError, match=r"buffer 'target' of kernel fill_elements is not aligned"):
        device.run([launch], 0)


def test_shapes_that_change_have_workspace_enough(paper: FakeDriver) -> None:
    """An engine without a profile: the workspace of the suppression grows with the number of boxes."""
    network = dt.Builder().create_network()
    tensors = [network.add_input(name, dt.float32, (-1, -1, size)) for name, size in (("x0", 4), ("x1", 3))]
    case = CASES["nms"]
    layer = network.add_plugin_v3(tensors, [], create(Problem(case.name, dict(case.fields), [])))
    for number in range(4):
        layer.get_output(number).name = f"y{number}"
        network.mark_output(layer.get_output(number))
    config = dt.Builder().create_builder_config()
    config.providers = ["cuda", "cpu"]
    engine = dt.compile(network, config=config, registry=make_registry())
    rng = np.random.default_rng(0)
    for images, boxes in ((1, 4), (3, 40), (2, 7), (1, 200)):
        arrays = [rng.uniform(0, 9, (images, boxes, 4)), rng.permutation(images * boxes * 3).reshape(images, boxes, 3)]
        arrays[1] = arrays[1] / arrays[1].size
        problem = Problem(case.name, dict(case.fields), [array.astype(np.float32) for array in arrays])
        compare(run_engine(engine, problem), create(problem).compute(problem.inputs, []), dtype=np.float32)
