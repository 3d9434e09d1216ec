"""A partition of ONNX Runtime's graph as a Dovetail engine, and the frames that run it.

A frame is a context and what it knows of the last run: the shapes, and the addresses that are bound. ONNX Runtime may
run a partition from several threads at once; each then has a frame of its own, and frames are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import onnx_ir as ir

import dovetail
from dovetail.host_arrays import array_at
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.library.contract import CallFrame, Shape
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["HostFrame", "Partition", "build_partition", "check_types", "wrap_engine"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """An engine, and its inputs and outputs in the order of the fused node."""

    engine: dovetail.Engine
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_dtypes: tuple[np.dtype[Any], ...]
    output_dtypes: tuple[np.dtype[Any], ...]
    has_stream: bool = False
    """Whether its frames are told on which stream ONNX Runtime runs them."""
    check: Callable[[], None] | None = None
    """Called between its steps; raises where a run is to end."""

    def new_frame(self) -> CallFrame:
        """A frame for one more thread."""
        return HostFrame(self)

    @cached_property
    def input_order(self) -> tuple[int, ...]:
        """For each input of the engine its position in the partition."""
        return tuple(self.inputs.index(tensor.name) for tensor in self.engine.manifest.inputs)

    @cached_property
    def output_order(self) -> tuple[int, ...]:
        """The same for outputs."""
        return tuple(self.outputs.index(tensor.name) for tensor in self.engine.manifest.outputs)


def build_partition(model: ir.Model, backend: Backend, options: EpOptions) -> Partition:
    """Build an engine from a partition; its weights are copied, so that ONNX Runtime can drop its own."""
    config = dovetail.BuilderConfig()
    config.tells_unset_dims = False  # a session has no way to set them
    config.is_part = True  # an operator that is overridden in the session need not be in this part of it
    config.provider_options = {name: dict(chosen) for name, chosen in options.provider_options.items()}
    if not backend.has_device_memory:  # ONNX Runtime brings memory of the host
        tensors = (*model.graph.inputs, *model.graph.outputs)
        config.io_memory = {value.name: "host" for value in tensors if value.name}
    names = backend.provider_names(options)
    engine = dovetail.compile(model, providers=names, override=options.override, config=config)
    return wrap_engine(engine, [value.name or "" for value in model.graph.inputs], _names(model.graph.outputs))


def wrap_engine(engine: dovetail.Engine, inputs: Sequence[str], outputs: Sequence[str]) -> Partition:
    """An engine as a partition with its inputs and outputs in this order."""
    dtypes = {tensor.name: np.dtype(tensor.dtype) for tensor in (*engine.manifest.inputs, *engine.manifest.outputs)}
    return Partition(
        engine=engine,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        input_dtypes=tuple(dtypes[name] for name in inputs),
        output_dtypes=tuple(dtypes[name] for name in outputs),
    )


def check_types(partition: Partition, graph: ir.Graph) -> None:
    """Check that types are equal: ONNX Runtime makes memory by those of its graph, the engine writes by its own."""
    for value, made in zip(graph.outputs, partition.output_dtypes, strict=True):
        if value.dtype is None or value.dtype.numpy() != made:
            what = "ONNX Runtime and the engine have different types"
            raise dovetail.InternalError(what, where=f"output '{value.name}'", expected=value.dtype, got=made)


def _names(values: Sequence[ir.Value]) -> list[str]:
    return [value.name or "" for value in values]


class HostFrame:
    """A frame over memory of the host."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._context = partition.engine.create_execution_context(check=partition.check)
        self._shapes: tuple[Shape, ...] = ()
        self._bound: dovetail.BoundRun | None = None
        """The run over memory of ONNX Runtime; None where arrays are passed and results copied."""
        engine = partition.engine
        self._needs_arrays = any(engine.is_shape_inference_io(name) for name in partition.inputs) or any(
            engine.get_tensor_memory(name) for name in engine.tensor_names
        )
        """Whether elements of inputs decide shapes, so that addresses must be known before sizes are, or tensors lie on
        a device, to which arrays of the host are copied."""
        count = len(partition.inputs)
        order = (*partition.input_order, *(count + position for position in partition.output_order))
        self._reorder = None if order == tuple(range(len(order))) else itemgetter(*order)
        """From the order of the partition to that of the engine, where they differ."""
        self._made = tuple(partition.output_order.index(i) for i in range(len(partition.outputs)))
        """For each output of the partition its position in the engine."""
        self._results: dict[int, Any] = {}

    def resize(self, shapes: tuple[Shape | None, ...], /) -> tuple[Shape | None, ...]:
        """Take new input shapes; an input of a partition is never absent."""
        partition = self._partition
        given = self._shapes = tuple([shape or () for shape in shapes])
        self._bound = None
        if self._needs_arrays or any(0 in shape for shape in given):
            return (None,) * len(partition.outputs)
        bound = self._context.bind([given[position] for position in partition.input_order])
        shapes_made = bound.output_shapes
        found = tuple([shapes_made[place] for place in self._made])
        for shape in found:
            if shape is None or 0 in shape:
                return (None,) * len(found)
        self._bound = bound
        return found

    def run(self, addresses: tuple[int, ...], /) -> None:
        """Run once."""
        bound = self._bound
        if bound is None:
            self._run_arrays(addresses)
        else:
            bound.execute(addresses if self._reorder is None else self._reorder(addresses))

    def _run_arrays(self, addresses: tuple[int, ...], /) -> None:
        partition, engine = self._partition, self._partition.engine
        places = zip(partition.inputs, addresses, self._shapes, partition.input_dtypes, strict=False)
        arrays = {name: array_at(address, shape, dtype) for name, address, shape, dtype in places}
        ordered = [arrays[tensor.name] for tensor in engine.manifest.inputs]
        results = self._context.run(ordered)
        made = {tensor.name: result for tensor, result in zip(engine.manifest.outputs, results, strict=True)}
        self._results = {i: np.asarray(made[name], order="C") for i, name in enumerate(partition.outputs)}

    def profile(self, clock: dovetail.IProfiler | None) -> None:
        """Run layer by layer from now on and tell a clock, or run as fast as can be again."""
        self._context.profiler = clock

    def result(self, index: int, /) -> tuple[int, Shape]:
        """Where a result lies; it is there until the next run."""
        array = self._results[index]
        return array.ctypes.data, array.shape
