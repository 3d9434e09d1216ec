"""The execution provider of one session: it says what it takes, compiles it, and hands ONNX Runtime what runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

import dovetail
from onnxruntime_ep_dovetail.abi import CString, NativeObject, OrtRuntime, write_pointer
from onnxruntime_ep_dovetail.claim.choice import choose_groups
from onnxruntime_ep_dovetail.claim.groups import Claims, reads_of
from onnxruntime_ep_dovetail.claim.layers import LayerRoute
from onnxruntime_ep_dovetail.compiled.route import CompiledModels
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.device.capture import CAPTURE_SLOTS
from onnxruntime_ep_dovetail.device.frame import place_partition
from onnxruntime_ep_dovetail.device.side import DeviceSession
from onnxruntime_ep_dovetail.domains import raise_interrupts
from onnxruntime_ep_dovetail.graph.read import ReadGraph, read_border, read_graph, read_node
from onnxruntime_ep_dovetail.kernels.layout import LayoutPreference
from onnxruntime_ep_dovetail.kernels.route import KernelRoute
from onnxruntime_ep_dovetail.kernels.table import is_control_flow
from onnxruntime_ep_dovetail.library import compute
from onnxruntime_ep_dovetail.session.checks import describe_idle_options, find_unknown_operators
from onnxruntime_ep_dovetail.session.dynamic_options import DynamicOptions
from onnxruntime_ep_dovetail.session.failures import ClaimFailures
from onnxruntime_ep_dovetail.session.given import GivenWeights
from onnxruntime_ep_dovetail.session.options import EP_NAME, EpOptions
from onnxruntime_ep_dovetail.session.partition import build_partition, check_types
from onnxruntime_ep_dovetail.session.places import PlacedWork, Places, make_idle_work, make_work
from onnxruntime_ep_dovetail.session.runs import WatchedRuns

if TYPE_CHECKING:
    from onnxruntime_ep_dovetail.factory import EpFactory

__all__ = ["Ep"]


class _FusionOptions(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("drop_constant_initializers", ctypes.c_bool))


class ComputeInfo(NativeObject):
    """What ONNX Runtime runs in place of a partition's nodes."""

    struct = "OrtNodeComputeInfo"

    def __init__(self, runtime: OrtRuntime, work: PlacedWork, ep_address: int) -> None:
        super().__init__(runtime)
        self._work = work
        self._ep_address = ep_address
        self.set_slot("Compute", compute.compute_address())

    def create_state(self, _context: int, state: int) -> None:
        """Make what ``Compute`` gets: the frames of the partition."""
        work = self._work
        made = compute.create_state(
            work.new_frame,
            len(work.input_types),
            len(work.output_types),
            work.input_types,
            work.output_types,
            self.runtime.api.address,
            has_stream=work.has_stream,
            ep_address=self._ep_address,
        )
        write_pointer(state, made)

    def release_state(self, state: int) -> None:
        """Let the frames go."""
        compute.release_state(state)


