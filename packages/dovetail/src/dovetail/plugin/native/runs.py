"""Calls of ``enqueue`` with everything prepared that does not change from run to run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from dovetail.plugin.native.call_memory import CallMemory
from dovetail.plugin.native.convert import pack_addresses, pack_descs
from dovetail.plugin.native.layout import NativeRun
from dovetail.types import PluginTensorDesc

if TYPE_CHECKING:
    from dovetail.plugin.native.plugin import NativePlugin

__all__ = ["PreparedEnqueue"]


class PreparedEnqueue:
    """``enqueue`` of one plugin with fixed descriptors: a call fills in addresses and makes one call of the library.

    Args:
        plugin: The plugin, which this object keeps.
        runtime: The address of its runtime capability.
        input_desc: The descriptors of the inputs.
        output_desc: The descriptors of the outputs.
        memory: Memory of a single call; without it the memory of the descriptors lives as long as this object.
    """

    __slots__ = ("_call", "_inputs", "_kept", "_outputs", "_place", "_plugin", "_run")

    def __init__(
        self,
        plugin: NativePlugin,
        runtime: int,
        input_desc: Sequence[PluginTensorDesc],
        output_desc: Sequence[PluginTensorDesc],
        memory: CallMemory | None = None,
    ) -> None:
        self._plugin: Final = plugin
        descs = pack_descs(input_desc), pack_descs(output_desc)
        addresses: tuple[Any, Any] = pack_addresses([0] * len(input_desc)), pack_addresses([0] * len(output_desc))
        if memory is not None:
            descs = (
                memory.place(descs[0], "the input descriptors of enqueue"),
                memory.place(descs[1], "the output descriptors of enqueue"),
            )
            addresses = (
                memory.place(addresses[0], "the input addresses of enqueue"),
                memory.place(addresses[1], "the output addresses of enqueue"),
            )
        self._kept: Final = descs
        self._inputs, self._outputs = addresses
        self._run: Final = NativeRun(
            runtime, *self._kept, len(input_desc), len(output_desc), self._inputs, self._outputs
        )
        self._place: Final = ctypes.addressof(self._run)
        self._call: Final = plugin.image.table.runtime_enqueue

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int], workspace: int, stream: int) -> int:
        """The status of ``enqueue`` over these addresses."""
        plugin, run = self._plugin, self._run
        plugin.object.begin_call("enqueue")
        try:
            self._inputs[:] = inputs
            self._outputs[:] = outputs
            run.workspace, run.stream = workspace, stream
            if self._call(self._place):
                raise plugin.describe_exception("enqueue")
            status: int = run.status
            return status
        finally:
            plugin.object.end_call()
