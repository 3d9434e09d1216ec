"""Kernels that plugins bring as PTX or cubins: loaded once for an engine, launched with what each run has."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final

from dovetail.errors import PluginError
from dovetail.provider.interfaces import DeviceKernel, LaunchShape
from dovetail_cuda.run.driver import Launch, Parameters
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.kernel_parameters import (
    ADDRESS_BYTES,
    INT32_BYTES,
    NUM_SCRATCH,
    describe_parameters,
    find_parameters,
)

__all__ = ["PluginKernel"]

_ELF: Final = b"\x7fELF"
_MASK: Final = (1 << 64) - 1


class PluginKernel(DeviceKernel):
    """One kernel, whose code goes when nothing on the device can use it any more."""

    def __init__(self, gpu: Gpu, code: bytes, name: str) -> None:
        gpu.release_now()
        self._gpu, self._name = gpu, name
        library = gpu.driver.load_library(_finish(code))
        self._finalizer = weakref.finalize(self, gpu.release_later, lambda: gpu.driver.unload_library(library))
        self._finalizer.atexit = False  # the process ends, and its code with it
        self._library = library
        self._functions: dict[int, int] = {}
        """The kernel as it was found for each amount of shared memory."""
        self._parameters = find_parameters(gpu.driver, self._find(0), code, name)
        self._verified: LaunchShape | None = None
        """The launch whose parameters were compared last; a context has one for each shape."""

    def launch(self, shape: LaunchShape, parameters: Sequence[int], stream: int) -> None:
        """Put it on a stream; an integer of 32 bits lies in the first half of its place."""
        if shape is not self._verified:
            self._verify(shape, parameters)
        threads, *more = shape.block
        launch = Launch(
            function=self._find(shape.shared_bytes),
            grid=shape.grid,
            threads=threads,
            more_threads=(more[0], more[1]),
            shared_bytes=shape.shared_bytes,
        )
        self._gpu.driver.launch(launch, Parameters([value & _MASK for value in parameters]), stream)

    def _verify(self, shape: LaunchShape, parameters: Sequence[int]) -> None:
        """Compare the parameters of a launch with those of the kernel: addresses have 8 bytes, and integers 4.

        Raises:
            PluginError: They differ.
        """
        own, extra = self._parameters[: len(parameters)], self._parameters[len(parameters) :]
        integers = [number for number, each in enumerate(own) if each.size_bytes == INT32_BYTES]
        first = integers[0] if integers else 0
        is_right = (
            len(own) == len(parameters)
            and len(extra) <= NUM_SCRATCH
            and integers == list(range(first, first + len(integers)))
            and tuple(parameters[first : first + len(integers)]) == shape.arguments
            and all(each.size_bytes == ADDRESS_BYTES for each in extra)
        )
        for number, each in enumerate(own):
            is_address = number not in integers
            is_size = each.size_bytes == (ADDRESS_BYTES if is_address else INT32_BYTES)
            is_right = is_right and is_size and each.is_address in (None, is_address)
        if not is_right:
            num_addresses = len(parameters) - len(shape.arguments)
            raise PluginError(
                "a kernel has other parameters than its launch passes",
                where=f"kernel {self._name[:200]!a}",
                expected=describe_parameters(self._parameters),
                got=f"{num_addresses} addresses of 8 bytes and {len(shape.arguments)} integers of 4 bytes",
                fix="give get_kernel_launch one argument for each 32-bit integer of the kernel, between the inputs and "
                "the outputs",
            )
        self._verified = shape

    def _find(self, shared_bytes: int) -> int:
        if shared_bytes not in self._functions:
            driver = self._gpu.driver
            self._functions[shared_bytes] = driver.find_function(self._library, self._name, shared_bytes)
        return self._functions[shared_bytes]

    def close(self) -> None:
        """Let go of the code."""
        self._finalizer()


def _finish(code: bytes) -> bytes:
    r"""PTX is text, which the driver reads to its final NUL.

    >>> _finish(b".version 8.0"), _finish(b"\x7fELF...")
    (b'.version 8.0\x00', b'\x7fELF...')
    """
    return code if code.startswith(_ELF) or code.endswith(b"\0") else code + b"\0"
