"""CUDA as a back end: it takes partitions and runs each as a list of launches, which the runtime captures."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dovetail.allocators import IGpuAllocator
from dovetail.errors import DeviceMissingError, ProviderError
from dovetail.provider.interfaces import (
    API_VERSION,
    BuildContext,
    BuiltPartition,
    CapturedGraph,
    Claim,
    Device,
    DeviceKernel,
    KernelRegistry,
    LoadedPartition,
    MemoryAccess,
    MemoryInfo,
    NodeView,
    OptionSpec,
    ProfileEvent,
    Provider,
    RefitMode,
    StepKind,
    StoredPartition,
    Stream,
    TuneContext,
    TunedPartition,
)
from dovetail_cuda import __version__
from dovetail_cuda.options import OPTIONS, CudaOptions, parse_options
from dovetail_cuda.run.arenas.guards import GuardedMemory
from dovetail_cuda.run.arenas.library_memory import LibraryMemory
from dovetail_cuda.run.arenas.memory import DeviceMemory, PinnedMemory
from dovetail_cuda.run.arenas.memory_choice import open_memory
from dovetail_cuda.run.arrays import CudaArray, import_array
from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution
from dovetail_cuda.run.cublaslt import CublasLt, ProductLibrary
from dovetail_cuda.run.cudnn import ConvLibrary, ConvSearch, Cudnn, is_cudnn_here, make_search, open_or_warn
from dovetail_cuda.run.driver import DeviceFacts, Driver
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.packing import is_recipe, pack
from dovetail_cuda.run.partition import CudaPartition, Services
from dovetail_cuda.run.plugin_kernel import PluginKernel
from dovetail_cuda.run.profile import LaunchProfile
from dovetail_cuda.run.stream_states import OpenLibraries, StreamStates
from dovetail_cuda.run.streams import CudaGraph, CudaStream
from dovetail_cuda.run.trial import TrialTools
from dovetail_cuda.target import AbsentDriver, AbsentProducts, LaterProducts, find_target

if TYPE_CHECKING:
    import onnx_ir as ir

    from dovetail_cuda.emit.partition import EmitOptions
    from dovetail_cuda.tune.kit import FindConvPlans

__all__ = ["CudaFactory", "CudaProvider", "create_factory"]

_WHERE: Final = "provider 'cuda'"
_DLPACK_CUDA: Final = 2


class CudaProvider(Provider):
    """One CUDA device."""

    name = "cuda"
    step_kind = StepKind.PARTITION
    refit_mode = RefitMode.IN_PLACE
    builds_per_profile = True
    can_launch = True
    follows_shapes = True

    def __init__(self, device: Device, options: CudaOptions, toolbox: Toolbox) -> None:
        self.device = device
        self.options = options
        self.option_warnings = options.warnings
        self.is_here = not options.target
        self.preferred_layout = "NHWC" if options.prefer_nhwc else "NCHW"
        self.can_capture = options.enable_cuda_graph and not options.use_ep_level_unified_stream
        self.num_runs_before_capture = options.min_num_runs_before_cuda_graph_capture
        self.budget_bytes = options.arena_max_mem or None
        self.memory = MemoryInfo(name="cuda", ordinal=device.ordinal)
        self._toolbox = toolbox
        self._gpu = Gpu(toolbox.driver if self.is_here else AbsentDriver(options.target), device.ordinal)
        libraries = OpenLibraries(products=self._open_products, convolutions=self._open_convolutions)
        self._streams = StreamStates(self._gpu, libraries)
        self._pinned = PinnedMemory(self._gpu)
        self._profile = LaunchProfile(self._gpu)
        self._library_memory: dict[int, LibraryMemory] = {}
        """That of the captures under way, by stream."""

    # what it takes

    @property
    def kernels(self) -> KernelRegistry:
        """The operators, as functions from tensors to expressions: none of them runs alone."""
        from dovetail_cuda.lower.registry import load_registry

        return load_registry()

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        """Take what the registry has, over shapes that are known."""
        from dovetail_cuda.capability import claim_node

        return [claim_node(node) for node in nodes]

    # partitions

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        """Compile a partition to a list of launches."""
        from dovetail_cuda.emit.partition import emit_partition
        from dovetail_cuda.graph.variants import plan_shapes

        return emit_partition(
            plan_shapes(model, context, self.options.tuned_shapes), context, self._emit_options(context)
        )

    def _emit_options(self, context: BuildContext) -> EmitOptions:
        from dovetail_cuda.compile.store import KernelStore, default_folder
        from dovetail_cuda.emit.partition import EmitOptions
        from dovetail_cuda.run.trial import Trial
        from dovetail_cuda.tune.chooser import Chooser
        from dovetail_cuda.tune.kit import make_kit

        folder = Path(self.options.kernel_store) if self.options.kernel_store else default_folder()
        store = KernelStore(folder, self._toolbox.compile)
        asks_later = not self.is_here and context.candidate_bytes > 0
        allows_tf32 = self.options.use_tf32 and "TF32" in context.flags

        def make_chooser(kit: Any) -> Chooser:
            return Chooser(
                context,
                store=store,
                make_trial=lambda buffers: Trial(buffers, self._trial_tools, is_cold=kit.is_cold),
                shared_bytes=kit.shared_bytes,
            )

        return EmitOptions(
            make_kit=lambda plan: make_kit(
                plan,
                context.device,
                allows_tf32=allows_tf32,
                open_products=lambda: LaterProducts() if asks_later else self.products,
                find_conv_plans=self._make_plan_finder(folder),
                searches_convolutions=self.options.cudnn_conv_algo_search == "EXHAUSTIVE",
                allows_one_kernel=self.options.allows_one_kernel,
                allows_steps=self.options.allows_steps,
            ),
            make_chooser=make_chooser,
        )

    def _make_plan_finder(self, folder: Path) -> FindConvPlans:
        """What finds plans of cuDNN for convolutions; nothing where it is not here or not wanted."""
        from dovetail_cuda.tune.conv_plans import ConvPlanFinder

        if not self._asks_cudnn:
            return lambda conv: ()
        fingerprint, search = self.device.fingerprint, self._conv_search
        return ConvPlanFinder(folder, fingerprint, lambda: self._streams.find(0).convolutions, search).find

    @property
    def _asks_cudnn(self) -> bool:
        return self.is_here and self.options.enable_cudnn and self._toolbox.has_convolutions()

    @property
    def _conv_search(self) -> ConvSearch:
        return make_search(
            is_thorough=self.options.cudnn_conv_algo_search == "EXHAUSTIVE",
            uses_max_workspace=self.options.cudnn_conv_use_max_workspace,
        )

    def tune_partition(self, stored: StoredPartition, context: TuneContext) -> TunedPartition:
        """Choose between the ways that a plan carries; nothing is compiled."""
        from dovetail_cuda.choose.tuning import TuningTools, tune_partition
        from dovetail_cuda.run.trial import Trial

        tools = TuningTools(
            capability=int(self.device.properties["compute_capability"].replace(".", "")),
            open_products=lambda: self.products,
            find_conv_plans=self._build_conv_plans if self._asks_cudnn else lambda conv: (),
            make_trial=lambda buffers, is_cold: Trial(buffers, self._trial_tools, is_cold=is_cold),
        )
        return tune_partition(stored, context, tools)

    def _build_conv_plans(self, conv: Convolution) -> Sequence[BuiltConvPlan]:
        library = self._conv_library
        return () if library is None else library.build_plans(conv, self._conv_search)

    @cached_property
    def _conv_library(self) -> ConvLibrary | None:
        return open_or_warn(lambda: self._streams.find(0).convolutions)

    @cached_property
    def _trial_tools(self) -> TrialTools:
        return TrialTools(gpu=self._gpu, open_memory=lambda: self.allocator, streams=self._streams)

    def load_partition(self, stored: StoredPartition) -> LoadedPartition:
        """Put a stored partition's code and weights on the device."""
        return CudaPartition(stored, self._services)

    def load_device_kernel(self, code: bytes, name: str) -> DeviceKernel:
        """Put the kernel of a plugin on the device."""
        return PluginKernel(self._gpu, code, name)

    def pack_weight(self, recipe: str, sources: Mapping[str, Any]) -> Any:
        """Weights as the kernels of a partition read them."""
        if not is_recipe(recipe):
            raise ProviderError(f"it has no recipe {recipe[:60]!a}", where=_WHERE, fix="build the plan again")
        return pack(recipe, list(sources.values()))

    @cached_property
    def _services(self) -> Services:
        return Services(gpu=self._gpu, allocator=self.allocator, streams=self._streams, profile=self._profile)

    @property
    def products(self) -> ProductLibrary:
        """What multiplies matrices where no stream is asked for: that of the default stream."""
        return self._streams.find(0).products

    def _open_products(self) -> ProductLibrary:
        """What multiplies matrices, for one stream."""
        if not self.is_here:
            return AbsentProducts()
        _ = self._gpu.driver  # its context is current from here on
        return self._toolbox.open_products()

    def _open_convolutions(self) -> ConvLibrary:
        """What convolves, for one stream."""
        return self._toolbox.open_convolutions(self._gpu)

    # memory

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """CUDA memory of this device."""
        return _DLPACK_CUDA, self.device.ordinal

    @cached_property
    def allocator(self) -> DeviceMemory:
        """CUDA's own pool, an arena over blocks of the device, or functions of the caller."""
        memory = open_memory(self._gpu, self.options, has_pool=self._toolbox.has_pool(self.device.ordinal))
        if self.options.check_memory:
            memory = GuardedMemory(memory)
            atexit.register(memory.tell_leaks)
        return memory

    @property
    def pinned_allocator(self) -> IGpuAllocator:
        """Pinned memory of the host."""
        return self._pinned

    @property
    def free_bytes(self) -> int | None:
        """What the driver says is free."""
        return self._gpu.driver.measure_free_bytes() if self.is_here else self.device.memory_bytes

    def shrink_memory(self) -> int:
        """Have the pool, the arena or the caller's functions give back what nothing uses."""
        return self.allocator.shrink()

    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> CudaArray:
        """A view of the device's memory."""
        return CudaArray(address, shape, dtype)

    def find_access(self, address: int) -> MemoryAccess | None:
        """Return the access that the driver reports for an address; None for a cross-compilation target."""
        if not self.is_here:
            return None
        driver = self._gpu.driver
        if driver.is_shared(address):
            return MemoryAccess.HOST | MemoryAccess.DEVICE
        # Memory of another device counts as well: whether this one reaches it depends on peer access.
        return MemoryAccess.HOST if driver.find_device_of(address) is None else MemoryAccess.DEVICE

    def import_array(self, value: Any) -> CudaArray | None:
        """A caller's array of this device."""
        return import_array(value, self._gpu)

    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        """Between the host and this device, and inside of it."""
        return all(info.is_host or info == self.memory for info in (source, target))

    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        """Copy the bytes of an array, in the order of the stream."""
        if not target.nbytes:
            return
        is_loose = isinstance(source, np.ndarray) and not source.flags.c_contiguous
        whole = np.ascontiguousarray(source) if is_loose else source
        places = [array.ctypes.data if isinstance(array, np.ndarray) else array.address for array in (target, whole)]
        driver, handle = self._gpu.driver, 0 if stream is None else stream.handle
        driver.copy(places[0], places[1], target.nbytes, handle)
        if stream is None or is_loose:  # an array made here must live until it was read
            driver.synchronize_stream(handle)

    # order

    def create_stream(self) -> Stream:
        """A stream for a context, the one that the user gave, or the one that all contexts share."""
        if self.options.use_ep_level_unified_stream and self.options.user_compute_stream is None:
            return CudaStream(self._gpu, self._streams, self._unified_stream.handle)
        return self._make_stream(self.options.user_compute_stream)

    @cached_property
    def _unified_stream(self) -> CudaStream:
        return self._make_stream()

    def _make_stream(self, lent: int | None = None) -> CudaStream:
        waits = self.options.waits_for_default_stream
        return CudaStream(self._gpu, self._streams, lent, waits_for_default=waits)

    def wrap_stream(self, handle: int) -> Stream:
        """A stream of a caller."""
        return CudaStream(self._gpu, self._streams, handle)

    def synchronize(self) -> None:
        """Wait for everything on the device; the thread has the context afterwards that it had before."""
        before = self._toolbox.driver.find_context() if self.is_here else 0
        self._gpu.synchronize()
        if before:
            self._toolbox.driver.use_context(before)

    # capture

    def begin_capture(self, stream: Stream) -> None:
        """Record what is put on the stream; memory that libraries take in the meantime belongs to the recording."""
        self._profile.begin_capture(stream.handle)
        self._gpu.begin_capture(stream.handle)
        self._library_memory[stream.handle] = LibraryMemory.open()

    def end_capture(self, stream: Stream) -> CapturedGraph:
        """End the recording."""
        memory = self._library_memory.pop(stream.handle, None)
        if memory is not None:
            memory.leave()
        graph = self._gpu.end_capture(stream.handle)
        labels = self._profile.label_graph(graph, stream.handle)
        return CudaGraph(self._gpu, graph, labels, self._profile.replay, memory)

    # profiling

    def start_profiling(self) -> None:
        """Time every launch from now on."""
        self._profile.start()

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        """What the device did since, launch by launch, with the layers that each was made of."""
        return self._profile.stop()


