"""Debug tensors: outputs of the plan under names of their own, which engines hide and hand to a listener.

The name in the plan tells them from other outputs, so that it is known after loading too. They lie on the host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

import dovetail
from dovetail_tensorrt.trt.answers import call_user

__all__ = ["DebugReceiver", "IDebugListener", "debug_name", "debug_outputs", "find_unfused", "is_debug_name"]

_PREFIX: Final = "tensorrt.debug/"


def debug_name(name: str) -> str:
    """The name that a debug tensor has in a plan."""
    return _PREFIX + name


def is_debug_name(name: str) -> bool:
    """Whether a name in a plan is that of a debug tensor."""
    return name.startswith(_PREFIX)


class IDebugListener:
    """Told the contents of debug tensors in each run."""

    def process_debug_tensor(
        self,
        addr: int,
        location: dovetail.TensorLocation,
        type: dovetail.DataType,  # noqa: A002 - the contract's name
        shape: dovetail.Dims,
        name: str,
        stream: int,
    ) -> bool:
        """Look at one tensor; False says that it could not be handled."""
        raise NotImplementedError(f"{type.__class__.__name__} must implement process_debug_tensor(...)")


@contextmanager
def debug_outputs(network: dovetail.Network, unfused: Collection[str] = ()) -> Iterator[None]:
    """Have the tensors that are marked for debugging, and those of these names, be outputs while a plan is built."""
    added = []
    for tensor in _watched(network, unfused):
        output = network.add_identity(tensor).get_output(0)
        output.name = debug_name(tensor.name)
        output.location = dovetail.TensorLocation.HOST
        network.mark_output(output)
        added.append(output)
    try:
        yield
    finally:
        for output in added:
            network.unmark_output(output)
            network.remove_tensor(output)


def find_unfused(engine: dovetail.Engine) -> frozenset[str]:
    """The inputs of an engine, and the tensors that its steps hand to each other: those that no fusion took away."""
    values = [value for program in engine.manifest.programs for value in program.values]
    return frozenset(value.name for value in values if value.kind in ("input", "planned", "dynamic"))


def _watched(network: dovetail.Network, unfused: Collection[str]) -> list[dovetail.ITensor]:
    made = [layer.get_output(i) for layer in network for i in range(layer.num_outputs)]
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    tensors = (*inputs, *made)
    marked = [tensor for tensor in tensors if network.is_debug_tensor(tensor)]
    return marked + [t for t in tensors if t not in marked and t.name in unfused and _has_contract_type(t)]


def _has_contract_type(tensor: dovetail.ITensor) -> bool:
    try:
        return tensor.dtype in dovetail.DataType
    except dovetail.ModelError:  # DataType has no member for it
        return False


class DebugReceiver(dovetail.IOutputAllocator):
    """Memory for one debug tensor, and its shape when a run is over.

    Args:
        name: The tensor, as the network names it.
        dtype: Its type.
    """

    def __init__(self, name: str, dtype: dovetail.DataType) -> None:
        super().__init__()
        self.name = name
        self.is_on = False
        self._dtype = dtype
        self._memory: Any = np.zeros(1, np.uint8)
        self._shape: dovetail.Dims | None = None

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        """Memory of at least the size."""
        if self._memory.nbytes < size + alignment:
            self._memory = np.zeros(size + alignment, np.uint8)
        start = int(self._memory.ctypes.data)
        self._address = start + -start % max(alignment, 1)
        return self._address

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Keep the shape."""
        self._shape = dovetail.Dims(shape)

    def tell(self, listener: IDebugListener, stream: int) -> bool:
        """Hand what the last run gave to a listener; one that answers nothing has no objection."""
        shape, host = self._shape, dovetail.TensorLocation.HOST
        if shape is None:
            return True
        answer = call_user(
            "process_debug_tensor",
            lambda: listener.process_debug_tensor(self._address, host, self._dtype, shape, self.name, stream),
            failure=False,
        )
        return answer is not False
