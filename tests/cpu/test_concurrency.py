"""What docs/concurrency.md promises: threads, several contexts, several builders, fork."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.plugin import address_of, as_array
from tests.support.plugins import PlainCreator, ScalePlugin
from tests.support.threads import THREADS, in_threads

WEIGHTS = np.random.default_rng(5).random((16, 16), np.float32)


class ScratchPlugin(ScalePlugin):
    """Computes through scratch memory of its own and notices when two threads are in one object."""

    attached: list[ScratchPlugin] = []  # noqa: RUF012 - what the test looks at
    attaching = 0
    overlaps: list[str] = []  # noqa: RUF012

    def __init__(self, factor: float = 2.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestScratch"
        self.busy = threading.Lock()
        self.threads: set[int] = set()

    def clone(self) -> Any:
        twin = type(self)(self.factor, self.calls)
        twin.tactic = self.tactic
        return twin

    def attach_to_context(self, context: Any) -> Any:
        ScratchPlugin.attaching += 1
        if ScratchPlugin.attaching != 1:
            ScratchPlugin.overlaps.append("attach_to_context")
        time.sleep(0.001)
        twin = self.clone()
        ScratchPlugin.attached.append(twin)
        ScratchPlugin.attaching -= 1
        return twin

    def on_shape_change(self, inputs: Any, outputs: Any) -> None:
        self.scratch = np.empty(tuple(inputs[0].dims), np.float32)

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        if not self.busy.acquire(blocking=False):
            ScratchPlugin.overlaps.append("enqueue")
            return
        self.threads.add(threading.get_ident())
        np.multiply(as_array(inputs[0], input_desc[0]), np.float32(self.factor), out=self.scratch)
        time.sleep(0)  # let another thread in between the two halves
        as_array(outputs[0], output_desc[0])[...] = self.scratch
        self.busy.release()


class PlainScratch(ScratchPlugin):
    """The same with one way to run, so that building it takes no time."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()


