"""The part of the execution provider that makes and loads compiled models."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import CString, OrtRuntime, read_text, write_pointer
from onnxruntime_ep_dovetail.compiled.compatibility import describe_plans
from onnxruntime_ep_dovetail.compiled.store import ContextPlans, is_our_context

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.graph.read import ReadGraph
    from onnxruntime_ep_dovetail.session.given import GivenWeights
    from onnxruntime_ep_dovetail.session.options import EpOptions
    from onnxruntime_ep_dovetail.session.partition import Partition

__all__ = ["CompiledModels"]


class CompiledModels:
    """What an execution provider does with ``EPContext`` nodes; it has a runtime and options."""

    runtime: OrtRuntime
    options: EpOptions
    given: GivenWeights
    _compatibility: CString

    @cached_property
    def _plans(self) -> ContextPlans:
        return ContextPlans(self.runtime, self.options, self.given.has)

    def find_compiled(self, read: ReadGraph) -> list[ir.Node]:
        """The nodes that are partitions, which were compiled before."""
        return [node for node in read.addresses if is_our_context(node)]

    def load_compiled(self, read: ReadGraph, graph: int) -> Partition | None:
        """The partition that was compiled before, if the graph is one."""
        return self._plans.load(read, self.model_path(graph))

    def store_compiled(self, partition: Partition, read: ReadGraph, graph: int, fused: int, place: int) -> None:
        """Write the node that stands for a partition to a place, when the session makes a compiled model."""
        if self.options.context.is_enabled:
            path = self.model_path(graph)
            write_pointer(place, self._plans.save(partition, self._name_of(fused), read, path))

    def store_idle(self, read: ReadGraph, fused: int, place: int) -> None:
        """The same for a partition whose results nobody reads."""
        if self.options.context.is_enabled:
            write_pointer(place, self._plans.save_idle(self._name_of(fused), read.model.graph))

    def _name_of(self, node: int) -> str:
        name = ctypes.c_void_p()
        self.runtime.api.Node_GetName(node, ctypes.addressof(name))
        return read_text(name.value)

    def model_path(self, graph: int) -> str:
        """The file of a graph's model; empty when it came from memory."""
        path = ctypes.c_void_p()
        self.runtime.api.Graph_GetModelPath(graph, ctypes.addressof(path))
        return read_text(path.value)

    def get_compiled_model_compatibility_info(self, _graph: int) -> int:
        """What a compiled model says of where it can run; ONNX Runtime copies it."""
        self._compatibility = CString(describe_plans(self._plans.manifests))
        return self._compatibility.address
