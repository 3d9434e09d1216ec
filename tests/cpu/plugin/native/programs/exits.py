"""End processes in one way while plugins are in use, and print their exit statuses as JSON.

Arguments: the library of ``exits.cpp``, the name of a scenario, and the number of processes. Each is forked after the
imports, works for a random time of at most 40 ms, and ends as any Python process does. A process that takes more than a
minute is killed and has the status -9.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import dovetail as dt
from dovetail.loggers import Severity

X: Final = np.ones((8, 16), np.float32)
MAX_SECONDS: Final = 60


class Quiet(dt.ILogger):
    """A logger in Python, so that every message of a library enters the interpreter."""

    def log(self, severity: Severity, msg: str) -> None:
        """Drop the message."""


class SlowPython(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """A plugin in Python that is slow and reports a use after ``destroy``."""

    def __init__(self) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = "SlowPython", "1", ""
        self.num_outputs = 1
        self.is_alive = True

    def get_capability_interface(self, type: dt.PluginCapabilityType) -> SlowPython:
        return self

    def clone(self) -> SlowPython:
        return SlowPython()

    def attach_to_context(self, resource_context: Any) -> SlowPython:
        return self.clone()

    def get_output_data_types(self, input_types: Any) -> list[Any]:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> list[Any]:
        return [inputs[0]]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return bool(in_out[pos].desc.type == dt.float32)

    def configure_plugin(self, in_: Any, out: Any) -> int:
        return 0

    def on_shape_change(self, in_: Any, out: Any) -> int:
        return 0

    def set_tactic(self, tactic: int) -> int:
        return 0

    def get_fields_to_serialize(self) -> dt.PluginFieldCollection:
        return dt.PluginFieldCollection([])

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> int:
        for _ in range(10):
            time.sleep(0.0003)
            if not self.is_alive:
                os._exit(77)  # it was destroyed while it ran
        ctypes.memmove(outputs[0], inputs[0], X.nbytes)
        return 0

    def destroy(self) -> None:
        self.is_alive = False


class SlowPythonCreator(dt.IPluginCreatorV3One):
    """The creator of ``SlowPython``."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "SlowPython", "1", ""
        self.field_names = dt.PluginFieldCollection([])

    def create_plugin(self, name: str, fc: Any, phase: Any) -> SlowPython:
        return SlowPython()


def load(path: str) -> ctypes.CDLL:
    """Load the library into the global registry, which logs into Python."""
    dt.get_plugin_registry().logger = Quiet()
    dt.get_plugin_registry().load_library(path)
    return ctypes.CDLL(path)


def build(name: str = "Slow") -> bytes:
    """A plan with one layer of the plugin."""
    plugin = (
        dt.get_plugin_registry()
        .get_creator(name, "1")
        .create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    )
    builder = dt.Builder(Quiet())
    network = builder.create_network()
    layer = network.add_plugin_v3([network.add_input("x", dt.float32, X.shape)], [], plugin)
    network.mark_output(layer.get_output(0))
    return bytes(builder.build_serialized_network(network, builder.create_builder_config()))


def make_engine(name: str = "Slow") -> Any:
    """An engine with one layer of the plugin."""
    return dt.Runtime(Quiet()).deserialize_cuda_engine(build(name))


def repeat(work: Callable[[], object], *, count: int = 2) -> None:
    """Do some work in daemon threads until the process ends."""

    def run() -> None:
        while True:
            try:
                work()
            except Exception:  # noqa: BLE001 - the engine may be destroyed between two runs at the end
                time.sleep(0.01)

    for _ in range(count):
        threading.Thread(target=run, daemon=True).start()


def run_in_threads(name: str = "Slow") -> Any:
    """Run an engine in daemon threads, each in a context of its own."""
    engine = make_engine(name)
    repeat(lambda: engine.run(X))
    return engine


def daemon(path: str) -> None:
    """Daemon threads run a C++ plugin."""
    load(path)
    sys.kept = run_in_threads()  # type: ignore[attr-defined]


