"""Engines with built-in plugins on a CUDA device of paper: memory, streams, launches and captured graphs."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton: make test-cuda has it", allow_module_level=True)

from dovetail.types import DataType
from dovetail_tensorrt.builtin.device import memory
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import fake_cuda
from tests.cuda.host.interpreter import compile_fake
from tests.tensorrt.builtin.cases import CASES
from tests.tensorrt.builtin.interpreted import Array  # noqa: F401 - has Triton interpret
from tests.tensorrt.builtin.references import REFERENCES
from tests.tensorrt.builtin.running import compare, load_on_cuda, make_problem, run_engine


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


@pytest.mark.parametrize("name", CASES)
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
