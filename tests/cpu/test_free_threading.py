"""Running plans from many threads with nothing but the run-time dependencies, and without the interpreter lock.

Every test holds on any Python. On a free-threaded one (``python3.14t``) the threads really run at the same moment, and
the first test says whether the interpreter lock is off; ``tools/matrix`` runs this file there.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import sysconfig
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dovetail as dt
from tests.support.threads import THREADS, in_threads

ROOT = Path(__file__).resolve().parents[2]
PLANS = sorted((ROOT / "tests/data/plans").glob("*/*.plan"))
Arrays = dict[str, npt.NDArray[Any]]


@pytest.fixture(autouse=True)
def _eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_fresh(source: str, *arguments: str) -> str:
    """Run a script in a process that has imported nothing; what it imports, its threads import at once."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has the interpreter lock"
)
def test_no_dependency_switches_the_interpreter_lock_on() -> None:
    source = """
        import sys
        import ml_dtypes, msgspec, numpy, xxhash
        import dovetail as dt
        for name in dt.__all__:
            if name not in sys.argv[1:]:
                getattr(dt, name)
        from dovetail.provider.loader import get_provider
        assert len(get_provider("cpu").kernels) > 100
        print(sys._is_gil_enabled())
    """
    assert run_fresh(source, *names_of_the_build_side()) == "False\n"


def names_of_the_build_side() -> list[str]:
    """Public names that need more than the run-time dependencies."""
    from dovetail._exports import EXPORTS

    build_side = ("dovetail.build", "dovetail.network", "dovetail.passes", "dovetail.api")
    return [name for name, module in EXPORTS.items() if module.startswith(build_side)]


def read_case(path: Path) -> tuple[Arrays, Arrays]:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        inputs = {key.removeprefix("in:"): arrays[key] for key in arrays.files if key.startswith("in:")}
        outputs = {key.removeprefix("out:"): arrays[key] for key in arrays.files if key.startswith("out:")}
    return inputs, outputs


def check(result: Any, expected: Arrays) -> None:
    results = result if isinstance(result, dict) else {next(iter(expected)): result}
    for name, array in expected.items():
        np.testing.assert_allclose(results[name], array, rtol=2e-2 if array.dtype == np.float16 else 1e-5, atol=1e-3)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_one_engine_is_called_by_all_threads(path: Path) -> None:
    inputs, expected = read_case(path)
    with dt.load(path, host_code=True) as engine:

        def work(_: int) -> None:
            kept = [engine(**inputs) for _ in range(30)]
            for result in kept:  # after all runs: what was returned is not written to again
                check(result, expected)

        in_threads(work)
        assert 1 <= len(engine.contexts) <= THREADS


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_thread_has_contexts_of_its_own(path: Path) -> None:
    inputs, expected = read_case(path)
    with dt.load(path, host_code=True) as engine:
        order = [inputs[tensor.name] for tensor in engine.manifest.inputs]
        names = [tensor.name for tensor in engine.manifest.outputs]

        def work(_: int) -> None:
            contexts = [engine.create_execution_context() for _ in range(3)]
            for turn in range(30):
                check(dict(zip(names, contexts[turn % 3].run(order), strict=True)), expected)
            for context in contexts:
                context.close()

        in_threads(work)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_thread_loads_and_closes_engines(path: Path) -> None:
    inputs, expected = read_case(path)

    def work(_: int) -> None:
        for _ in range(5):
            with dt.load(path, host_code=True) as engine:
                check(engine(**inputs), expected)

    in_threads(work)


def test_the_first_use_of_everything_comes_from_several_threads() -> None:
    """Imports on demand, the table of providers and kernel modules are all first touched by threads that race."""
    source = """
        import sys
        from pathlib import Path
        from tests.cpu.test_free_threading import check, read_case
        from tests.support.threads import in_threads
        for name in [name for name in sys.modules if name.startswith("dovetail")]:
            del sys.modules[name]  # as if nothing had been imported yet
        import dovetail as dt
        assert not any(name.startswith("dovetail.providers") for name in sys.modules)
        paths = [Path(name) for name in sys.argv[1:]]
        cases = [read_case(path) for path in paths]

        def work(number):
            inputs, expected = cases[number % len(cases)]
            check(dt.load(paths[number % len(paths)], host_code=True)(**inputs), expected)

        in_threads(work)
        print("done")
    """
    assert run_fresh(source, *map(str, PLANS)) == "done\n"


