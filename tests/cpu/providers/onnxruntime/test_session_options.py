"""The options ``threads`` and ``pool`` make the sessions that they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.providers.onnxruntime import provider as provider_module
from tests.support.device_models import X, chain, expected

pytest.importorskip("onnxruntime", reason="the provider under test")


def _threads(count: int) -> dict[str, dict[str, str]]:
    return {"onnxruntime": {"threads": str(count)}}


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sessions that are loaded from now on."""
    made: list[Any] = []
    create_session = provider_module.create_session

    def create(*args: Any, **options: Any) -> Any:
        made.append(create_session(*args, **options))
        return made[-1]

    monkeypatch.setattr(provider_module, "create_session", create)
    return made


def _counts(sessions: list[Any]) -> list[int]:
    return [session.get_session_options().intra_op_num_threads for session in sessions]


def test_threads_are_those_of_the_build_and_then_of_the_load(sessions: list[Any], tmp_path: Path) -> None:
    config = dt.BuilderConfig()
    config.provider_options = _threads(1)
    engine = dt.compile(chain(), providers=["onnxruntime"], config=config)
    engine.save(tmp_path / "plan")
    assert _counts(sessions) == [1]
    others = [dt.load(tmp_path / "plan", provider_options=_threads(count)) for count in (2, 1)]
    others.append(dt.load(tmp_path / "plan"))
    assert _counts(sessions) == [1, 2, 1, 0]
    for each in (engine, *others):
        np.testing.assert_allclose(each(X), expected(chain(), X), rtol=1e-5, atol=1e-6)


def test_threads_of_several_partitions(sessions: list[Any]) -> None:
    config = dt.BuilderConfig()
    config.provider_options, config.layer_providers = _threads(1), {"softmax": "cpu"}
    dt.compile(chain(), providers=["onnxruntime", "cpu"], config=config)
    assert _counts(sessions) == [1, 1]


def test_a_wrong_option_is_named_at_load(tmp_path: Path) -> None:
    dt.compile(chain(), providers=["onnxruntime"]).save(tmp_path / "plan")
    with pytest.raises(dt.ProviderError, match=r"unknown option\(s\) thread; expected threads, pool"):
        dt.load(tmp_path / "plan", provider_options={"onnxruntime": {"thread": "1"}})


_START = """
import sys, numpy as np, onnxruntime, dovetail
from dovetail.providers.onnxruntime import provider as module
made, create = [], module.create_session
module.create_session = lambda *args, **options: made.append(create(*args, **options)) or made[-1]
class Listener(dovetail.ILogger):
    lines = []
    def log(self, severity, text):
        self.lines.append(text)
def owns():
    return [session.get_session_options().use_per_session_threads for session in made]
def load(logger=None, **options):
    path = sys.argv[1]
    engine = dovetail.load(path, provider_options={"onnxruntime": options} if options else None, logger=logger)
    np.testing.assert_allclose(engine(x), expected, rtol=1e-5, atol=1e-6)
    return engine
x, expected = np.load(sys.argv[2]), np.load(sys.argv[3])
"""


def _run_in_process(code: str, folder: Path) -> None:
    """Run code that knows a plan in two partitions; a process that once has the pool has it for good."""
    config = dt.BuilderConfig()
    config.layer_providers = {"softmax": "cpu"}
    dt.compile(chain(), providers=["onnxruntime", "cpu"], config=config).save(folder / "plan")
    onnx.save(chain(), folder / "model.onnx")
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", expected(chain(), X))
    files = [str(folder / name) for name in ("plan", "x.npy", "y.npy", "model.onnx")]
    done = subprocess.run([sys.executable, "-c", _START + code, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_pool_for_the_process(tmp_path: Path) -> None:
    code = """
load(pool="session")
assert owns() == [True, True]
load(pool="process", threads="2")
assert owns() == [True, True, False, False]
try:
    onnxruntime.InferenceSession(sys.argv[4])
except Exception as error:
    assert "use_per_session_threads" in str(error)
else:
    raise AssertionError("there is no pool of the process")
# Engines go on, with the pool, and are told when they do not get what they ask for.
load(Listener())
load(Listener(), pool="process", threads="2")
assert not Listener.lines, Listener.lines
load(Listener(), threads="1")
assert Listener.lines == [
    "threads=1 has no effect: the process has one pool of threads for all, which was made with threads=2"
], Listener.lines
assert owns()[2:] == [False] * 8
"""
    _run_in_process(code, tmp_path)


def test_one_pool_for_an_engine_that_is_built_and_run_in_one_process(tmp_path: Path) -> None:
    code = """
config = dovetail.BuilderConfig()
config.layer_providers, config.provider_options = {"softmax": "cpu"}, {"onnxruntime": {"pool": "process"}}
engine = dovetail.compile(sys.argv[4], providers=["onnxruntime", "cpu"], config=config)
np.testing.assert_allclose(engine(x), expected, rtol=1e-5, atol=1e-6)
assert owns() == [False, False]
"""
    _run_in_process(code, tmp_path)


def test_a_pool_that_others_made_is_used(tmp_path: Path) -> None:
    code = """
onnxruntime.set_global_thread_pool_sizes(1, 1)
options = onnxruntime.SessionOptions()
options.use_per_session_threads = False
onnxruntime.InferenceSession(sys.argv[4], options)
load(Listener(), pool="process", threads="2")
assert owns() == [False, False]
assert Listener.lines == [
    "threads=2 has no effect: the process has one pool of threads for all, which others made"
], Listener.lines
"""
    _run_in_process(code, tmp_path)
