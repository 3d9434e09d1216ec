"""The execution provider of one session: it says what it takes, compiles it, and hands ONNX Runtime what runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import CString, NativeObject, Runtime, write_pointer
from onnxruntime_ep_dovetail.claim.choice import choose_groups
from onnxruntime_ep_dovetail.claim.groups import Claims
from onnxruntime_ep_dovetail.compiled.route import CompiledModels
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.capture import CAPTURE_SLOTS
from onnxruntime_ep_dovetail.device.frame import place_partition
from onnxruntime_ep_dovetail.device.side import DeviceSession
from onnxruntime_ep_dovetail.graph.read import ReadGraph, read_border, read_graph, read_node
from onnxruntime_ep_dovetail.graph.values import number_of_dtype
from onnxruntime_ep_dovetail.kernels.layout import LayoutPreference
from onnxruntime_ep_dovetail.kernels.route import KernelRoute
from onnxruntime_ep_dovetail.kernels.table import is_control_flow
from onnxruntime_ep_dovetail.library import load_compute
from onnxruntime_ep_dovetail.library.contract import Frame
from onnxruntime_ep_dovetail.session.dynamic_options import DynamicOptions
from onnxruntime_ep_dovetail.session.failures import ClaimFailures
from onnxruntime_ep_dovetail.session.options import EP_NAME, EpOptions
from onnxruntime_ep_dovetail.session.partition import Partition, build_partition, check_types

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.factory import Factory

__all__ = ["Ep"]


class _FusionOptions(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("drop_constant_initializers", ctypes.c_bool))


class ComputeInfo(NativeObject):
    """What ONNX Runtime runs in place of a partition's nodes."""

    struct = "OrtNodeComputeInfo"

    def __init__(self, runtime: Runtime, partition: Partition, new_frame: Callable[[], Frame]) -> None:
        super().__init__(runtime)
        self._partition = partition
        self._new_frame = new_frame
        self._compute = load_compute()
        self.set_slot("Compute", self._compute.compute_address())

    def create_state(self, _context: int, state: int) -> None:
        """Make what ``Compute`` gets: the frames of the partition."""
        partition = self._partition
        types = tuple(map(number_of_dtype, partition.input_dtypes))
        outputs = tuple(map(number_of_dtype, partition.output_dtypes))
        made = self._compute.create_state(
            self._new_frame,
            len(types),
            len(outputs),
            types,
            outputs,
            self.runtime.api.address,
            has_stream=partition.has_stream,
        )
        write_pointer(state, made)

    def release_state(self, state: int) -> None:
        """Let the frames go."""
        self._compute.release_state(state)


class Ep(
    ClaimFailures,
    CompiledModels,
    KernelRoute,
    LayoutPreference,
    DynamicOptions,
    DeviceSession,
    NativeObject,
):
    """One session's execution provider."""

    struct = "OrtEp"

    def __init__(self, factory: Factory, backend: Backend, options: EpOptions, logger: int = 0) -> None:
        # A session may outlive the registration of the library: the factory must then still be there to release this.
        self.factory = factory
        self.backend = backend
        self.options = options
        self.logger = logger
        self._name = CString(EP_NAME)
        self.start_graph_capture()
        self.start_kernel_route(factory.kernel_table)
        self.start_layout()
        super().__init__(factory.runtime)
        if not options.graph_capture:
            for slot in CAPTURE_SLOTS:
                self.set_slot(slot, 0)

    def get_name(self) -> int:
        """The name of the execution provider."""
        return self._name.address

    # taking nodes

    def get_capability(self, graph: int, info: int) -> None:
        """Tell which nodes are taken; a failure is kept, because ONNX Runtime only logs it and goes on without us."""
        try:
            self.raise_failure()
            read, parent = read_graph(self.runtime, graph), self._read_parent(graph)
            self.note_opsets(read)
            self.note_nodes(read.model.graph)
            if parent is not None and not all(map(is_control_flow, parent.model.graph)):
                return  # such a node becomes its function, with the body in it, and nothing compiled can be put there
            if self.is_kernel_route:
                self._claim(read, self.claim_kernels(read, self.choose(read), info), info)
            elif parent is None or not self.choose(parent).groups:
                self._claim(read, self.choose(read), info)
        except BaseException as error:  # noqa: BLE001 - it is kept, and ends the session
            self.keep_failure(error, graph, info)

    def choose(self, read: ReadGraph) -> Claims:
        """The groups of nodes that are taken of a graph."""
        return choose_groups(read.model, self.backend, self.options, self.runtime)

    def _claim(self, read: ReadGraph, claims: Claims, info: int) -> None:
        options = _FusionOptions(self.runtime.struct_version, True)
        for group in (*claims.groups, *self.find_compiled(read)):
            nodes = (ctypes.c_void_p * len(group))(*(read.addresses[node] for node in group))
            self.runtime.ep_api.EpGraphSupportInfo_AddNodesToFuse(
                info, ctypes.addressof(nodes), len(group), ctypes.addressof(options)
            )

    def _read_parent(self, graph: int) -> ReadGraph | None:
        """The node whose body a graph is; if it is taken whole, nothing in the body is taken by itself.

        ONNX Runtime asks for the innermost bodies first and shows no further than the node around each.
        """
        parent = ctypes.c_void_p()
        self.runtime.api.Graph_GetParentNode(graph, ctypes.addressof(parent))
        return read_node(self.runtime, parent.value) if parent.value else None

    # compiling

    def compile(self, graphs: int, fused: int, count: int, infos: int, context_nodes: int) -> None:
        """Build an engine for each partition."""
        self.raise_failure()
        graph_list, fused_list = ((ctypes.c_void_p * count).from_address(place) for place in (graphs, fused))
        targets = (ctypes.c_void_p * count).from_address(infos)
        for index in range(count):
            read = read_graph(self.runtime, graph_list[index] or 0)
            self._order_border(read.model.graph, fused_list[index] or 0)
            compiled = self.load_compiled(read, graph_list[index] or 0)
            partition = compiled or build_partition(read.model, self.backend, self.options)
            check_types(partition, read.model.graph)
            partition = place_partition(partition, self.backend)
            targets[index] = ComputeInfo(self.runtime, partition, self.profiling.watch(partition)).address
            node = context_nodes + 8 * index
            self.store_compiled(partition, read, graph_list[index] or 0, fused_list[index] or 0, node)

    def _order_border(self, graph: ir.Graph, fused: int) -> None:
        """Put inputs and outputs in the order of the fused node."""
        inputs = {value.name: value for value in graph.inputs}
        outputs = {value.name: value for value in graph.outputs}
        wanted, made = read_border(self.runtime, fused)
        graph.inputs[:] = [inputs[name] for name in wanted]
        graph.outputs[:] = [outputs[name] for name in made]

    def release_node_compute_infos(self, infos: int, count: int) -> None:
        """Let compiled partitions go."""
        for address in (ctypes.c_void_p * count).from_address(infos):
            NativeObject.at(address or 0).release()
