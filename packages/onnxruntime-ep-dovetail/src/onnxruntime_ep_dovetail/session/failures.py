"""A failure before anything is compiled ends the session: ONNX Runtime itself would go on without us."""

from __future__ import annotations

import ctypes
import traceback

from onnxruntime_ep_dovetail.abi import OrtRuntime, read_pointers

__all__ = ["ClaimFailures"]


class ClaimFailures:
    """The part of the execution provider that remembers a failure until ONNX Runtime listens; it has a runtime."""

    runtime: OrtRuntime
    _failure: BaseException | None = None

    def fail_later(self, error: BaseException) -> None:
        """Fail when ONNX Runtime next listens."""
        self._failure = error

    def keep_failure(self, error: BaseException, graph: int, info: int) -> None:
        """Remember a failure to say what is taken, and take one node: ONNX Runtime listens when it compiles that."""
        self._failure = error
        nodes = self._nodes(graph)
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
            _forget_graph(self._failure)
            raise self._failure

    def on_session_initialization_end(self) -> None:
        """Fail a session in which nothing was compiled; from 1.27 on ONNX Runtime asks for this too."""
        self.raise_failure()


def _forget_graph(error: BaseException) -> None:
    """Empty the frames of an exception: they hold views of a graph that ONNX Runtime has freed since it was raised."""
    one: BaseException | None = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__
