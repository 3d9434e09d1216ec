"""The one module that calls the CUDA driver.

Handles are plain integers here, and failures are errors that say what to do. Tests put another ``Driver`` in its place,
over memory of the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dovetail.errors import ProviderError, ResourceError
from dovetail_cuda.run.kernel_parameters import NUM_SCRATCH, KernelParameter

__all__ = ["DeviceFacts", "Driver", "Launch", "Parameters"]

_WHERE: Final = "CUDA driver"
_NO_MEMORY: Final = 2
_NOT_STARTED: Final = 3
_NOT_READY: Final = 600
_STATIC_SHARED_BYTES: Final = 48 << 10
_INVALID_VALUE: Final = 1
_MAX_PARAMETERS: Final = 4096
"""More than the 32,764 bytes of parameters that CUDA allows hold."""


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What is known of a device."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int | None
    has_pool: bool = True
    """Whether the driver has a pool of its own for it."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One kernel with its shape: what does not change between runs."""

    function: int
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    more_threads: tuple[int, int] = (1, 1)
    """How many threads a block has along y and z; along x it has ``threads``."""
    starts_early: bool = False
    """Whether it may start before the kernel in front of it has ended, for which it waits itself."""


class Parameters:
    """The parameters of one launch in memory that the driver reads: addresses, then sizes.

    A kernel that wants a size of 32 bits reads the first half of one, which is all of it.
    """

    def __init__(self, given: Sequence[int]) -> None:
        count = len(given) + NUM_SCRATCH
        self.values = (ctypes.c_uint64 * count)(*given)
        base = ctypes.addressof(self.values)
        self._places = (ctypes.c_void_p * count)(*(base + 8 * number for number in range(count)))

    @property
    def address(self) -> int:
        """Where the list of places is; it is there as long as this object."""
        return ctypes.addressof(self._places)


