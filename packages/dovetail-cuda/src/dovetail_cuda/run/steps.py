"""Launches made ready to run: the same for partitions of a plan and for ways that are timed.

A kind of launch is a record of ``run.payload`` and an entry of ``_KINDS``, which makes it ready: what is done once for
an engine. Binding it to addresses gives what a run does.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail_cuda.run.convolutions import BuiltConvPlan
from dovetail_cuda.run.cublaslt import ProductLibrary, RunProduct
from dovetail_cuda.run.cudnn import ConvLibrary, ConvSearch, PreparedConv
from dovetail_cuda.run.driver import Driver, Launch, Parameters
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.kernel_parameters import (
    INT32_BYTES,
    KernelParameter,
    check_parameters,
    check_threads,
    find_parameters,
)
from dovetail_cuda.run.payload import ConvLaunch, KernelLaunch, KernelRecord, Launches, ProductLaunch
from dovetail_cuda.run.stream_states import StreamStates

__all__ = ["LoadedFunction", "ReadyLaunch", "Resources", "Step", "load_functions", "prepare_launch"]

Step = Callable[[int], None]
"""Puts a launch on a stream."""


@dataclass(frozen=True, kw_only=True)
class LoadedFunction:
    """A kernel on the device."""

    handle: int
    parameters: Sequence[KernelParameter]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What launches are made ready with."""

    gpu: Gpu
    kernels: Sequence[KernelRecord]
    functions: Sequence[LoadedFunction]
    """The kernels as the driver has loaded them."""
    streams: StreamStates
    code: Mapping[str, Any] = field(default_factory=dict)
    """The blobs of the plan."""


class ReadyLaunch(ABC):
    """A launch with everything that does not change between contexts."""

    @abstractmethod
    def bind(self, addresses: list[int], scratch: int, stream: int) -> Step:
        """The launch over buffers, whose addresses are read at every run, over scratch memory and first on a stream."""


def load_functions(
    driver: Driver, kernels: Sequence[KernelRecord], code: Mapping[str, Any], libraries: dict[str, int]
) -> list[LoadedFunction]:
    """Load kernels and verify their parameters.

    Args:
        driver: Driver of the device.
        kernels: Kernels of a plan.
        code: Cubins by name.
        libraries: Handles of loaded cubins by name. New ones are added at once, so that a failure leaks none.

    Raises:
        PlanCorruptError: A kernel has other parameters than the plan passes.
        ProviderError: A kernel cannot be loaded or verified.
    """
    functions = []
    for kernel in kernels:
        if kernel.code not in libraries:
            libraries[kernel.code] = driver.load_library(bytes(code[kernel.code]))
        function = driver.find_function(libraries[kernel.code], kernel.name, kernel.shared_bytes)
        parameters = find_parameters(driver, function, bytes(code[kernel.code]), kernel.name)
        check_parameters(kernel, parameters)
        check_threads(driver, kernel, function, bytes(code[kernel.code]))
        functions.append(LoadedFunction(handle=function, parameters=parameters))
    return functions


def prepare_launch(launch: Launches, resources: Resources) -> ReadyLaunch:
    """Make a launch ready."""
    return _KINDS[type(launch)](launch, resources)


def _places(launch: Launches) -> list[tuple[int, int]]:
    """Each buffer by its number, and the bytes in it before what is passed."""
    return list(zip(launch.buffers, launch.offsets or [0] * len(launch.buffers), strict=True))


class _ReadyKernel(ReadyLaunch):
    def __init__(self, launch: KernelLaunch, resources: Resources) -> None:
        kernel = resources.kernels[launch.kernel]
        function = resources.functions[launch.kernel]
        _check_sizes(launch, kernel, function.parameters)
        self._gpu, self._places, self._sizes = resources.gpu, _places(launch), launch.sizes
        self._shape = Launch(
            function=function.handle,
            grid=launch.grid,
            threads=32 * kernel.num_warps,
            shared_bytes=kernel.shared_bytes,
            starts_early=kernel.starts_early,
        )

    def bind(self, addresses: list[int], scratch: int, stream: int) -> Step:
        shape, places = self._shape, self._places
        parameters = Parameters([*[0] * len(places), *self._sizes])
        launch = self._gpu.driver.launch

        def step(stream: int) -> None:
            for place, (number, offset) in enumerate(places):
                parameters.values[place] = addresses[number] + offset
            launch(shape, parameters, stream)

        return step


def _check_sizes(launch: KernelLaunch, kernel: KernelRecord, parameters: Sequence[KernelParameter]) -> None:
    """Require that every size fits its parameter, of which the kernel reads 4 or 8 bytes."""
    for size, parameter in zip(launch.sizes, parameters[kernel.num_addresses :], strict=False):
        if parameter.size_bytes == INT32_BYTES and not -(2**31) <= size < 2**31:
            raise PlanCorruptError(
                "a size does not fit the parameter of a kernel",
                where=f"kernel {kernel.name[:200]!a}",
                expected="32 bits",
                got=size,
                fix="build the plan again",
            )


