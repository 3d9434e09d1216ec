"""A provider for one CUDA device that takes two operators: Relu as a kernel of Triton, MatMul as a partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int, c_void_p
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from dovetail.allocators import IGpuAllocator
from dovetail.provider import interfaces as di
from tests.cuda.spike_libraries import Product, compile_relu

__all__ = ["SpikeFactory", "SpikeProvider"]

_BLOCK, _WARPS, _WORKSPACE_BYTES = 1024, 4, 4 << 20
_RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
_CAPABILITY = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR


def ask(result: Any) -> Any:
    """What a driver call gave besides its status."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"CUDA driver: {status.name}")
    return values[0] if len(values) == 1 else values


def use_device() -> None:
    """Make the context of the first device current in this thread."""
    ask(cu.cuInit(0))
    ask(cu.cuCtxSetCurrent(ask(cu.cuDevicePrimaryCtxRetain(ask(cu.cuDeviceGet(0))))))


class CudaArray:
    def __init__(self, address: int, shape: Sequence[int], dtype: Any) -> None:
        self.address, self.shape, self.dtype = address, tuple(shape), np.dtype(dtype)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize


class CudaEvent(di.Event):
    def __init__(self, stream: int, *, is_timed: bool) -> None:
        flags = cu.CUevent_flags.CU_EVENT_DEFAULT if is_timed else cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self.event = ask(cu.cuEventCreate(flags))
        ask(cu.cuEventRecord(self.event, stream))

    def synchronize(self) -> None:
        ask(cu.cuEventSynchronize(self.event))

    def is_done(self) -> bool:
        return int(cu.cuEventQuery(self.event)[0]) == 0

    def elapsed_us(self, earlier: Any) -> float:
        return float(ask(cu.cuEventElapsedTime(earlier.event, self.event))) * 1e3


class CudaStream(di.Stream):
    handle = 0  # type: ignore[assignment]

    def __init__(self, lent: int | None = None) -> None:
        self._is_own = lent is None
        self.handle = int(ask(cu.cuStreamCreate(1)) if lent is None else lent)  # type: ignore[misc]

    def record(self, *, is_timed: bool = False) -> CudaEvent:
        return CudaEvent(self.handle, is_timed=is_timed)

    def wait(self, event: Any) -> None:
        ask(cu.cuStreamWaitEvent(self.handle, event.event, 0))

    def synchronize(self) -> None:
        ask(cu.cuStreamSynchronize(self.handle))

    def close(self) -> None:
        if self._is_own:
            ask(cu.cuStreamDestroy(self.handle))


class CudaGraph(di.CapturedGraph):
    def __init__(self, graph: Any) -> None:
        self.graph, self._exec, self.num_nodes = graph, None, int(ask(cu.cuGraphGetNodes(graph, 0))[1])

    def replay(self, stream: di.Stream) -> None:
        if self._exec is None:
            self._exec = ask(cu.cuGraphInstantiate(self.graph, 0))
        ask(cu.cuGraphLaunch(self._exec, stream.handle))

    def update(self, recorded: Any) -> bool:
        is_done = self._exec is not None and not int(cu.cuGraphExecUpdate(self._exec, recorded.graph)[0])
        if is_done:
            recorded.close()
            SpikeProvider.num_updates += 1
        return is_done

    def close(self) -> None:
        if self._exec is not None:
            ask(cu.cuGraphExecDestroy(self._exec))
        ask(cu.cuGraphDestroy(self.graph))


class DeviceMemory(IGpuAllocator):
    """CUDA's own pool: allocation and free in the order of a stream."""

    def allocate(self, size: int, alignment: int, flags: int) -> int:
        address = self.allocate_async(size, alignment, flags, 0)
        ask(cu.cuStreamSynchronize(0))
        return address

    def deallocate(self, memory: int) -> bool:
        return self.deallocate_async(memory, 0)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int:
        return int(ask(cu.cuMemAllocAsync(max(size, 1), stream)))

    def deallocate_async(self, memory: int, stream: int) -> bool:
        return not int(cu.cuMemFreeAsync(memory, stream)[0])


class PinnedMemory(IGpuAllocator):
    def allocate(self, size: int, alignment: int, flags: int) -> int:
        return int(ask(cu.cuMemAllocHost(max(size, 1))))

    def deallocate(self, memory: int) -> bool:
        return not int(cu.cuMemFreeHost(memory)[0])