@cache
def _cuda() -> Any:
    """The bindings, imported when something is first asked of the driver."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ProviderError(
            "the package cuda-bindings is not installed", where=_WHERE, fix="pip install cuda-bindings"
        ) from error
    return driver


def _ask(result: Sequence[Any], what: str) -> Any:
    """What a call gave besides its status."""
    status, *values = result
    if int(status) == _NOT_STARTED:
        raise _lost_in_fork()
    if int(status):
        name = getattr(status, "name", str(status))
        kind = ResourceError if int(status) == _NO_MEMORY else ProviderError
        raise kind(f"{what}: {name}", where=_WHERE)
    return values[0] if len(values) == 1 else values


def _lost_in_fork() -> ProviderError:
    """The error for a copy of a process in which CUDA was started: it is the only one that has to start it again."""
    return ProviderError(
        "CUDA was used before this process was forked, and does not survive a fork",
        where=_WHERE,
        fix="start processes with 'spawn' or 'forkserver' and load the plan there, or fork before CUDA is used",
    )


class Driver:
    """CUDA's driver, as much of it as this back end needs."""

    # devices

    def count_devices(self) -> int:
        """How many devices there are; none where there is no driver."""
        try:
            cuda = _cuda()
            status = int(cuda.cuInit(0)[0])
        except (ProviderError, RuntimeError, OSError):  # no bindings, or no driver under them
            return 0
        if status == _NOT_STARTED:
            raise _lost_in_fork()
        if status:
            return 0
        return int(_ask(cuda.cuDeviceGetCount(), "devices cannot be counted"))

    def describe_device(self, ordinal: int) -> DeviceFacts:
        """What is known of a device."""
        cuda = _cuda()
        device, names = _ask(cuda.cuDeviceGet(ordinal), f"there is no device {ordinal}"), cuda.CUdevice_attribute
        wanted = (
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            names.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        )
        major, minor, count, has_pool = (
            int(_ask(cuda.cuDeviceGetAttribute(each, device), "no attribute")) for each in wanted
        )
        name = _ask(cuda.cuDeviceGetName(256, device), "no name").decode().rstrip("\0")
        memory = int(_ask(cuda.cuDeviceTotalMem(device), "no size"))
        return DeviceFacts(
            ordinal=ordinal,
            name=name,
            capability=(major, minor),
            multiprocessors=count,
            memory_bytes=memory,
            has_pool=bool(has_pool),
        )

    def open_context(self, ordinal: int) -> int:
        """The context of this thread where it is one of the device, else the primary one; libraries share either.

        Who has made a context of its own (PyCUDA does) has memory and streams there, which no other context can use.
        """
        cuda = _cuda()
        _ask(cuda.cuInit(0), "the driver does not start")
        device = _ask(cuda.cuDeviceGet(ordinal), f"there is no device {ordinal}")
        current = self.find_context()
        if current and int(_ask(cuda.cuCtxGetDevice(), "the context of this thread has no device")) == int(device):
            return current
        return int(_ask(cuda.cuDevicePrimaryCtxRetain(device), f"device {ordinal} cannot be opened"))

    def use_context(self, context: int) -> None:
        """Make a context that of this thread."""
        _ask(_cuda().cuCtxSetCurrent(context), "the context cannot be used")

    def find_context(self) -> int:
        """The context of this thread; 0 for none."""
        return int(_ask(_cuda().cuCtxGetCurrent(), "the context of this thread is not known"))

    def synchronize(self) -> None:
        """Wait for everything in the context of this thread."""
        _ask(_cuda().cuCtxSynchronize(), "work on the device failed")

    # memory

    def allocate(self, size_bytes: int) -> int:
        """Memory of the device."""
        return int(_ask(_cuda().cuMemAlloc(size_bytes), f"no {size_bytes} bytes on the device"))

    def free(self, address: int) -> None:
        """Give it back."""
        _ask(_cuda().cuMemFree(address), "memory could not be given back")

    def allocate_async(self, size_bytes: int, stream: int) -> int:
        """Memory of the driver's own pool, in the order of a stream."""
        return int(_ask(_cuda().cuMemAllocAsync(size_bytes, stream), f"no {size_bytes} bytes on the device"))

    def free_async(self, address: int, stream: int) -> None:
        """Give it back in the order of a stream."""
        _ask(_cuda().cuMemFreeAsync(address, stream), "memory could not be given back")

    def keep_pool(self, ordinal: int, threshold_bytes: int) -> None:
        """How much memory the driver's pool keeps instead of giving it back to the system."""
        cuda = _cuda()
        pool = _ask(cuda.cuDeviceGetDefaultMemPool(ordinal), "the device has no pool")
        name = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        _ask(cuda.cuMemPoolSetAttribute(pool, name, cuda.cuuint64_t(threshold_bytes)), "the pool keeps nothing")

    def trim_pool(self, ordinal: int, kept_bytes: int) -> int:
        """Give back what is in the driver's pool and not used, but for so much; how many bytes that were."""
        cuda = _cuda()
        pool = _ask(cuda.cuDeviceGetDefaultMemPool(ordinal), "the device has no pool")
        name = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        before = int(_ask(cuda.cuMemPoolGetAttribute(pool, name), "the pool does not tell its size"))
        _ask(cuda.cuMemPoolTrimTo(pool, kept_bytes), "the pool gives nothing back")
        return before - int(_ask(cuda.cuMemPoolGetAttribute(pool, name), "the pool does not tell its size"))

    def measure_free_bytes(self) -> int:
        """How much memory of the device nobody has, in the context of this thread."""
        return int(_ask(_cuda().cuMemGetInfo(), "the device does not tell its memory")[0])

    def allocate_pinned(self, size_bytes: int) -> int:
        """Memory of the host that is copied from and to best."""
        return int(_ask(_cuda().cuMemAllocHost(size_bytes), f"no {size_bytes} bytes of pinned memory"))

    def free_pinned(self, address: int) -> None:
        """Give it back."""
        _ask(_cuda().cuMemFreeHost(address), "pinned memory could not be given back")

    def find_device_of(self, address: int) -> int | None:
        """The device in whose memory an address lies; None for memory of the host."""
        cuda = _cuda()
        names = cuda.CUpointer_attribute
        status, kind = cuda.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        if int(status) or int(kind) != int(cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE):
            return None
        wanted = names.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        return int(_ask(cuda.cuPointerGetAttribute(wanted, address), "memory of no device"))

    def is_shared(self, address: int) -> bool:
        """Return True for memory that the host and the device both access: pinned, registered and managed memory.

        Pageable memory has no attributes: the driver fails to find it, and so does a driver that is not loaded.
        """
        try:
            cuda = _cuda()
            names = cuda.CUpointer_attribute
            status, is_managed = cuda.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_IS_MANAGED, address)
            if not int(status) and is_managed:
                return True
            status, kind = cuda.cuPointerGetAttribute(names.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
        except (ProviderError, RuntimeError, OSError):
            return False
        return not int(status) and int(kind) == int(cuda.CUmemorytype.CU_MEMORYTYPE_HOST)

    def copy(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between any two places, in the order of a stream."""
        _ask(_cuda().cuMemcpyAsync(target, source, size_bytes, stream), "memory could not be copied")

    # streams and events

    def create_stream(self, *, waits_for_default: bool = False) -> int:
        """A stream, which waits for work on the default one or does not, and has that work wait for it or not."""
        return int(_ask(_cuda().cuStreamCreate(0 if waits_for_default else 1), "no stream"))

    def identify_stream(self, stream: int) -> int:
        """The number of a stream, which no other one of this process has, not even later at the same address."""
        return int(_ask(_cuda().cuStreamGetId(stream), "a stream that is none"))

    def destroy_stream(self, stream: int) -> None:
        """Give it back."""
        _ask(_cuda().cuStreamDestroy(stream), "a stream could not be given back")

    def synchronize_stream(self, stream: int) -> None:
        """Wait for a stream."""
        _ask(_cuda().cuStreamSynchronize(stream), "work on the device failed")

    def create_event(self, *, is_timed: bool) -> int:
        """A point in a stream, to be recorded."""
        flags = _cuda().CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if is_timed else flags.CU_EVENT_DISABLE_TIMING
        return int(_ask(_cuda().cuEventCreate(flag), "no event"))

    def destroy_event(self, event: int) -> None:
        """Give it back."""
        _ask(_cuda().cuEventDestroy(event), "an event could not be given back")

    def record_event(self, event: int, stream: int) -> None:
        """Put it on a stream."""
        _ask(_cuda().cuEventRecord(event, stream), "an event could not be recorded")

    def wait_event(self, stream: int, event: int) -> None:
        """Have a stream wait for it."""
        _ask(_cuda().cuStreamWaitEvent(stream, event, 0), "a stream cannot wait")

    def synchronize_event(self, event: int) -> None:
        """Wait for it."""
        _ask(_cuda().cuEventSynchronize(event), "work on the device failed")

    def is_event_done(self, event: int) -> bool:
        """Whether its stream has come there."""
        result = _cuda().cuEventQuery(event)
        if int(result[0]) == _NOT_READY:
            return False
        _ask(result, "work on the device failed")
        return True

    def measure_us(self, earlier: int, later: int) -> float:
        """Microseconds between two timed events."""
        return float(_ask(_cuda().cuEventElapsedTime(earlier, later), "no time between the events")) * 1e3

    # code

    def load_library(self, code: bytes) -> int:
        """Load a cubin, or PTX with a final NUL, which the driver compiles."""
        what = "the device does not take the code of a kernel"
        return int(_ask(_cuda().cuLibraryLoadData(code, [], [], 0, [], [], 0), what))

    def unload_library(self, library: int) -> None:
        """Let go of it."""
        _ask(_cuda().cuLibraryUnload(library), "code could not be unloaded")

    def find_function(self, library: int, name: str, shared_bytes: int) -> int:
        """A kernel of a library, allowed as much shared memory as it needs."""
        cuda = _cuda()
        kernel = _ask(cuda.cuLibraryGetKernel(library, name.encode()), f"there is no kernel {name!a}")
        function = _ask(cuda.cuKernelGetFunction(kernel), f"kernel {name!a} cannot run here")
        if shared_bytes > _STATIC_SHARED_BYTES:
            attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _ask(cuda.cuFuncSetAttribute(function, attribute, shared_bytes), "no such amount of shared memory")
        return int(function)

    def list_parameters(self, function: int) -> list[KernelParameter] | None:
        """Return the sizes of the parameters of a kernel; None if the driver is older than CUDA 12.4."""
        find, found = getattr(_cuda(), "cuFuncGetParamInfo", None), list[KernelParameter]()
        if find is None:
            return None
        while len(found) < _MAX_PARAMETERS:
            try:
                result = find(function, len(found))
            except RuntimeError:  # the bindings do not find the function in the driver
                return None
            if int(result[0]) == _INVALID_VALUE:  # there is no further parameter
                break
            found.append(KernelParameter(int(_ask(result, "the parameters of a kernel are not known")[1])))
        return found

    def find_max_threads(self, function: int) -> int:
        """Return the largest number of threads in a block of a kernel."""
        cuda = _cuda()
        name = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        return int(_ask(cuda.cuFuncGetAttribute(name, function), "the blocks of a kernel are not known"))

    def launch(self, launch: Launch, parameters: Parameters, stream: int) -> None:
        """Put a kernel on a stream; the parameters are read before it returns."""
        if launch.starts_early:
            self._launch_early(launch, parameters, stream)
            return
        shape, place = (*launch.grid, launch.threads, *launch.more_threads, launch.shared_bytes), parameters.address
        _ask(_cuda().cuLaunchKernel(launch.function, *shape, stream, place, 0), "a kernel could not be launched")

    def _launch_early(self, launch: Launch, parameters: Parameters, stream: int) -> None:
        cuda = _cuda()
        attribute = cuda.CUlaunchAttribute()
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, *launch.more_threads
        config.sharedMemBytes, config.hStream = launch.shared_bytes, cuda.CUstream(stream)
        config.attrs, config.numAttrs = [attribute], 1
        _ask(cuda.cuLaunchKernelEx(config, launch.function, parameters.address, 0), "a kernel could not be launched")

    # graphs

    def begin_capture(self, stream: int) -> None:
        """Record what is put on a stream instead of doing it."""
        mode = _cuda().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _ask(_cuda().cuStreamBeginCapture(stream, mode), "the stream cannot be captured")

    def end_capture(self, stream: int) -> int:
        """The graph of what was recorded."""
        return int(_ask(_cuda().cuStreamEndCapture(stream), "the capture was broken"))

    def find_newest_node(self, stream: int) -> int:
        """The node that came last in the capture of a stream; 0 where it is not captured."""
        parts = _ask(_cuda().cuStreamGetCaptureInfo(stream), "the capture cannot be looked at")
        nodes = next((part for part in parts if isinstance(part, list | tuple)), ())
        return int(nodes[-1]) if nodes else 0

    def list_nodes(self, graph: int) -> list[tuple[int, bool]]:
        """The nodes of a graph in the order they were captured, and whether each is a kernel."""
        cuda = _cuda()
        _, count = _ask(cuda.cuGraphGetNodes(graph, 0), "no nodes")
        nodes, _ = _ask(cuda.cuGraphGetNodes(graph, count), "no nodes")
        kernel = cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        return [(int(node), _ask(cuda.cuGraphNodeGetType(node), "a node of no type") == kernel) for node in nodes]

    def count_nodes(self, graph: int) -> int:
        """How many things a graph does."""
        return int(_ask(_cuda().cuGraphGetNodes(graph, 0), "no nodes")[1])

    def instantiate(self, graph: int) -> int:
        """Make a graph ready to be launched."""
        return int(_ask(_cuda().cuGraphInstantiate(graph, 0), "the graph cannot be made ready"))

    def update_graph(self, executable: int, graph: int) -> bool:
        """Have an executable graph do what another does; False where the two differ in more than addresses."""
        return not int(_cuda().cuGraphExecUpdate(executable, graph)[0])

    def launch_graph(self, executable: int, stream: int) -> None:
        """Put all of a graph on a stream."""
        _ask(_cuda().cuGraphLaunch(executable, stream), "the graph could not be launched")

    def destroy_executable(self, executable: int) -> None:
        """Give it back."""
        _ask(_cuda().cuGraphExecDestroy(executable), "a graph could not be given back")

    def destroy_graph(self, graph: int) -> None:
        """Give it back."""
        _ask(_cuda().cuGraphDestroy(graph), "a graph could not be given back")
