"""A partition of ONNX Runtime's graph as a Dovetail engine, and the frames that run it.

A frame is a context and what it knows of the last run: the shapes, and the addresses that are bound. ONNX Runtime may
run a partition from several threads at once; each then has a frame of its own, and frames are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

import dovetail
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.graph.values import array_at
from onnxruntime_ep_dovetail.library.contract import Frame, Shape
from onnxruntime_ep_dovetail.session.options import EpOptions

__all__ = ["HostFrame", "Partition", "build_partition", "check_types", "wrap_engine"]


@dataclass(frozen=True, kw_only=True)
class Partition:
    """An engine, and its inputs and outputs in the order of the fused node."""

    engine: dovetail.Engine
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_dtypes: tuple[np.dtype[Any], ...]
    output_dtypes: tuple[np.dtype[Any], ...]
    has_stream: bool = False
    """Whether its frames are told on which stream ONNX Runtime runs them."""

    def new_frame(self) -> Frame:
        """A frame for one more thread."""
        return HostFrame(self)


def build_partition(model: ir.Model, backend: Backend, options: EpOptions) -> Partition:
    """Build an engine from a partition; its weights are copied, so that ONNX Runtime can drop its own."""
    config = dovetail.BuilderConfig()
    config.provider_options = {name: dict(chosen) for name, chosen in options.provider_options.items()}
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
        self._context = partition.engine.create_execution_context()
        self._execute = self._context.execute_async_v3
        self._shapes: tuple[Shape, ...] = ()
        self._is_bound = False
        """Whether memory of ONNX Runtime is bound, or arrays are passed and results copied."""
        self._addresses: tuple[int, ...] = ()
        self._repeat: Callable[[], object] | None = None
        """A run over the addresses of the two before."""
        self._results: dict[int, Any] = {}

    def resize(self, shapes: tuple[Shape | None, ...], /) -> tuple[Shape | None, ...]:
        """Take new input shapes; an input of a partition is never absent."""
        context, partition = self._context, self._partition
        given = tuple(shape or () for shape in shapes)
        self._shapes, self._addresses = given, ()
        for name, shape in zip(partition.inputs, given, strict=True):
            context.set_input_shape(name, shape)
        outputs = [self._output_shape(name) for name in partition.outputs]
        has_bytes = all(shape is not None and min(shape, default=1) > 0 for shape in (*given, *outputs))
        self._is_bound = has_bytes and not self._needs_values()
        return tuple(outputs) if self._is_bound else (None,) * len(outputs)

    def _output_shape(self, name: str) -> Shape | None:
        """The shape of an output; None when even its number of dimensions is told by the run only."""
        is_ranked = self._partition.engine.tensor(name).dims is not None
        return tuple(self._context.get_tensor_shape(name)) if is_ranked else None

    def _needs_values(self) -> bool:
        """Whether elements of inputs decide shapes, so that addresses must be known before sizes are."""
        return any(self._partition.engine.is_shape_inference_io(name) for name in self._partition.inputs)

    def run(self, addresses: tuple[int, ...], /) -> None:
        """Run once."""
        if addresses is self._addresses:  # only what was bound is kept there
            if self._repeat is None:
                self._repeat = self._context.bind_run() or self._execute
            self._repeat()
        elif self._is_bound:
            self._bind(addresses)
            self._execute()
        else:
            self._run_arrays(addresses)

    def _bind(self, addresses: tuple[int, ...]) -> None:
        context, partition = self._context, self._partition
        for name, address in zip((*partition.inputs, *partition.outputs), addresses, strict=True):
            context.set_tensor_address(name, address)
        self._addresses, self._repeat = addresses, None

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
        self._addresses = ()  # the next run binds them again

    def result(self, index: int, /) -> tuple[int, Shape]:
        """Where a result lies; it is there until the next run."""
        array = self._results[index]
        return array.ctypes.data, array.shape