@pytest.fixture(autouse=True)
def _eager_switching() -> Iterator[None]:
    """Threads take turns every few microseconds, which shows races that are rare otherwise."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    ScratchPlugin.attached.clear()
    ScratchPlugin.overlaps.clear()
    yield
    sys.setswitchinterval(before)
    assert ScratchPlugin.overlaps == []


def _network(builder: dt.Builder, plugin: Any) -> Any:
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 16))
    scaled = network.add_plugin_v3([x], [], plugin).get_output(0)
    weights = network.add_constant((16, 16), WEIGHTS).get_output(0)
    none = dt.MatrixOperation.NONE
    product = network.add_matrix_multiply(scaled, none, weights, none).get_output(0)
    product.name = "y"
    network.mark_output(product)
    return network


def _build(plugin: Any, *profiles: tuple[int, int, int]) -> bytes:
    builder = dt.Builder()
    config = builder.create_builder_config()
    for bounds in profiles or ((1, 4, 64),):
        profile = builder.create_optimization_profile()
        profile.set_shape("x", *((n, 16) for n in bounds))
        config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(_network(builder, plugin), config))


def _load(plan: bytes) -> Any:
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScratch", PlainScratch))
    return runtime.deserialize_cuda_engine(plan)


def _expect(x: np.ndarray) -> np.ndarray:
    return (x * np.float32(3.0)) @ WEIGHTS


def _check(result: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(result, _expect(x), rtol=1e-5)


def _sample(thread: int, turn: int, rows: int) -> np.ndarray:
    return np.random.default_rng(100 * thread + turn).random((rows, 16), np.float32)


@pytest.fixture(scope="module")
def plan() -> bytes:
    return _build(PlainScratch(3.0))


def test_engine_is_called_from_several_threads(plan: bytes) -> None:
    engine = _load(plan)

    def work(thread: int) -> None:
        kept = []
        for turn in range(25):
            x = _sample(thread, turn, 1 + (thread + turn) % 5)
            kept.append((engine(x), x))
        for result, x in kept:  # after all runs: what was returned must not have been written to again
            _check(result, x)

    in_threads(work)
    assert 1 <= len(engine.contexts) <= THREADS
    assert len({id(plugin) for plugin in ScratchPlugin.attached}) == len(engine.contexts)


def test_contexts_of_one_engine_run_side_by_side(plan: bytes) -> None:
    engine = _load(plan)

    def work(thread: int) -> None:
        context = engine.create_execution_context()
        for turn in range(25):
            x = _sample(thread, turn, 1 + thread)
            y = np.zeros_like(x)
            context.set_input_shape("x", x.shape)
            context.set_tensor_address("x", address_of(x))
            context.set_tensor_address("y", address_of(y))
            assert context.execute_async_v3(0)
            _check(y, x)

    in_threads(work)
    assert len(ScratchPlugin.attached) == THREADS
    assert all(len(plugin.threads) == 1 for plugin in ScratchPlugin.attached)


def test_contexts_with_different_profiles_and_shapes() -> None:
    engine = _load(_build(PlainScratch(3.0), (1, 2, 4), (5, 8, 64)))

    def work(thread: int) -> None:
        context = engine.create_execution_context()
        for turn in range(20):
            profile = (thread + turn) % 2
            context.set_optimization_profile_async(profile)
            x = _sample(thread, turn, (3, 5 + thread)[profile])
            _check(context.run([x])[0], x)
            assert context.active_optimization_profile == profile

    in_threads(work)


def test_engine_call_uses_the_profile_that_fits() -> None:
    engine = _load(_build(PlainScratch(3.0), (1, 2, 4), (5, 8, 64)))

    def work(thread: int) -> None:
        for turn in range(20):
            x = _sample(thread, turn, (2, 9, 4, 64, 5)[(thread + turn) % 5])
            _check(engine(x), x)

    in_threads(work)
    with pytest.raises(dt.InputError, match=r"outside profile 0"):
        engine(np.zeros((65, 16), np.float32))


def test_a_context_may_move_between_threads(plan: bytes) -> None:
    context = _load(plan).create_execution_context()
    for turn in range(4):
        x = _sample(0, turn, 2)
        in_threads(lambda _, x=x: _check(context.run([x])[0], x), count=1)
    assert len(ScratchPlugin.attached) == 1


def test_an_engine_that_failed_in_one_thread_serves_the_others(plan: bytes) -> None:
    engine = _load(plan)

    def work(thread: int) -> None:
        for turn in range(20):
            x = _sample(thread, turn, 4)
            if thread % 2:
                with pytest.raises(dt.InputError):
                    engine(np.zeros((65, 16), np.float32))
            _check(engine(x), x)

    in_threads(work)


def test_plans_are_loaded_in_several_threads(plan: bytes) -> None:
    runtime = dt.Runtime()
    creator = PlainCreator("TestScratch", PlainScratch)
    runtime.get_plugin_registry().register_creator(creator)

    def work(thread: int) -> None:
        with runtime.deserialize_cuda_engine(plan) as engine:
            x = _sample(thread, 0, 4)
            _check(engine(x), x)

    ScratchPlugin.attach_to_context, serialised = ScalePlugin.attach_to_context, ScratchPlugin.attach_to_context
    try:  # each engine has a lock of its own, so attaching may overlap between engines
        in_threads(work)
    finally:
        ScratchPlugin.attach_to_context = serialised
    assert len(creator.phases) == THREADS


def test_the_registry_takes_creators_from_several_threads() -> None:
    registry = dt.PluginRegistry()
    taken: list[bool] = []
    refused: list[str] = []

    def work(thread: int) -> None:
        for number in range(20):
            registry.register_creator(PlainCreator(f"Own{thread}_{number}", PlainScratch))
            assert registry.get_creator(f"Own{thread}_{number}", "1") is not None
        try:
            taken.append(registry.register_creator(PlainCreator("Same", PlainScratch)))
        except dt.PluginError as error:
            refused.append(str(error))

    in_threads(work)
    assert taken == [True]
    assert all("already registered" in message for message in refused)
    assert len(registry.all_creators) == 20 * THREADS + 1


def test_two_builders_in_two_threads() -> None:
    plans: dict[int, bytes] = {}
    in_threads(lambda thread: plans.update({thread: _build(ScalePlugin(3.0))}), count=2)
    runtime = dt.Runtime()
    runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", ScalePlugin))
    for plan in plans.values():
        x = _sample(0, 0, 4)
        _check(runtime.deserialize_cuda_engine(plan)(x), x)


def test_timed_runs_of_a_build_come_from_one_other_thread() -> None:
    calls: list[tuple[str, Any]] = []
    _build(ScalePlugin(3.0, calls))
    threads = {detail for name, detail in calls if name == "enqueue"}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def _state_of_modules() -> dict[str, Any]:
    """Every container in a module of the package, with what it holds."""
    kinds = (dict, list, set)
    return {
        f"{module}.{name}": [id(entry) for entry in (value.values() if isinstance(value, dict) else value)]
        for module, loaded in sorted(sys.modules.items())
        if module.startswith("dovetail.") and loaded is not None
        for name, value in vars(loaded).items()
        if isinstance(value, kinds) and not name.startswith("__")
    }


def test_running_changes_no_module_state(plan: bytes) -> None:
    engine = _load(plan)
    engine(_sample(0, 0, 1))
    before = _state_of_modules()
    assert len(before) > 10
    in_threads(lambda thread: _check(engine(x := _sample(thread, 0, 1 + thread)), x))
    assert _state_of_modules() == before


def _run_script(source: str, tmp_path: Path, *arguments: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_parent_and_child_of_a_fork_both_run_the_engine(plan: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.plan"
    path.write_bytes(plan)
    source = """
        import os, sys
        import numpy as np
        import dovetail as dt
        from tests.cpu.test_concurrency import PlainCreator, PlainScratch, _check, _sample

        dt.get_plugin_registry().register_creator(PlainCreator("TestScratch", PlainScratch))
        engine = dt.load(sys.argv[1])
        context = engine.create_execution_context()
        _check(engine(_sample(0, 0, 4)), _sample(0, 0, 4))
        children = []
        for number in range(3):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    for turn in range(10):
                        x = _sample(number, turn, 1 + turn)
                        _check(engine(x), x)
                        _check(context.run([x])[0], x)
                    again = dt.load(sys.argv[1])  # loading works in the child too
                    _check(again(x), x)
                    status = 0
                finally:
                    os._exit(status)
            children.append(pid)
        for turn in range(10):
            x = _sample(9, turn, 1 + turn)
            _check(engine(x), x)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        print("children:", codes)
    """
    assert _run_script(source, tmp_path, str(path)) == "children: [0, 0, 0]\n"


def test_a_plugin_may_be_destroyed_by_the_collector_at_any_time(tmp_path: Path) -> None:
    """The collector runs in whatever thread allocates, also in one that is just inside the registry."""
    source = """
        import faulthandler, gc, sys, threading
        import dovetail as dt

        faulthandler.dump_traceback_later(60, exit=True)
        sys.setswitchinterval(1e-6)
        registry = dt.get_plugin_registry()

        class Resource(dt.IPluginResource):
            def clone(self): return self
            def release(self): return 0

        class Holder:
            def __init__(self):
                self.itself = self  # only the collector can end it
                registry.acquire_plugin_resource("shared", Resource())
            def __del__(self):
                registry.release_plugin_resource("shared")

        def hold():
            while not done.is_set():
                Holder()

        done = threading.Event()
        gc.set_threshold(3, 1, 1)
        thread = threading.Thread(target=hold)
        thread.start()
        for _ in range(5000):
            registry.acquire_plugin_resource("other", Resource())
            registry.release_plugin_resource("other")
        done.set()
        thread.join()
        print("done")
    """
    assert _run_script(source, tmp_path) == "done\n"