class SpikeProvider(di.Provider):
    name = "cuda_spike"
    can_capture = builds_per_profile = True
    memory = di.MemoryInfo(name="cuda")
    kernels = di.KernelRegistry("cuda_spike")  # type: ignore[assignment]
    allocator, pinned_allocator = DeviceMemory(), PinnedMemory()  # type: ignore[assignment]
    dlpack_device = (2, 0)  # type: ignore[assignment]
    num_updates = 0

    def __init__(self, device: di.Device) -> None:
        self.device = device
        self.graphs: list[CudaGraph] = []

    def get_capability(self, nodes: Sequence[di.NodeView]) -> Sequence[di.Claim]:
        kinds = {"Relu": di.StepKind.NODE, "MatMul": di.StepKind.PARTITION}
        return [
            di.Claim(taken=node.op in kinds, reason="it has Relu and MatMul", step_kind=kinds.get(node.op))
            for node in nodes
        ]

    # Relu: its code is in the plan

    def build_kernel(self, request: di.KernelRequest, context: di.BuildContext) -> di.BuiltKernel:
        cubin, name = compile_relu(_BLOCK, _WARPS, int(context.device.properties["compute_capability"]))
        return di.BuiltKernel(payload=name.encode(), version="1", tactic="triton", code={"relu": cubin})

    def load_kernel(self, stored: di.StoredKernel) -> di.CompiledKernel:
        use_device()
        library = ask(cu.cuLibraryLoadData(bytes(stored.code["relu"]), [], [], 0, [], [], 0))
        return Relu(ask(cu.cuKernelGetFunction(ask(cu.cuLibraryGetKernel(library, bytes(stored.payload))))))

    # MatMul: the algorithm is timed on the device, the weight uploaded when the plan is loaded

    def build_partition(self, model: Any, context: di.BuildContext) -> di.BuiltPartition:
        (node,), (name, weight) = list(model.graph), next(iter(model.graph.initializers.items()))
        array, rows = weight.const_value.numpy(), context.shapes[node.inputs[0].name].opt[0]
        product = Product(rows, *array.shape, _WORKSPACE_BYTES)
        found = {f"cuBLASLt {number}": code for number, code in enumerate(product.find_algorithms(8))}
        candidates = [self._candidate(product, key, found[key], context.tuner) for key in found]
        chosen = context.tuner.choose(f"MatMul {rows}x{array.shape} float32", candidates)
        report = di.NodeReport(name=node.name, op="MatMul", layers=[node.name], tactic=chosen.name)
        return di.BuiltPartition(
            payload=found[chosen.name] + np.array([rows, *array.shape], np.int64).tobytes(),
            weights={name: array},
            version="1",
            workspace_bytes=_WORKSPACE_BYTES,
            report=di.BuildReport(nodes=[report]),
        )

    def _candidate(self, product: Product, name: str, code: bytes, tuner: di.Tuner) -> di.Candidate:
        def start() -> Callable[[], None]:
            use_device()
            blocks = [self.allocator.allocate(16 << 20, 256, 0) for _ in range(4)]
            return lambda: product.run(*blocks[:3], code, blocks[3], tuner.stream.handle)  # type: ignore[union-attr]

        return di.Candidate(name=name, start=start)

    def load_partition(self, stored: di.StoredPartition) -> di.LoadedPartition:
        use_device()
        (weight,) = stored.weights.values()
        address = self.allocator.allocate(weight.nbytes, 256, 0)
        ask(cu.cuMemcpyHtoD(address, np.ascontiguousarray(weight).ctypes.data, weight.nbytes))
        sizes = np.frombuffer(stored.payload[64:], np.int64).tolist()
        return LoadedProduct(Product(*sizes, _WORKSPACE_BYTES), bytes(stored.payload[:64]), address)

    # memory, order, capture

    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> CudaArray:
        return CudaArray(address, shape, dtype)

    def can_copy(self, source: di.MemoryInfo, target: di.MemoryInfo) -> bool:
        return all(info.is_host or info == self.memory for info in (source, target))

    def copy(self, source: Any, target: Any, stream: di.Stream | None) -> None:
        places = [a.ctypes.data if isinstance(a, np.ndarray) else a.address for a in (target, source)]
        ask(cu.cuMemcpyAsync(*places, target.nbytes, 0 if stream is None else stream.handle))

    def create_stream(self) -> CudaStream:
        use_device()
        return CudaStream()

    def wrap_stream(self, handle: int) -> CudaStream:
        return CudaStream(handle)

    def synchronize(self) -> None:
        use_device()
        ask(cu.cuCtxSynchronize())

    def begin_capture(self, stream: di.Stream) -> None:
        ask(cu.cuStreamBeginCapture(stream.handle, _RELAXED))

    def end_capture(self, stream: di.Stream) -> CudaGraph:
        self.graphs.append(CudaGraph(ask(cu.cuStreamEndCapture(stream.handle))))
        return self.graphs[-1]


class Relu(di.CompiledKernel):
    def __init__(self, function: Any, stream: di.Stream | None = None) -> None:
        super().__init__(self._launch, self._launch)
        self._function, self._stream = function, stream

    def bind(self, context: di.BindContext) -> Relu:
        return Relu(self._function, context.stream)

    def _launch(self, x: CudaArray, y: CudaArray) -> None:
        count, stream = x.nbytes // 4, 0 if self._stream is None else self._stream.handle
        values = ((x.address, y.address, count, 0, 0), (c_void_p, c_void_p, c_int, c_void_p, c_void_p))
        grid = (-(-count // _BLOCK), 1, 1, 32 * _WARPS, 1, 1)
        ask(cu.cuLaunchKernel(self._function, *grid, 0, stream, values, 0))


class LoadedProduct(di.LoadedPartition):
    def __init__(self, product: Product, algorithm: bytes, weight: int) -> None:
        self.product, self.algorithm, self.weight = product, algorithm, weight

    def bind(self, context: di.BindContext) -> di.BoundPartition:
        return BoundProduct(self, context)


class BoundProduct(di.BoundPartition):
    is_capturable = True

    def __init__(self, loaded: LoadedProduct, context: di.BindContext) -> None:
        self._loaded, self._context = loaded, context

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        loaded, context = self._loaded, self._context
        stream = 0 if context.stream is None else context.stream.handle
        places = (loaded.weight, inputs[0].address, outputs[0].address)
        loaded.product.run(*places, loaded.algorithm, context.workspace, stream)


class SpikeFactory:
    name, version, api_version = "cuda_spike", "1", di.API_VERSION

    def devices(self) -> Sequence[di.Device]:
        use_device()
        device = ask(cu.cuDeviceGet(0))
        name, major = (
            ask(cu.cuDeviceGetName(100, device)).decode().rstrip("\0"),
            ask(cu.cuDeviceGetAttribute(_CAPABILITY, device)),
        )
        found = {"compute_capability": f"{major}0"}
        return [di.Device(name=name, kind="gpu", fingerprint=f"{name}-{major}", properties=found)]

    def create(self, device: di.Device, options: Mapping[str, str]) -> SpikeProvider:
        return SpikeProvider(device)