class Toolbox:
    """What a provider works with; tests give it other tools."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver()

    def has_pool(self, ordinal: int) -> bool:
        """Whether the driver has a pool of its own for a device."""
        return self.driver.describe_device(ordinal).has_pool

    def open_products(self) -> ProductLibrary:
        """What multiplies matrices."""
        return CublasLt()

    def has_convolutions(self) -> bool:
        """Whether a library can be asked for convolutions."""
        return is_cudnn_here()

    def open_convolutions(self, gpu: Gpu) -> ConvLibrary:
        """What convolves on a device."""
        return Cudnn(lambda: gpu.driver)

    def compile(self, request: Any) -> Any:
        """Compile a kernel, in a process of its own."""
        from dovetail_cuda.compile.farm import get_farm

        return get_farm().compile(request)


class CudaFactory:
    """The entry point of this back end."""

    name = "cuda"
    version = __version__
    api_version = API_VERSION
    options: Mapping[str, OptionSpec] = OPTIONS
    default_target = "sm_90"

    def __init__(self, toolbox: Toolbox | None = None) -> None:
        self._toolbox = toolbox or Toolbox()

    def devices(self) -> Sequence[Device]:
        """The CUDA devices of this machine."""
        driver = self._toolbox.driver
        return [_describe(driver.describe_device(ordinal)) for ordinal in range(driver.count_devices())]

    def find_target(self, text: str) -> Device:
        """A device that is not here."""
        return _describe(find_target(text))

    def create(self, device: Device, options: Mapping[str, str]) -> CudaProvider:
        """A provider on a device, or on the one that the options name."""
        parsed = parse_options(options)
        if parsed.target:
            return CudaProvider(self.find_target(parsed.target), parsed, self._toolbox)
        if parsed.device_id is not None and parsed.device_id != device.ordinal:
            found = {each.ordinal: each for each in self.devices()}
            if parsed.device_id not in found:
                there = ", ".join(str(ordinal) for ordinal in found)
                raise DeviceMissingError("there is no such device", where=_WHERE, expected=there, got=parsed.device_id)
            device = found[parsed.device_id]
        return CudaProvider(device, parsed, self._toolbox)


def _describe(facts: DeviceFacts) -> Device:
    major, minor = facts.capability
    return Device(
        name=facts.name,
        kind="gpu",
        fingerprint=f"{facts.name}-sm_{major}{minor}-{facts.multiprocessors}",
        ordinal=facts.ordinal,
        memory_bytes=facts.memory_bytes,
        properties={
            "compute_capability": f"{major}.{minor}",
            "multiprocessors": str(facts.multiprocessors),
            "cuda_device_id": str(facts.ordinal),
            "cuda_device_name": facts.name,
            "cuda_compute_capability": f"{major}.{minor}",
        },
    )


def create_factory() -> CudaFactory:
    """What the loader calls."""
    return CudaFactory()
