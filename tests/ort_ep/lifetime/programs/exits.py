"""End processes while sessions of ONNX Runtime are in use, and print their exit statuses as JSON.

Arguments: the name of a scenario and the number of processes. Each is forked before ONNX Runtime is imported, whose
threads do not survive a fork, works for a random time of at most 40 ms, and ends as any Python process does. A process
that takes more than a minute is killed and has the status -9.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import dovetail.api  # noqa: F401 - imported once, before the processes are forked

MAX_SECONDS: Final = 60


def repeat(work: Callable[[], object], *, count: int = 3) -> list[threading.Thread]:
    """Do some work in daemon threads until the process ends."""

    def run() -> None:
        while True:
            work()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def open_device(**options: Any) -> Any:
    """A host device that ONNX Runtime lists."""
    from tests.support.ort_devices import devices_in_ort

    manager = devices_in_ort(**options)
    sys.kept = manager  # type: ignore[attr-defined]
    return manager.__enter__()[0]


def make_session(**options: Any) -> tuple[Any, Any]:
    """A session on a host device, and a function that runs it."""
    from tests.support.ort_ep_models import feeds, plain_model

    device, inputs = open_device(), feeds()
    session = device.session(plain_model(), **options)
    session.run(None, inputs)
    return session, lambda: session.run(None, inputs)


def run() -> None:
    """Daemon threads run a session on a device."""
    repeat(make_session()[1])


def kernels() -> None:
    """Daemon threads run a session whose nodes are kernels on a device."""
    repeat(make_session(route="kernels")[1])


def cpu() -> None:
    """Daemon threads run a session on the CPU."""
    from tests.support import ort_ep
    from tests.support.ort_ep_models import feeds, plain_model

    ort_ep.register()
    session, inputs = ort_ep.dovetail_session(plain_model()), feeds()
    session.run(None, inputs)
    repeat(lambda: session.run(None, inputs))


def binding() -> None:
    """Daemon threads run a session with bound values, and copy the outputs to the host."""
    from tests.support.ort_ep_models import feeds

    session, _ = make_session()

    def work() -> None:
        bound = session.io_binding()
        for name, array in feeds().items():
            bound.bind_cpu_input(name, array)
        bound.bind_output("y")
        session.run_with_iobinding(bound)
        bound.copy_outputs_to_cpu()

    work()
    repeat(work)


def sessions(**options: Any) -> None:
    """Daemon threads make sessions and run each of them once."""
    from tests.support.ort_ep_models import feeds, plain_model

    device = open_device()

    def work() -> None:
        device.session(plain_model(), **options).run(None, feeds())

    work()
    repeat(work, count=2)


def kernel_sessions() -> None:
    """Daemon threads make sessions whose nodes are kernels."""
    sessions(route="kernels")


def busy() -> None:
    """Daemon threads run a session, beside threads that never release the GIL of their own accord."""
    repeat(make_session()[1])
    repeat(lambda: sum(range(1000)), count=2)


def exception() -> None:
    """Daemon threads run a session, and the main thread ends with an exception."""
    run()
    raise RuntimeError("the main thread fails")


def join() -> None:
    """A handler that was registered before the library waits for the threads."""
    is_over = threading.Event()
    threads: list[threading.Thread] = []

    def stop() -> None:
        is_over.set()
        for thread in threads:
            thread.join()

    atexit.register(stop)
    run_once = make_session()[1]

    def work() -> None:
        if is_over.is_set():
            sys.exit()
        run_once()

    threads += repeat(work)


def run_in_handlers() -> None:
    """Handlers that were registered before and after the library run the session that daemon threads run."""
    made: list[Callable[[], object]] = []
    atexit.register(lambda: made[0]())
    run_once = make_session()[1]
    made.append(run_once)
    atexit.register(run_once)
    repeat(run_once)


SCENARIOS: Final[dict[str, Callable[[], None]]] = {
    each.__name__: each
    for each in (run, kernels, cpu, binding, sessions, kernel_sessions, busy, exception, join, run_in_handlers)
}


def wait(pid: int) -> int:
    """The exit status of a process; -9 if it does not end."""
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
    name, count = sys.argv[1], int(sys.argv[2])
    statuses = []
    for _ in range(count):
        sys.stdout.flush()
        delay_s = random.uniform(0, 0.04)
        pid = os.fork()
        if pid == 0:
            SCENARIOS[name]()
            time.sleep(delay_s)
            return
        statuses.append(wait(pid))
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
