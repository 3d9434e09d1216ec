"""Release of resources when the thread that uses them ends."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

__all__ = ["Closable", "close_with_thread"]


class Closable(Protocol):
    """Resources of one thread; closing them twice does nothing."""

    def close(self) -> None:
        """Release the resources."""


class _ThreadEnd:
    """Value of a thread local, which Python drops when the thread ends."""

    def __init__(self) -> None:
        self.closables: weakref.WeakSet[Closable] = weakref.WeakSet()

    def __del__(self) -> None:
        for closable in list(self.closables):
            closable.close()


_local = threading.local()


def close_with_thread(closable: Closable) -> None:
    """Close resources when this thread ends, if Python started the thread.

    Any other thread has a Python state, and thread locals, only while a callback runs; its resources are released by
    the next run that looks for threads that have ended.
    """
    if not _is_started_by_python():
        return
    if not hasattr(_local, "end"):
        _local.end = _ThreadEnd()
    _local.end.closables.add(closable)


def _is_started_by_python() -> bool:
    own = threading.get_ident()
    known = [thread for thread in threading.enumerate() if thread.ident == own]
    return bool(known) and not isinstance(known[0], threading._DummyThread)