class _ReadyProduct(ReadyLaunch):
    """A product by the library; one of another version of it gets a new algorithm."""

    def __init__(self, launch: ProductLaunch, resources: Resources) -> None:
        self._gpu, self._streams = resources.gpu, resources.streams
        _ = self._gpu.driver  # its context is current from here on
        library, algorithm = self._streams.find(0).products, launch.algorithm
        if launch.library_version != library.get_version():
            algorithm = _find_algorithm(library, launch)
        library.prepare(launch.product, algorithm)  # so that one that does not fit is told when a plan is loaded
        self._product, self._algorithm, self._places = launch.product, algorithm, _places(launch)

    def bind(self, addresses: list[int], scratch: int, stream: int) -> Step:
        """What is prepared belongs to the library of a stream, and to this binding: a bias is written into it."""
        streams, places = self._streams, self._places
        known, run = (stream, streams.generation), self._prepare(stream)

        def step(stream: int) -> None:
            nonlocal known, run
            if known != (stream, streams.generation):
                known, run = (stream, streams.generation), self._prepare(stream)
            run([addresses[number] + offset for number, offset in places], scratch, stream)

        return step

    def _prepare(self, stream: int) -> RunProduct:
        _ = self._gpu.driver  # its context is current from here on
        return self._streams.find(stream).products.prepare(self._product, self._algorithm)


def _find_algorithm(library: ProductLibrary, launch: ProductLaunch) -> bytes:
    found = library.find_algorithms(launch.product, 1)
    if not found:
        raise ProviderError("cuBLASLt has no algorithm for a product", where="provider 'cuda'", got=launch.product)
    return found[0]


class _ReadyConv(ReadyLaunch):
    """A convolution by the library, with a plan that may be a new one."""

    def __init__(self, launch: ConvLaunch, resources: Resources) -> None:
        self._streams, self._places = resources.streams, _places(launch)
        self._prepared = _prepare_conv(self._streams.find(0).convolutions, launch, bytes(resources.code[launch.code]))
        if self._prepared.workspace_bytes > launch.workspace_bytes:
            raise PlanCorruptError(
                "a convolution needs more scratch memory than the plan has for it",
                where=f"cuDNN plan {launch.plan.tag[:100]!a}",
                expected=f"at most {launch.workspace_bytes} bytes",
                got=self._prepared.workspace_bytes,
                fix="build the plan again",
            )

    def bind(self, addresses: list[int], scratch: int, stream: int) -> Step:
        """What is prepared is the same for all streams; each runs it with a handle of its own."""
        streams, places, prepared = self._streams, self._places, self._prepared
        streams.find(stream).convolutions.use_stream(stream)

        def step(stream: int) -> None:
            given = [addresses[number] + offset for number, offset in places]
            streams.find(stream).convolutions.run(prepared, given, scratch, stream)

        return step


def _prepare_conv(library: ConvLibrary, launch: ConvLaunch, code: bytes) -> PreparedConv:
    """The plan that is stored; the first of the heuristic where the library is of another version or cannot read it."""
    if launch.library_version == library.get_version():
        with suppress(ProviderError):
            return library.prepare(launch.convolution, launch.plan, code)
    built = _find_conv_plan(library, launch)
    warnings.warn(
        f"provider 'cuda': a convolution was timed with cuDNN {launch.library_version}, and cuDNN {built.version} has "
        "no use for its plan; the first plan of its heuristic is used; build the plan again to time it",
        RuntimeWarning,
        stacklevel=2,
    )
    return library.prepare(launch.convolution, built.plan, built.code)


def _find_conv_plan(library: ConvLibrary, launch: ConvLaunch) -> BuiltConvPlan:
    """The first plan that is content with the memory there is."""
    search = ConvSearch(count=1, is_thorough=False, workspace_bytes=launch.workspace_bytes)
    found = library.build_plans(launch.convolution, search)
    if not found:
        raise ProviderError(
            "cuDNN has no plan for a convolution",
            where="provider 'cuda'",
            expected=f"one as cuDNN {launch.library_version} had it, with {launch.workspace_bytes} bytes",
            got=f"cuDNN {library.get_version()}",
            fix="build the plan again here",
        )
    return found[0]


_KINDS: Final[Mapping[type[Any], Callable[[Any, Resources], ReadyLaunch]]] = {
    KernelLaunch: _ReadyKernel,
    ProductLaunch: _ReadyProduct,
    ConvLaunch: _ReadyConv,
}
