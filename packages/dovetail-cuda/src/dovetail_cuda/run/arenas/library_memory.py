"""Memory that PyTorch and CuPy take while a graph is captured: replays use it, so nobody else may.

Both keep memory that was given back for whoever asks next. What a plugin took for a moment in a capture would belong to
someone else in a replay. While a capture lasts they take from pools of their own, which are the graph's as long as it
lives, and the next graph's after that: PyTorch ends the process when a pool is dropped while another one is in use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

__all__ = ["LibraryMemory"]


_spare: Final[dict[str, list[Any]]] = {"torch": [], "cupy": []}
"""Pools that no graph uses, by library."""


class LibraryMemory:
    """The pools of one capture; a library that nobody has imported has none."""

    def __init__(self) -> None:
        self._pools: dict[str, Any] = {}
        self._entered = ExitStack()

    @classmethod
    def open(cls) -> LibraryMemory:
        """Have libraries take the memory of this thread from pools of their own."""
        memory = cls()
        memory._enter_torch(sys.modules.get("torch"))
        memory._enter_cupy(sys.modules.get("cupy"))
        return memory

    def leave(self) -> None:
        """Have libraries take memory as before; what they took stays."""
        self._entered.close()

    def close(self) -> None:
        """Let the pools go to the next capture; nothing on the device may use them any more."""
        self.leave()
        while self._pools:
            library, pool = self._pools.popitem()
            _spare[library].append(pool)

    def _enter_torch(self, torch: Any) -> None:
        cuda: Any = getattr(torch, "cuda", None)
        if hasattr(cuda, "use_mem_pool") and cuda.is_initialized():
            pool = self._take("torch", cuda.MemPool)
            self._entered.enter_context(cuda.use_mem_pool(pool))

    def _enter_cupy(self, cupy: Any) -> None:
        if hasattr(cupy, "cuda"):
            pool = self._take("cupy", cupy.cuda.MemoryPool)
            self._entered.enter_context(cupy.cuda.using_allocator(pool.malloc))

    def _take(self, library: str, make: Callable[[], Any]) -> Any:
        try:
            pool = _spare[library].pop()
        except IndexError:
            pool = make()
        self._pools[library] = pool
        return pool
