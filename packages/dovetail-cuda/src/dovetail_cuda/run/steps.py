"""Launches made ready to run: the same for partitions of a plan and for ways that are timed.

A kind of launch is a record of ``run.payload`` and an entry of ``_KINDS``, which makes it ready: what is done once for
an engine. Binding it to addresses gives what a run does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail_cuda.run.cublaslt import ProductLibrary
from dovetail_cuda.run.driver import Driver, Launch, Parameters
from dovetail_cuda.run.gpu import Gpu
from dovetail_cuda.run.payload import KernelLaunch, KernelRecord, Launches, ProductLaunch

__all__ = ["ReadyLaunch", "Resources", "Step", "load_functions", "prepare_launch"]

Step = Callable[[int], None]
"""Puts a launch on a stream."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What launches are made ready with."""

    gpu: Gpu
    kernels: Sequence[KernelRecord]
    functions: Sequence[int]
    """The kernels as the driver has loaded them."""
    open_products: Callable[[], ProductLibrary]


class ReadyLaunch(ABC):
    """A launch with everything that does not change between contexts."""

    @abstractmethod
    def bind(self, addresses: list[int], scratch: int) -> Step:
        """The launch over buffers, whose addresses are read at every run, and over scratch memory."""


def load_functions(
    driver: Driver, kernels: Sequence[KernelRecord], code: Mapping[str, Any], libraries: dict[str, int]
) -> list[int]:
    """Load kernels; what is loaded goes into the libraries at once, so that it can be given back."""
    functions = []
    for kernel in kernels:
        if kernel.code not in libraries:
            libraries[kernel.code] = driver.load_library(bytes(code[kernel.code]))
        functions.append(driver.find_function(libraries[kernel.code], kernel.name, kernel.shared_bytes))
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
        self._gpu, self._places, self._sizes = resources.gpu, _places(launch), launch.sizes
        self._shape = Launch(
            function=resources.functions[launch.kernel],
            grid=launch.grid,
            threads=32 * kernel.num_warps,
            shared_bytes=kernel.shared_bytes,
            starts_early=kernel.starts_early,
        )

    def bind(self, addresses: list[int], scratch: int) -> Step:
        shape, places = self._shape, self._places
        parameters = Parameters([*[0] * len(places), *self._sizes])
        launch = self._gpu.driver.launch

        def step(stream: int) -> None:
            for place, (number, offset) in enumerate(places):
                parameters.values[place] = addresses[number] + offset
            launch(shape, parameters, stream)

        return step


class _ReadyProduct(ReadyLaunch):
    """A product by the library; one of another version of it gets a new algorithm."""

    def __init__(self, launch: ProductLaunch, resources: Resources) -> None:
        _ = resources.gpu.driver  # its context is current from here on
        library, algorithm = resources.open_products(), launch.algorithm
        if launch.library_version != library.get_version():
            algorithm = _find_algorithm(library, launch)
        self._run, self._places = library.prepare(launch.product, algorithm), _places(launch)

    def bind(self, addresses: list[int], scratch: int) -> Step:
        run, places = self._run, self._places

        def step(stream: int) -> None:
            run([addresses[number] + offset for number, offset in places], scratch, stream)

        return step


def _find_algorithm(library: ProductLibrary, launch: ProductLaunch) -> bytes:
    found = library.find_algorithms(launch.product, 1)
    if not found:
        raise ProviderError("cuBLASLt has no algorithm for a product", where="provider 'cuda'", got=launch.product)
    return found[0]


_KINDS: Final[Mapping[type[Any], Callable[[Any, Resources], ReadyLaunch]]] = {
    KernelLaunch: _ReadyKernel,
    ProductLaunch: _ReadyProduct,
}
