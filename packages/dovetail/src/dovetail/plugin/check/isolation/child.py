"""A child process that is watched: what it reports, and how it ended when it did not end by itself.

The child is a copy of this process (``fork``), so it can check objects that exist only here: a creator defined in a
notebook, in ``__main__`` or inside a test. What the plugin prints goes to a file and not among the answers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final, NoReturn

from dovetail.plugin.check.isolation.journal import Journal, JournalEntry

__all__ = ["CAN_ISOLATE", "ChildAnswer", "Fate", "Send", "fill_memory", "fork", "frames_of", "run_in_child"]

CAN_ISOLATE: Final = sys.platform == "linux"
"""Whether this process can be copied. Elsewhere libraries of the system do not survive a fork."""

Send = Callable[[dict[str, Any]], None]
"""Hands one message to the process that watches."""

_POLL_S: Final = 0.02
_DUMP_S: Final = 0.2
_PERTURB: Final = -6
"""``M_PERTURB`` of glibc: new memory gets the complement of the byte, freed memory the byte."""
_FILL: Final = 0xA5


@dataclass(frozen=True)
class Fate:
    """How a child ended that did not end by itself.

    Attributes:
        how: What happened, as the end of a sentence.
        entry: The callback that ran, or the last one that did.
        rule_id: The rule that was being judged.
        situation: The inputs of the latest run.
        stack: What the fault handler wrote: the stack of every thread, innermost frame first.
    """

    how: str
    entry: JournalEntry | None
    rule_id: str
    situation: str
    stack: str


@dataclass
class ChildAnswer:
    """What a child sent, what was printed in it, and its fate unless it came to its end."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    printed: str = ""
    fate: Fate | None = None


def run_in_child(work: Callable[[Send], None], journal: Journal, *, timeout_s: float) -> ChildAnswer:
    """Run ``work`` in a copy of this process, and end it when a callback takes longer than ``timeout_s``."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as stack:
        pid = fork()
        if not pid:
            os.close(reader)
            _work_and_leave(work, writer, printed, stack)
        os.close(writer)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # whichever of the two processes is first
            os.setpgid(pid, pid)
        watch = _Watch(pid, reader, journal, stack, timeout_s)
        try:
            answer = watch.until_end()
        finally:
            watch.finish()
        answer.printed = _read(printed)
        return answer


def fork() -> int:
    """Copy this process; 0 in the copy."""
    with warnings.catch_warnings():
        # Newer Pythons warn where other threads exist: locks that they hold are held forever in the copy. The copy
        # runs the plugin and no code of those threads, and the watch ends it when it waits for such a lock.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        # What the copied process left for the collector may belong to threads that the copy does not have: a pool of
        # theirs that is taken down there waits for them forever.
        gc.freeze()
    return pid


def fill_memory(byte: int) -> None:
    """Have C's allocator fill what it gives out and takes back, so that no right number is read from such memory.

    Processes that fill it differently give different results where a plugin reads what it never wrote, or has freed.
    """
    import ctypes  # only where a plugin is checked

    with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such option
        ctypes.CDLL(None).mallopt(_PERTURB, byte)


def _work_and_leave(work: Callable[[Send], None], writer: int, printed: IO[bytes], stack: IO[bytes]) -> NoReturn:
    """The life of the child: nothing of the parent's runs in it afterwards, neither handlers nor buffers."""
    status = 70
    try:
        os.setpgid(0, 0)
        _redirect(printed, stack)
        fill_memory(_FILL)
        with open(writer, "w", encoding="utf-8") as pipe:

            def send(message: dict[str, Any]) -> None:
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()

            work(send)
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must not run on in two processes
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def _redirect(printed: IO[bytes], stack: IO[bytes]) -> None:
    for number in (1, 2):
        os.dup2(printed.fileno(), number)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1)  # noqa: SIM115
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack)


class _Watch:
    """The parent's side of one child."""

    def __init__(self, pid: int, reader: int, journal: Journal, stack: IO[bytes], timeout_s: float) -> None:
        self._pid, self._reader, self._journal, self._stack = pid, reader, journal, stack
        self._limit_ns = int(timeout_s * 1e9)

    def until_end(self) -> ChildAnswer:
        """Collect messages until the child is gone or must be ended."""
        answer, rest = ChildAnswer(), b""
        while True:
            ready, _, _ = select.select([self._reader], [], [], _POLL_S)
            if ready:
                chunk = os.read(self._reader, 1 << 16)
                if not chunk:
                    answer.fate = self._find_fate(is_done=bool(answer.messages and answer.messages[-1].get("done")))
                    return answer
                *lines, rest = (rest + chunk).split(b"\n")
                answer.messages += [json.loads(line) for line in lines]
            elif (late := self._find_late()) is not None:
                answer.fate = self._end(late)
                return answer

    def _find_late(self) -> JournalEntry | None:
        running = self._journal.running()
        now = time.monotonic_ns()
        return running[0] if running and now - running[0].began_ns > self._limit_ns else None

    def _end(self, entry: JournalEntry) -> Fate:
        """Have the child write where it is, then end it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
            time.sleep(_DUMP_S)
        return self._fate(f"did not return within {self._limit_ns / 1e9:g} s", entry)

    def _find_fate(self, *, is_done: bool) -> Fate | None:
        # The child stays a zombie until finish, so that nobody else is given its number.
        state = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        code = 0 if state is None else state.si_status
        if state is not None and state.si_code != os.CLD_EXITED:
            how = f"ended the process with {signal.Signals(code).name}"
        elif code or not is_done:
            how = f"ended the process with exit code {code}"
        else:
            return None
        return self._fate(how, next(iter(self._journal.running()), self._journal.latest()))

    def _fate(self, how: str, entry: JournalEntry | None) -> Fate:
        return Fate(how, entry, self._journal.rule_id, self._journal.situation, _read(self._stack))

    def finish(self) -> None:
        """Leave no process behind: the child is the leader of a group of its own."""
        os.close(self._reader)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def frames_of(stack: str) -> Iterator[tuple[str, int, str]]:
    """File, line and function of each frame that the fault handler wrote, in its order."""
    for line in stack.splitlines():
        head, _, function = line.strip().rpartition(" in ")
        if head.startswith("File ") and ", line " in head:
            file, _, number = head[len("File ") :].rpartition(", line ")
            yield file.strip('"'), int(number), function
