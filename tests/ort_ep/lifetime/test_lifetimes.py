"""Registrations, sessions and the interpreter end in every order: no crash, no hang, and results stay right.

Each scenario is a program of its own. What it prints last is ``done``; everything after that is the end of the process.
They run one after the other before the first test, because starting Python for each would take most of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
START = """
import atexit, gc, os, sys, threading
import numpy as np, onnxruntime as ort
import onnxruntime_ep_dovetail as ep
import dovetail
from onnxruntime_ep_dovetail.abi import count_live
from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, plain_model, plugin_model, run_plain

path = ep.get_library_path()

def make(**options):
    return ort_ep.dovetail_session(plain_model(), claim="all", **options)

def check(session):
    np.testing.assert_allclose(session.run(None, feeds())[0], run_plain(feeds()), rtol=1e-5)

def register(name="dovetail"):
    ort.register_execution_provider_library(name, path)

def unregister(name="dovetail"):
    ort.unregister_execution_provider_library(name)
"""
LATE = """
import atexit, sys
def late():
    check(sys.kept)
    sys.made = make()
    check(sys.made)
    make()
    print("late", flush=True)
atexit.register(late)
"""
REGISTRATIONS = {
    "unregister and register again": """
        for _ in range(3):
            register()
            session = make()
            check(session)
            del session
            unregister()
            assert not ort_ep.devices()
            assert count_live().keys() <= {"OrtCustomOp"}, count_live()
        register()
        check(make())
        """,
    "sessions that outlive an unregistration": """
        register()
        kept, other = make(), make()
        unregister()
        for _ in range(3):
            check(kept)
        del other
        gc.collect()
        check(kept)
        register()
        new = make()
        check(new), check(kept)
        del kept
        check(new)
        unregister()
        check(new)
        del new
        gc.collect()
        """,
    "two registrations": """
        register("one"), register("two")
        found = [device for device in ort.get_ep_devices() if device.ep_name == ep.get_ep_name()]
        assert len(found) == 2
        sessions = []
        for device in found:
            options = ort_ep.session_options(fallback=False)
            options.add_provider_for_devices([device], {"claim": "all"})
            sessions.append(ort.InferenceSession(plain_model().SerializeToString(), options))
        for session in sessions:
            check(session)
        unregister("one")
        check(sessions[0]), check(sessions[1])
        check(make())
        unregister("two")
        check(sessions[0]), check(sessions[1])
        """,
    "devices of two registrations": """
        register("one"), register("two")
        found = [device for device in ort.get_ep_devices() if device.ep_name == ep.get_ep_name()]
        options = ort_ep.session_options(fallback=False)
        try:
            options.add_provider_for_devices(found, {})
            ort.InferenceSession(plain_model().SerializeToString(), options)
        except Exception as error:
            print(type(error).__name__, error)
        else:
            raise AssertionError("they make no session together")
        check(make())
        """,
    "the same name twice": """
        register()
        session = make()
        for _ in range(3):
            try:
                register()
            except Exception as error:
                assert "already" in str(error), error
            else:
                raise AssertionError("a name can be used twice")
            check(session), check(make())
        """,
    "a fork": """
        register()
        options = ort_ep.session_options(fallback=False)
        options.intra_op_num_threads = 1  # a child cannot wait for threads of its parent, with any provider
        session = make(options=options)
        check(session)
        child = os.fork()
        if not child:
            check(session)
            check(make())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        check(session)
        child = os.fork()
        if not child:
            check(session)
            sys.exit(0)  # with all exit functions
        assert os.waitpid(child, 0)[1] == 0
        check(session)
        """,
    "a thread that nobody waits for": """
        register()
        sys.kept = make()
        ready, never = threading.Event(), threading.Event()
        def work():
            check(sys.kept)
            ready.set()
            never.wait()
        threading.Thread(target=work, daemon=True).start()
        ready.wait()
        """,
    "an engine ends with its session": """
        @dovetail.layer("LifeTwice")
        def twice(x):
            return x + x

        register()
        gc.disable()
        import weakref
        from onnxruntime_ep_dovetail.session import ep as module
        engines, real = [], module.build_partition
        def build(*arguments, **named):
            partition = real(*arguments, **named)
            engines.append(weakref.ref(partition.engine))
            return partition
        module.build_partition = build
        session = ort_ep.dovetail_session(plugin_model("LifeTwice"), claim="all")
        session.run(None, {"x": feeds()["x"]})
        assert engines and engines[0]() is not None
        del session
        assert engines[0]() is None
        """,
}
ENDS = {
    "a global": "session = make(); check(session)",
    "in sys": "sys.kept = make(); check(sys.kept)",
    "in numpy": "np.kept = make(); check(np.kept)",
    "in builtins": "import builtins; builtins.kept = make(); check(builtins.kept)",
    "in the package": "ep.kept = make(); check(ep.kept)",
    "a cycle": "a, b = [make()], []; a.append(b); b.append(a); check(a[0]); gc.disable()",
    "a cycle through a function": "def f(s=make()): return f, s\ncheck(f()[1])",
    "unregistered": "sys.kept = make(); unregister(); check(sys.kept)",
    "unregistered at exit": "sys.kept = make(); atexit.register(unregister)",
    "registered, unused": "pass",
    "two sessions": "sys.kept, other = make(), make(); check(sys.kept)",
    "profiled": (
        "import tempfile; options = ort_ep.session_options(fallback=False); options.enable_profiling = True\n"
        "options.profile_file_prefix = os.path.join(tempfile.mkdtemp(), 'p')\n"
        "sys.kept = make(options=options); check(sys.kept)"
    ),
    "kernels": "sys.kept = make(route='kernels'); check(sys.kept)",
    "the exit function of a user": "sys.kept = make(); atexit.register(lambda: check(sys.kept))",
    "a value": (
        "session = make(); binding = session.io_binding(); sys.binding = binding\n"
        "for name, value in feeds().items(): binding.bind_cpu_input(name, value)\n"
        "binding.bind_output('y'); session.run_with_iobinding(binding); sys.values = binding.get_outputs()"
    ),
    "sys.exit": "sys.kept = make(); check(sys.kept); print('done', flush=True); sys.exit(0)",
    "a thread that has ended": (
        "sys.kept = make(); t = threading.Thread(target=check, args=(sys.kept,)); t.start(); t.join()"
    ),
    "a thread that runs to the end": (
        "sys.kept = make(); threading.Thread(target=lambda: [check(sys.kept) for _ in range(50)]).start()"
    ),
    "a session in a thread's storage": "local = threading.local(); local.kept = make(); check(local.kept)",
    "an exit function that runs after ours": "sys.kept = make(); check(sys.kept)",
    "after a failed session": (
        "ort_ep.refuse('unknown option', lambda: make(colour='red')); sys.kept = make(); check(sys.kept)"
    ),
}
EARLY = {"an exit function that runs after ours": LATE}
"""What a program does first. Exit functions run last first, so one from before the library was loaded follows ours."""
SCENARIOS = {name: textwrap.dedent(body) for name, body in REGISTRATIONS.items()} | {
    name: f"register()\n{body}" for name, body in ENDS.items()
}


FAST = (
    "unregister and register again",
    "sessions that outlive an unregistration",
    "two registrations",
    "in sys",
    "a cycle",
    "unregistered",
    "an exit function that runs after ours",
)
"""Enough to notice most mistakes; the rest takes its time."""


def run_all(folder: Path, names: Iterable[str]) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of scenarios."""
    programs = []
    for name in names:
        path = folder / f"scenario{len(programs)}.py"
        path.write_text(EARLY.get(name, "") + START + SCENARIOS[name])
        programs.append({"name": name, "path": str(path)})
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.run_apart"],
        env=environment,
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    found: dict[str, tuple[int, str, str]] = json.loads(done.stdout)
    return found


def check(name: str, outcome: tuple[int, str, str]) -> None:
    code, output, errors = outcome
    assert code == 0, (output, errors)
    assert "done" in output
    assert "late" in output or name not in EARLY
    assert "Exception ignored" not in errors, errors
    assert "Traceback" not in errors, errors


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    return run_all(tmp_path_factory.mktemp("few"), FAST)


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    return run_all(tmp_path_factory.mktemp("all"), SCENARIOS)


@pytest.mark.parametrize("name", FAST)
def test_the_usual_ends(few: dict[str, tuple[int, str, str]], name: str) -> None:
    check(name, few[name])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_end(all_of_them: dict[str, tuple[int, str, str]], name: str) -> None:
    check(name, all_of_them[name])
