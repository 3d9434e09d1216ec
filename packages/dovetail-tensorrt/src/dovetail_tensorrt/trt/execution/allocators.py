"""Allocators of scripts as the engine calls them: what raises is printed and counts as no memory."""

from __future__ import annotations

from typing import Any

import dovetail
from dovetail_tensorrt.trt.answers import call_user

__all__ = ["GuardedAllocator", "GuardedOutputAllocator"]


class GuardedAllocator(dovetail.IGpuAllocator):
    """Calls an allocator of a script.

    Args:
        allocator: The script's own.
    """

    def __init__(self, allocator: dovetail.IGpuAllocator) -> None:
        super().__init__()
        self.given = allocator

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        """An address, or 0."""
        return int(call_user("allocate", lambda: self.given.allocate(size, alignment, flags), 0) or 0)

    def reallocate(self, address: int, alignment: int, new_size: int) -> int:
        """An address, or 0."""
        return int(call_user("reallocate", lambda: self.given.reallocate(address, alignment, new_size), 0) or 0)

    def deallocate(self, memory: int) -> bool:
        """Whether the memory was taken back."""
        return bool(call_user("deallocate", lambda: self.given.deallocate(memory), failure=False))

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        """An address, or 0."""
        return int(
            call_user("allocate_async", lambda: self.given.allocate_async(size, alignment, flags, stream), 0) or 0
        )

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Whether the memory was taken back."""
        return bool(call_user("deallocate_async", lambda: self.given.deallocate_async(memory, stream), failure=False))


class GuardedOutputAllocator(dovetail.IOutputAllocator):
    """Calls an output allocator of a script.

    Args:
        allocator: The script's own.
    """

    def __init__(self, allocator: Any) -> None:
        super().__init__()
        self.given = allocator

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """An address, or 0."""
        return int(
            call_user(
                "reallocate_output", lambda: self.given.reallocate_output(tensor_name, memory, size, alignment), 0
            )
            or 0
        )

    def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        """An address, or 0; scripts of version 8 have ``reallocate_output`` alone."""
        if not hasattr(self.given, "reallocate_output_async"):
            return self.reallocate_output(tensor_name, memory, size, alignment)
        arguments = (tensor_name, memory, size, alignment, stream)
        return int(call_user("reallocate_output_async", lambda: self.given.reallocate_output_async(*arguments), 0) or 0)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Pass the shape on."""
        call_user("notify_shape", lambda: self.given.notify_shape(tensor_name, shape), None)
