"""What every callback of a process shares: the settings and generators that a plugin must leave as they are."""

from __future__ import annotations

import gc
import locale
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

__all__ = ["find_change", "moved_generators", "snapshot"]

_PARTS: Final[dict[str, Callable[[], object]]] = {
    "the generator of the random module": random.getstate,
    "the global generator of NumPy": lambda: repr(np.random.get_state()),
    "NumPy's handling of floating-point errors": np.geterr,
    "the working directory": os.getcwd,
    "the environment": lambda: dict(os.environ),
    "the recursion limit": sys.getrecursionlimit,
    "the garbage collector": gc.isenabled,
    "the locale": lambda: locale.setlocale(locale.LC_ALL),
    "sys.stdout": lambda: id(sys.stdout),
    "sys.path": lambda: list(sys.path),
    "the handling of a signal": lambda: [signal.getsignal(number) for number in signal.valid_signals()],
    "the filters of warnings": lambda: [id(entry) for entry in warnings.filters],
    "NumPy's print options": lambda: repr(np.get_printoptions()),
}


@contextmanager
def moved_generators() -> Iterator[None]:
    """Have the global generators where no plugin left them, so that setting one to a fixed state shows."""
    kept, kept_numpy = random.getstate(), np.random.get_state()
    random.random()  # noqa: S311
    np.random.random()
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(kept_numpy)


def snapshot() -> dict[str, object]:
    """The state of the process, by what it is the state of."""
    return {name: read() for name, read in _PARTS.items()}


def find_change(before: dict[str, object]) -> str | None:
    """The first part that is not as it was."""
    after = snapshot()
    return next((name for name in _PARTS if before[name] != after[name]), None)