def daemon_one_context(path: str) -> None:
    """A daemon thread runs a context by address."""
    load(path)
    context = make_engine().create_execution_context()
    y = np.empty_like(X)
    context.set_tensor_addresses([X.ctypes.data, y.ctypes.data])
    repeat(lambda: (context.execute_async_v3(0), y), count=1)


def daemon_chatty(path: str) -> None:
    """Daemon threads run a C++ plugin that logs into Python."""
    load(path).makeChatty()
    run_in_threads()


def daemon_allocator(path: str) -> None:
    """Daemon threads run a C++ plugin that allocates through Python."""
    load(path).makeAllocate()
    run_in_threads()


def daemon_build(path: str) -> None:
    """Daemon threads build plans with a C++ plugin."""
    load(path)
    build()
    repeat(build)


def daemon_build_chatty(path: str) -> None:
    """Daemon threads build plans with a C++ plugin that logs into Python."""
    load(path).makeChatty()
    build()
    repeat(build)


def daemon_load(path: str) -> None:
    """Daemon threads load and unload the library."""

    def work() -> None:
        registry = dt.PluginRegistry(logger=Quiet())
        registry.load_library(path)
        registry.close()

    work()
    repeat(work)


def daemon_contexts(path: str) -> None:
    """Daemon threads make contexts and close them."""
    load(path)
    engine = make_engine()

    def work() -> None:
        with engine.create_execution_context() as context:
            context.run([X])

    work()
    repeat(work)


def daemon_python(path: str) -> None:
    """Daemon threads run a plugin in Python."""
    dt.get_plugin_registry().register_creator(SlowPythonCreator())
    sys.kept = run_in_threads("SlowPython")  # type: ignore[attr-defined]


def daemon_python_build(path: str) -> None:
    """Daemon threads build plans with a plugin in Python."""
    dt.get_plugin_registry().register_creator(SlowPythonCreator())
    build("SlowPython")
    repeat(lambda: build("SlowPython"))


def static_destructor(path: str) -> None:
    """The library uses its host in a static destructor."""
    load(path).useHostAtEnd()
    make_engine().run(X)


def library_thread(path: str) -> None:
    """A thread of the library logs until the process is gone."""
    load(path).startThread(20)
    make_engine().run(X)


def library_thread_busy(path: str) -> None:
    """Threads of the library log without a pause."""
    library = load(path)
    for _ in range(3):
        library.startThread(0)


def everything(path: str) -> None:
    """Daemon threads, a thread of the library and a static destructor."""
    library = load(path)
    library.makeChatty()
    library.useHostAtEnd()
    library.startThread(50)
    run_in_threads()


def atexit_before(path: str) -> None:
    """A handler that was registered before the library was loaded runs an engine at the end."""
    made: list[Any] = []

    def use() -> None:
        (result,) = made[0].run(X).values()
        assert np.array_equal(result, X + 1)

    atexit.register(use)
    load(path)
    made.append(make_engine())


def atexit_after(path: str) -> None:
    """A handler that was registered last runs an engine at the end, beside daemon threads."""
    load(path)
    engine = run_in_threads()
    atexit.register(lambda: engine.run(X))
    atexit.register(engine.run, X)


def atexit_close(path: str) -> None:
    """A handler closes the engine that daemon threads run."""
    load(path)
    engine = run_in_threads()
    atexit.register(engine.close)


def close_while_running(path: str) -> None:
    """The main thread closes the engine that daemon threads run, then goes on."""
    load(path)
    engine = run_in_threads()
    time.sleep(0.03)
    engine.close()


def exit_in_thread(path: str) -> None:
    """A thread calls sys.exit while others run."""
    load(path)
    run_in_threads()
    threading.Thread(target=sys.exit).start()


def unhandled(path: str) -> None:
    """The main thread ends with an exception."""
    daemon(path)
    raise RuntimeError("the main thread fails")