def test_kernels_are_found_by_threads_that_race_to_import_them() -> None:
    source = """
        import random
        from dovetail.provider.loader import get_provider
        from dovetail.providers.cpu._kernel_index import KERNEL_INDEX
        from tests.support.threads import in_threads

        names = sorted({op for ops in KERNEL_INDEX.values() for op in ops})
        providers, found = [], []

        def work(number):
            provider = get_provider("cpu")
            providers.append(provider)
            mine = {}
            for name in random.Random(number).sample(names, len(names)):
                domain, _, op = name.rpartition("::")
                newest = provider.kernels.find(op, domain, 99)
                mine[name] = newest or [provider.kernels.find(op, domain, opset) for opset in range(1, 24)]
            found.append(mine)

        in_threads(work)
        assert all(provider is providers[0] for provider in providers)
        assert all(mine == found[0] for mine in found)
        assert all(kernels and kernels != [None] * 23 for kernels in found[0].values())
        print(len(found))
    """
    assert run_fresh(source) == f"{THREADS}\n"


class Creator(dt.IPluginCreatorV3One):
    """A creator that only has a name."""

    def __init__(self, name: str) -> None:
        self.name, self.plugin_version, self.plugin_namespace = name, "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        raise NotImplementedError


def test_creators_come_and_go_in_several_threads() -> None:
    registry = dt.PluginRegistry()
    registry.register_creator(Creator("Lasting"))

    def work(thread: int) -> None:
        for number in range(50):
            creator = Creator(f"Own{thread}_{number % 5}")
            registry.register_creator(creator)
            assert registry.get_creator(creator.name, "1") is creator
            assert registry.get_creator("Lasting", "1") is not None
            assert any(known.name == "Lasting" for known in registry.all_creators)
            registry.deregister_creator(creator)

    in_threads(work)
    assert [creator.name for creator in registry.all_creators] == ["Lasting"]


def test_one_of_many_creators_of_one_name_wins() -> None:
    for _ in range(20):
        registry = dt.PluginRegistry()
        taken: list[int] = []

        refused: list[str] = []

        def work(thread: int, registry: Any = registry, taken: list[int] = taken, refused: list[str] = refused) -> None:
            try:
                registry.register_creator(Creator("Same"))
                taken.append(thread)
            except dt.PluginError as error:
                refused.append(str(error))

        in_threads(work)
        assert len(taken) == 1
        assert all("already registered" in message for message in refused)


class Resource(dt.IPluginResource):
    """Counts how many clones live, and notices when one is used after its release."""

    lock = threading.Lock()
    alive = 0
    clones = 0

    def __init__(self) -> None:
        self.is_released = False

    def clone(self) -> Any:
        with Resource.lock:
            Resource.alive += 1
            Resource.clones += 1
        return Resource()

    def release(self) -> int:
        assert not self.is_released
        self.is_released = True
        with Resource.lock:
            Resource.alive -= 1
        return 0


def test_resources_are_cloned_once_and_released_once() -> None:
    registry = dt.PluginRegistry()
    keys = ("a", "b", "c")

    def work(thread: int) -> None:
        pick = random.Random(thread)
        for _ in range(300):
            key = pick.choice(keys)
            held = registry.acquire_plugin_resource(key, Resource())
            again = registry.acquire_plugin_resource(key, Resource())
            assert again is held
            assert not held.is_released
            assert Resource.alive <= len(keys)
            registry.release_plugin_resource(key)
            assert not held.is_released
            registry.release_plugin_resource(key)

    Resource.alive = Resource.clones = 0
    in_threads(work)
    assert Resource.alive == 0
    assert Resource.clones >= len(keys)
