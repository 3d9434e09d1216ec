"""A failure to say which nodes are taken ends the session: ONNX Runtime would log it and go on without us."""

from __future__ import annotations

import ctypes
from typing import Final

from onnxruntime_ep_dovetail.abi import Runtime, read_pointers

__all__ = ["ClaimFailures"]

_HAS_END: Final = 27
"""From this version on ONNX Runtime asks at the end of a session's creation whether all is well."""


class ClaimFailures:
    """The part of the execution provider that remembers a failure until ONNX Runtime listens; it has a runtime."""

    runtime: Runtime
    _failure: BaseException | None = None

    def keep_failure(self, error: BaseException, graph: int, info: int) -> None:
        """Remember a failure; raises it again unless there is a better way to have it heard.

        An older ONNX Runtime hears it when it compiles, so it is given a node to compile.
        """
        self._failure = error
        nodes = [] if self.runtime.version >= _HAS_END else self._nodes(graph)
        if not nodes:
            raise error
        one = (ctypes.c_void_p * 1)(nodes[0])
        self.runtime.ep_api.EpGraphSupportInfo_AddNodesToFuse(info, ctypes.addressof(one), 1, None)

    def _nodes(self, graph: int) -> list[int | None]:
        api = self.runtime.api
        return read_pointers(api.Graph_GetNumNodes, api.Graph_GetNodes, graph)

    def raise_failure(self) -> None:
        """Raise what was remembered, if anything."""
        if self._failure is not None:
            raise self._failure

    def on_session_initialization_end(self) -> None:
        """Fail a session that would otherwise run without us and not say so."""
        self.raise_failure()