class Ep(
    ClaimFailures,
    CompiledModels,
    LayerRoute,
    KernelRoute,
    LayoutPreference,
    DynamicOptions,
    DeviceSession,
    WatchedRuns,
    NativeObject,
):
    """One session's execution provider."""

    struct = "OrtEp"

    def __init__(
        self, factory: EpFactory, backend: Backend, options: EpOptions, given: GivenWeights, logger: int = 0
    ) -> None:
        # A session may outlive the registration of the library: the factory must then still be there to release this.
        self.factory = factory
        self.backend = backend
        self.options = options
        self.given = given
        self.logger = logger
        self._name = CString(EP_NAME)
        self.start_layers()
        self.start_graph_capture(factory.runtime)
        self.start_kernel_route(factory.kernel_table)
        self.start_layout()
        super().__init__(factory.runtime)
        if not options.graph_capture:
            for slot in CAPTURE_SLOTS:
                self.set_slot(slot, 0)
        self.start_watching(factory.terminate_offset, has_own=options.graph_capture)

    def release(self) -> None:
        """Let go of the session."""
        self.given.close()
        super().release()

    def on_session_initialization_end(self) -> None:
        """Let go of what is needed only to make a session; from 1.27 on ONNX Runtime says that it is made."""
        self.given.close()
        super().on_session_initialization_end()

    def get_name(self) -> int:
        """The name of the execution provider."""
        return self._name.address

    # taking nodes

    def get_capability(self, graph: int, info: int) -> None:
        """Tell which nodes are taken; a failure is kept, because ONNX Runtime only logs it and goes on without us."""
        try:
            self.raise_failure()
            raise_interrupts()
            read, parent = self._read_graph(graph), self._read_parent(graph)
            self.note_opsets(read)
            self.note_layers(graph)
            if parent is None:
                self._report_options(read.model.graph)
            self.note_nodes(read.model.graph)
            if parent is not None and not all(map(is_control_flow, parent.model.graph)):
                return  # such a node becomes its function, with the body in it, and nothing compiled can be put there
            if self.is_kernel_route:
                self._claim(read, self.claim_kernels(read, self.choose(read), info), info)
            elif parent is None or not self.choose(parent).groups:
                self._claim(read, self.choose(read), info)
        except BaseException as error:  # noqa: BLE001 - it is kept, and ends the session
            self.keep_failure(error, graph, info)

    def _report_options(self, graph: ir.Graph) -> None:
        for text in (*describe_idle_options(self.options), *find_unknown_operators(self.options, graph)):
            self.report(text)

    def choose(self, read: ReadGraph) -> Claims:
        """The groups of nodes that are taken of a graph."""
        given = self.find_given(list(read.model.graph))
        return choose_groups(read, self.backend, self.options, self.runtime, given=given, report=self.report)

    def _claim(self, read: ReadGraph, claims: Claims, info: int) -> None:
        for group in claims.groups:
            reads_given = any(value in read.given for node in group for value in reads_of(node))
            self._fuse([read.addresses[node] for node in group], info, drops_weights=not reads_given)
        for node in self.find_compiled(read):
            self._fuse([read.addresses[node]], info, drops_weights=False)

    def _fuse(self, addresses: Sequence[int], info: int, *, drops_weights: bool) -> None:
        """Take nodes as one; a weight that is not dropped is handed over as an input."""
        options = _FusionOptions(self.runtime.struct_version, drops_weights)
        nodes = (ctypes.c_void_p * len(addresses))(*addresses)
        self.runtime.ep_api.EpGraphSupportInfo_AddNodesToFuse(
            info, ctypes.addressof(nodes), len(nodes), ctypes.addressof(options)
        )

    def _read_parent(self, graph: int) -> ReadGraph | None:
        """The node whose body a graph is; if it is taken whole, nothing in the body is taken by itself.

        ONNX Runtime asks for the innermost bodies first and shows no further than the node around each.
        """
        parent = ctypes.c_void_p()
        self.runtime.api.Graph_GetParentNode(graph, ctypes.addressof(parent))
        return read_node(self.runtime, parent.value, self.given.has) if parent.value else None

    def _read_graph(self, graph: int) -> ReadGraph:
        return read_graph(self.runtime, graph, self.given.has)

    # compiling

    def compile(self, graphs: int, fused: int, count: int, infos: int, context_nodes: int) -> None:
        """Build an engine for each partition."""
        self.raise_failure()
        graph_list, fused_list = ((ctypes.c_void_p * count).from_address(place) for place in (graphs, fused))
        targets = (ctypes.c_void_p * count).from_address(infos)
        for index, (graph, node) in enumerate(zip(graph_list, fused_list, strict=True)):
            work = self._compile(graph or 0, node or 0, context_nodes + 8 * index)
            targets[index] = ComputeInfo(self.runtime, work, self.address).address

    def _compile(self, graph: int, fused: int, context_node: int) -> PlacedWork:
        read = self._read_graph(graph)
        if self.find_compiled(read):  # what it reads is not in the plan, weights neither
            read = read_graph(self.runtime, graph, lambda _name: True)
        places = self._order_border(read.model.graph, fused)
        if not places.outputs:
            self.store_idle(read, fused, context_node)
            return make_idle_work(places.num_read)
        partition = self.load_compiled(read, graph) or build_partition(read.model, self.backend, self.options)
        check_types(partition, read.model.graph)
        partition = place_partition(partition, self.backend, check=self.check_run)
        self.store_compiled(partition, read, graph, fused, context_node)
        return make_work(partition, places, self.profiling.watch(partition))

    def _order_border(self, graph: ir.Graph, fused: int) -> Places:
        """Put inputs and outputs in the order of the fused node; it may also have weights, which are no inputs here."""
        inputs = {value.name: value for value in graph.inputs}
        outputs = {value.name: value for value in graph.outputs}
        wanted, made = read_border(self.runtime, fused)
        missing = inputs.keys() - set(wanted)
        if missing:
            what = "ONNX Runtime does not hand over what a partition reads"
            raise dovetail.InternalError(what, where=f"input '{missing.pop()}'")
        found = tuple(index for index, name in enumerate(wanted) if name in inputs)
        graph.inputs[:] = [inputs[wanted[index]] for index in found]
        graph.outputs[:] = [outputs[name] for name in made]
        return Places(inputs=found, outputs=tuple(range(len(made))), num_read=len(wanted), num_made=len(made))

    def release_node_compute_infos(self, infos: int, count: int) -> None:
        """Let compiled partitions go."""
        for address in (ctypes.c_void_p * count).from_address(infos):
            NativeObject.at(address or 0).release()
