"""Detection of outputs that a C++ plugin on the host does not write, such as one whose CUDA launch fails unchecked.

The first run over given shapes gets outputs that hold a pattern: NaN with a payload of its own for floating-point
types, the byte 0xA5 for the others. Later runs are not checked and cost nothing.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.errors import PluginError
from dovetail.formats import packed_shape
from dovetail.loggers import ILogger, Logger, Severity
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import APILanguage
from dovetail.types import DataType, PluginTensorDesc

__all__ = ["UNCHECKED_LAUNCH", "CheckedEnqueue", "can_check_outputs"]

_NAN: Final[dict[DataType, np.unsignedinteger[Any]]] = {
    DataType.FLOAT: np.uint32(0x7FC5A5A5),
    DataType.HALF: np.uint16(0x7EA5),
    DataType.BF16: np.uint16(0x7FE5),
    DataType.FP8: np.uint8(0x7F),
}
_INTEGERS: Final[dict[DataType, np.unsignedinteger[Any]]] = {
    DataType.INT32: np.uint32(0xA5A5A5A5),
    DataType.INT64: np.uint64(0xA5A5A5A5A5A5A5A5),
}
_BYTE: Final[np.unsignedinteger[Any]] = np.uint8(0xA5)
_OTHER_BYTE: Final = np.uint8(0x5A)
"""Pattern of the second run, which tells untouched memory from a result that equals the first pattern."""
UNCHECKED_LAUNCH: Final = (
    "check that the library runs on this machine: a launch without a CUDA device fails and writes nothing; check "
    "cudaGetLastError() after the launch and return its status"
)
"""Fix for a C++ plugin on the host that writes nothing."""


class _FilledOutput(NamedTuple):
    """Memory of one output with its pattern."""

    output: int
    memory: npt.NDArray[Any]
    pattern: np.unsignedinteger[Any]
    is_whole: bool
    """Whether every element must be written: false where only the run determines how many there are."""

    @property
    def num_untouched(self) -> int:
        """Elements that hold the pattern."""
        return int(np.count_nonzero(self.memory == self.pattern))

    @property
    def is_untouched(self) -> bool:
        """Whether no element was written."""
        return self.num_untouched == self.memory.size


def can_check_outputs(handle: PluginHandle) -> bool:
    """True for plugins in C++: their libraries may open CUDA at run time, which no inspection of the file finds."""
    return getattr(handle.runtime, "api_language", None) is APILanguage.CPP


class CheckedEnqueue:
    """The first `enqueue` of a C++ plugin on the host over given shapes.

    Args:
        handle: The plugin.
        descs: Descriptors of the outputs.
        aliased: Indices of outputs that share the memory of an input and are not filled.
        logger: Receives warnings about outputs that were not or only partly written.
    """

    def __init__(
        self,
        handle: PluginHandle,
        descs: Sequence[PluginTensorDesc],
        aliased: frozenset[int] = frozenset(),
        logger: ILogger | None = None,
    ) -> None:
        self._handle, self._descs, self._aliased = handle, descs, aliased
        self._logger = logger or Logger()

    def run(self, enqueue: Callable[[], Any], outputs: Sequence[int]) -> Any:
        """Run the plugin over filled outputs.

        Args:
            enqueue: Runs the plugin over these outputs.
            outputs: Addresses of the outputs.

        Returns:
            The status of the plugin.

        Raises:
            PluginError: The plugin reported success and wrote none of its outputs.
        """
        filled = [self._fill(i, address) for i, address in enumerate(outputs) if i not in self._aliased]
        checked = [each for each in filled if each is not None]
        status = enqueue()
        if status:  # the caller reports it
            return status
        untouched = [each for each in checked if each.is_untouched]
        if checked and len(untouched) == len(outputs):
            return self._run_again(enqueue, checked)
        for each in checked:
            self._warn(each)
        return status

    def _fill(self, index: int, address: int) -> _FilledOutput | None:
        desc = self._descs[index]
        is_dynamic = any(size < 0 for size in desc.dims)
        count = desc.room if is_dynamic else math.prod(packed_shape(desc.dims, desc.format))
        pattern = _NAN.get(desc.type, _INTEGERS.get(desc.type, _BYTE))
        size_bytes = (count * desc.type.bits + 7) // 8
        if not size_bytes or not address:
            return None
        memory = np.frombuffer((ctypes.c_char * size_bytes).from_address(address), pattern.dtype)
        memory.fill(pattern)
        return _FilledOutput(index, memory, pattern, not is_dynamic and pattern is not _BYTE)

    def _run_again(self, enqueue: Callable[[], Any], checked: Sequence[_FilledOutput]) -> Any:
        """Run over another pattern: a small result may equal the first one."""
        for each in checked:
            each.memory.view(np.uint8).fill(_OTHER_BYTE)
        status = enqueue()
        if status or any((each.memory.view(np.uint8) != _OTHER_BYTE).any() for each in checked):
            return status
        raise PluginError(
            "enqueue returned success and wrote none of its outputs",
            where=self._handle.where,
            expected="every output written",
            fix=UNCHECKED_LAUNCH,
        )

    def _warn(self, filled: _FilledOutput) -> None:
        count = filled.num_untouched
        is_none = count == filled.memory.size and (filled.pattern.dtype.itemsize > 1 or count > 4)
        if not is_none and not (count and filled.is_whole):
            return
        how_many = "no element" if is_none else f"{filled.memory.size - count} of {filled.memory.size} elements"
        self._logger.log(
            Severity.WARNING,
            f"{self._handle.where}: enqueue wrote {how_many} of output {filled.output}; the rest keeps the contents "
            "of the memory (in this run a pattern, NaN for floating-point types)",
        )
