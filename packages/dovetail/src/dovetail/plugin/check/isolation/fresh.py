"""Fresh processes: copies in which nothing of the plugin has run yet, for runs that must owe nothing to others.

A process is copied before the check begins and waits. Each request is answered by a copy of that copy, which ends
afterwards. So what a plugin keeps in classes, modules or files of the process cannot reach the answer.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final, NoReturn

from dovetail.plugin.check.isolation.child import fill_memory, fork
from dovetail.rules import Blocked

__all__ = ["FreshProcesses"]

Serve = Callable[[bytes], bytes]
_FILL: Final = 0x3C
"""Not what the process of the check fills memory with."""


class FreshProcesses:
    """Answers requests, each in a process of its own.

    Args:
        serve: Turns a request into an answer; runs in the copies.
    """

    def __init__(self, serve: Serve) -> None:
        here, there = Pipe()
        self._connection = here
        if not fork():
            here.close()
            _serve_until_closed(there, serve)
        there.close()

    def ask(self, request: bytes) -> bytes:
        """The answer of a fresh process.

        Raises:
            Blocked: The process did not come to an answer.
        """
        self._connection.send_bytes(request)
        answer = self._connection.recv_bytes()
        if not answer:
            raise Blocked("a process in which the plugin ran first did not come to its end")
        return answer


def _serve_until_closed(connection: Connection, serve: Serve) -> NoReturn:
    with contextlib.suppress(EOFError, OSError):
        while True:
            request = connection.recv_bytes()
            connection.send_bytes(_answer_in_copy(request, serve))
    os._exit(0)


def _answer_in_copy(request: bytes, serve: Serve) -> bytes:
    """Nothing when the copy ended otherwise than by answering."""
    here, there = Pipe(duplex=False)
    pid = fork()
    if not pid:
        fill_memory(_FILL)
        with contextlib.suppress(BaseException):
            there.send_bytes(serve(request))
        os.kill(os.getpid(), signal.SIGKILL)  # no handler and no buffer of the copied process may run
    there.close()
    answer = b""
    with contextlib.suppress(EOFError, OSError):
        answer = here.recv_bytes()
    os.waitpid(pid, 0)
    here.close()
    return answer
