"""Memory that PyTorch and CuPy take while a graph is captured: replays use it, so nobody else may.

Both keep memory that was given back for whoever asks next. What a plugin took for a moment in a capture would belong to
someone else in a replay. While a capture lasts they take from pools of their own, which live as long as the graph.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any

__all__ = ["LibraryMemory"]


class LibraryMemory:
    """The pools of one capture; libraries that nobody has imported are not."""

    def __init__(self) -> None:
        self._pools: list[Any] = []
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
        """Give back what was taken."""
        self.leave()
        self._pools.clear()

    def _enter_torch(self, torch: Any) -> None:
        cuda: Any = getattr(torch, "cuda", None)
        if hasattr(cuda, "use_mem_pool") and cuda.is_initialized():
            self._pools.append(cuda.MemPool())
            self._entered.enter_context(cuda.use_mem_pool(self._pools[-1]))

    def _enter_cupy(self, cupy: Any) -> None:
        if hasattr(cupy, "cuda"):
            self._pools.append(cupy.cuda.MemoryPool())
            self._entered.enter_context(cupy.cuda.using_allocator(self._pools[-1].malloc))
