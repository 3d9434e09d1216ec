"""The kernel route of the execution provider: ONNX Runtime runs node by node, with the back end's kernels.

Whole partitions are faster; this route is for whoever wants ONNX Runtime's own order, memory plan and profile of single
nodes. What has no kernel in the list is still compiled: the layers of plugins, whose operators nobody knows beforehand.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

import dovetail
from onnxruntime_ep_dovetail.abi import KernelCreator, OrtRuntime, write_pointer
from onnxruntime_ep_dovetail.claim.choice import takes_all
from onnxruntime_ep_dovetail.claim.groups import Claims, find_groups
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.copies import CopyKernels
from onnxruntime_ep_dovetail.device.frame import place_partition
from onnxruntime_ep_dovetail.graph.values import is_dense
from onnxruntime_ep_dovetail.kernels.impl import make_creator
from onnxruntime_ep_dovetail.kernels.node import KernelNode
from onnxruntime_ep_dovetail.kernels.table import is_control_flow, list_kernels, make_registry, schemas_of_runtime
from onnxruntime_ep_dovetail.session.options import EpOptions
from onnxruntime_ep_dovetail.session.partition import Partition, build_partition

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.graph.read import ReadGraph

__all__ = ["KernelRoute", "KernelTable"]

_KERNELS = "kernels"


class KernelTable:
    """The registries that a factory gives out, one a back end.

    ONNX Runtime copies a registry and keeps the function that makes kernels, so that is kept for good: a session may
    outlive the registration of the library.
    """

    def __init__(self, runtime: OrtRuntime) -> None:
        self._runtime = runtime
        self._registries: dict[Backend, int] = {}
        self._operators: dict[Backend, frozenset[tuple[str, str]]] = {}

    def find(self, backend: Backend, copies: CopyKernels | None) -> int:
        """The registry of a back end.

        Args:
            backend: Whose kernels.
            copies: Those that take values to the back end's memory and back; None where that is the host's.
        """
        if backend not in self._registries:
            creator = make_creator(self._runtime)
            _creators.append(creator)
            entries = list_kernels(backend.provider, schemas_of_runtime(self._runtime))
            registry = make_registry(self._runtime, ((entry, creator) for entry in entries))
            if copies is not None:
                copies.add_to(registry)
            self._registries[backend] = registry
            self._operators[backend] = frozenset((entry.domain, entry.op) for entry in entries)
        return self._registries[backend]

    def has(self, backend: Backend, node: ir.Node) -> bool:
        """Whether the registry of a back end, which was given out, has the operator of a node.

        ONNX Runtime also finds the kernels of custom operators when it is asked for one, and those are placeholders.
        """
        return ("" if node.domain == "ai.onnx" else node.domain, node.op_type) in self._operators[backend]


_creators: list[KernelCreator] = []


class KernelRoute:
    """What an execution provider does on the kernel route."""

    runtime: OrtRuntime
    address: int
    backend: Backend
    options: EpOptions
    logger: int
    kernel_table: KernelTable
    copy_kernels: CopyKernels | None
    opsets: dict[str, int]
    """What the session's model imports, as far as graphs have shown."""

    @property
    def is_kernel_route(self) -> bool:
        """Whether this session takes this route."""
        return self.options.route == _KERNELS

    def start_kernel_route(self, kernel_table: KernelTable) -> None:
        """Get ready, before ONNX Runtime asks for anything."""
        self.kernel_table = kernel_table
        self.opsets = {}
        self._shared: dict[bytes, Partition] = {}

    @property
    def _is_listing(self) -> bool:
        """Whether ONNX Runtime may only want to list kernels: it then has no session, so neither options nor a log."""
        return self.options == EpOptions() and self.logger == self.runtime.logger

    def get_kernel_registry(self, target: int) -> None:
        """The kernels; on the other route, whose sessions should not wait until all are known, those that copy."""
        is_asked = self.is_kernel_route or self._is_listing
        copies = self.copy_kernels
        others = None if copies is None else copies.registry
        write_pointer(target, self.kernel_table.find(self.backend, copies) if is_asked else others)

    # taking nodes

    def note_opsets(self, read: ReadGraph) -> None:
        """Remember what the model imports; kernels are not told."""
        self.opsets |= read.model.opset_imports

    def claim_kernels(self, read: ReadGraph, claims: Claims, info: int) -> Claims:
        """Take the nodes that kernels run, each by itself; what is left of the claims, to be compiled."""
        chosen = {node for group in claims.groups for node in group}
        nodes = list(read.model.graph)
        control = {node for node in nodes if is_control_flow(node)}
        wanted = (chosen - control) | (control if takes_all(self.backend, self.options) else chosen & control)
        taken = {node for node in nodes if node in wanted and self._has_kernel(node, read.addresses[node], info)}
        for node in nodes:
            if node in taken:
                self.runtime.ep_api.EpGraphSupportInfo_AddSingleNode(info, read.addresses[node])
        rest = chosen - taken - control
        return find_groups([dovetail.Support(node=node, provider=None) for node in nodes], rest)

    def _has_kernel(self, node: ir.Node, address: int, info: int) -> bool:
        is_excluded = node.op_type in self.options.exclude
        if is_excluded or not self.kernel_table.has(self.backend, node) or not all(map(is_dense, _border(node))):
            return False
        if _has_texts(node) and not self.runtime.api.has("KernelInfoGetAttributeArray_string"):
            return False
        found = ctypes.c_void_p()
        self.runtime.ep_api.EpGraphSupportInfo_LookUpKernel(info, address, ctypes.addressof(found))
        return bool(found.value)

    # making kernels

    def build_kernel(self, node: KernelNode) -> Partition:
        """The engine of a node; nodes that are equal and have no weights share one."""
        if node.weights:
            return self._build(node)
        key = ir.to_proto(node.model).SerializeToString(deterministic=True)
        if key not in self._shared:
            self._shared[key] = self._build(node)
        return self._shared[key]

    def _build(self, node: KernelNode) -> Partition:
        partition = build_partition(node.model, self.backend, self.options)
        return place_partition(partition, self.backend, self._host_inputs(node))

    def _host_inputs(self, node: KernelNode) -> frozenset[int]:
        """The positions, in the model, of inputs that the registry asks for in memory of the host."""
        if not self.backend.has_device_memory:
            return frozenset()
        operator = node.operator
        asked = self.backend.provider.host_inputs(operator.op, operator.domain, operator.since)
        return frozenset(place for place, index in enumerate(node.inputs) if index in asked)


def _border(node: ir.Node) -> Sequence[ir.Value]:
    return [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]


def _has_texts(node: ir.Node) -> bool:
    return any(attribute.type == ir.AttributeType.STRINGS for attribute in node.attributes.values())