def interrupted(path: str) -> None:
    """The main thread is interrupted while it runs an engine."""
    load(path)
    engine = run_in_threads()
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        engine.run(X)


def hard_exit(path: str) -> None:
    """The process ends without any handler."""
    daemon_chatty(path)
    ctypes.CDLL(path).useHostAtEnd()
    time.sleep(0.02)
    os._exit(3)


def system_exit(path: str) -> None:
    """The main thread calls sys.exit while others run."""
    daemon_chatty(path)
    sys.exit(4)


def non_daemon(path: str) -> None:
    """A thread that the interpreter waits for runs an engine after the main thread has ended."""
    load(path)
    engine = make_engine()
    threading.Thread(target=lambda: [engine.run(X) for _ in range(10)]).start()


def tensorrt_module(path: str) -> None:
    """Daemon threads run an engine of the tensorrt-shaped module."""
    from dovetail_tensorrt import trt

    load(path)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(build())

    def work() -> None:
        context = engine.create_execution_context()
        y = np.empty_like(X)
        for _ in range(5):
            context.execute_v2([X.ctypes.data, y.ctypes.data])

    repeat(work)


def run_session(name: str = "Slow") -> None:
    """Run a session of ONNX Runtime with the plugin in daemon threads."""
    import onnxruntime
    from onnx import TensorProto, helper

    import onnxruntime_ep_dovetail

    infos = [helper.make_tensor_value_info(each, TensorProto.FLOAT, X.shape) for each in "xy"]
    node = helper.make_node(name, ["x"], ["y"], domain="dovetail.plugins")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("dovetail.plugins", 1)]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    onnxruntime.register_execution_provider_library("dovetail", onnxruntime_ep_dovetail.get_library_path())
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == onnxruntime_ep_dovetail.get_ep_name()]
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices[:1], {})
    session = onnxruntime.InferenceSession(model, options)
    assert np.array_equal(session.run(None, {"x": X})[0], X + (name == "Slow"))
    repeat(lambda: session.run(None, {"x": X}))


def ort_cpp(path: str) -> None:
    """Daemon threads run a session of ONNX Runtime with a C++ plugin that logs."""
    load(path).makeChatty()
    run_session()


def ort_python(path: str) -> None:
    """Daemon threads run a session of ONNX Runtime with a plugin in Python."""
    dt.get_plugin_registry().register_creator(SlowPythonCreator())
    run_session("SlowPython")


SCENARIOS: Final[dict[str, Callable[[str], None]]] = {
    each.__name__: each
    for each in (
        daemon,
        daemon_one_context,
        daemon_chatty,
        daemon_allocator,
        daemon_build,
        daemon_build_chatty,
        daemon_load,
        daemon_contexts,
        daemon_python,
        daemon_python_build,
        static_destructor,
        library_thread,
        library_thread_busy,
        everything,
        atexit_before,
        atexit_after,
        atexit_close,
        close_while_running,
        exit_in_thread,
        unhandled,
        interrupted,
        hard_exit,
        system_exit,
        non_daemon,
        tensorrt_module,
        ort_cpp,
        ort_python,
    )
}


def warm_up() -> None:
    """Import all that the scenarios use, so that the time before the end is spent in plugins."""
    registry, creator = dt.get_plugin_registry(), SlowPythonCreator()
    registry.register_creator(creator)
    make_engine("SlowPython").run(X)
    registry.deregister_creator(creator)


def wait(pid: int) -> int:
    """The exit status of a process; -9 where it does not end."""
    limit = time.monotonic() + MAX_SECONDS
    while time.monotonic() < limit:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Fork the processes; in one of them, run the scenario and return for the end of the interpreter."""
    path, name, count = str(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
    warm_up()
    statuses = []
    for _ in range(count):
        sys.stdout.flush()
        delay_s = random.uniform(0, 0.04)
        pid = os.fork()
        if pid == 0:
            SCENARIOS[name](path)
            time.sleep(delay_s)
            return
        statuses.append(wait(pid))
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
