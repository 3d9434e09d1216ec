"""cuDNN through its own front end: convolutions with a residual, a bias and an activation, by a plan chosen before.

The package ``nvidia-cudnn-frontend`` is not required, and importing it takes time: only what has or proposes a plan of
cuDNN does so.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from weakref import WeakValueDictionary

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail_cuda.run.convolutions import MOST_ENGINES, MOST_WORKSPACE_BYTES, BuiltConvPlan, Convolution, ConvPlan
from dovetail_cuda.run.cublaslt import load_cublaslt

__all__ = ["ConvLibrary", "ConvSearch", "Cudnn", "PreparedConv", "is_cudnn_here", "make_search", "open_or_warn"]

_WHERE: Final = "provider 'cuda'"
_TYPES: Final = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}
_IMAGE, _FILTERS, _BIAS, _RESIDUAL, _RESULT = 1, 2, 3, 4, 5
_NUM_PLANS: Final = 6
"""The plans of a heuristic that are tried."""
_MOST_COMPILED: Final = 1
"""Plans that the library compiles when it builds them, which takes seconds each: so many are built for a question."""


@dataclass(frozen=True, kw_only=True)
class ConvSearch:
    """Which plans of a convolution are asked for."""

    count: int
    """How many of each heuristic."""
    is_thorough: bool
    """Whether the slower heuristic is asked too."""
    workspace_bytes: int


def make_search(*, is_thorough: bool, uses_max_workspace: bool) -> ConvSearch:
    """What is asked of the library."""
    size = MOST_WORKSPACE_BYTES if uses_max_workspace else MOST_WORKSPACE_BYTES // 2
    return ConvSearch(count=_NUM_PLANS, is_thorough=is_thorough, workspace_bytes=size)


class PreparedConv:
    """A convolution that a library can run, with everything that does not change between runs.

    Args:
        graph: The library's own object.
        numbers: Ids of the buffers in the library, in the order of a launch.
        workspace_bytes: Scratch memory that it writes to.
    """

    def __init__(self, graph: Any, numbers: list[int], workspace_bytes: int) -> None:
        self.graph, self.numbers, self.workspace_bytes = graph, numbers, workspace_bytes


class ConvLibrary:
    """What convolves: cuDNN, or what stands for it in tests."""

    def get_version(self) -> int:
        """The version that plans are of."""
        raise NotImplementedError

    def build_plans(self, conv: Convolution, search: ConvSearch) -> list[BuiltConvPlan]:
        """Plans that can be built, the most promising first; none where it has no such convolution."""
        raise NotImplementedError

    def prepare(self, conv: Convolution, plan: ConvPlan, code: bytes) -> PreparedConv:
        """Make a convolution ready to run, on whichever stream; equal ones are one object."""
        raise NotImplementedError

    def use_stream(self, stream: int) -> None:
        """Be ready to run on a stream, so that nothing is left to do when it is captured."""

    def run(self, prepared: PreparedConv, addresses: list[int], workspace: int, stream: int) -> None:
        """Put a convolution on a stream."""
        raise NotImplementedError

    def close(self) -> None:
        """Give its handle back; nothing is run with it any more."""


@cache
def _import_cudnn() -> Any:
    """The front end with the library that it has found.

    Raises:
        ProviderError: One of them is not here.
    """
    try:
        import cudnn

        find_version = cudnn.backend_version
    except (ImportError, OSError, AttributeError) as error:
        raise ProviderError(
            f"a convolution is done by cuDNN, whose front end is not here: {error}",
            where=_WHERE,
            fix="pip install 'dovetail-cuda[cudnn]', or build the plan with enable_cudnn=0",
        ) from None
    try:
        find_version()
    except Exception as error:  # noqa: BLE001 - what it raises differs from version to version
        raise ProviderError(
            f"cuDNN's front end does not find the library itself: {str(error)[:200]}",
            where=_WHERE,
            fix="pip install nvidia-cudnn-cu13 (for CUDA 12: nvidia-cudnn-cu12), or build with enable_cudnn=0",
        ) from None
    return cudnn


def is_cudnn_here() -> bool:
    """Whether the front end is installed; it is not imported for that, and a mere folder of its name is none."""
    found = importlib.util.find_spec("cudnn")
    return found is not None and found.origin is not None


def open_or_warn(open_library: Callable[[], ConvLibrary]) -> ConvLibrary | None:
    """The library; None where it does not open, which is warned of."""
    try:
        return open_library()
    except ProviderError as error:
        what = f"{_WHERE}: {error.what}; convolutions are kernels of this back end"
        warnings.warn(what, RuntimeWarning, stacklevel=2)
        return None


class Cudnn(ConvLibrary):
    """The library, opened when it is first asked for something.

    Args:
        use_context: Makes the device's context that of the thread.
    """

    def __init__(self, use_context: Callable[[], object]) -> None:
        self._cudnn: Any = _import_cudnn()
        self._use_context = use_context
        load_cublaslt()  # it ends the process where it plans and does not find this
        use_context()
        with _telling("the library does not start"):
            self._handle = self._cudnn.create_handle()
        self._prepared: WeakValueDictionary[tuple[Any, ...], PreparedConv] = WeakValueDictionary()

    def get_version(self) -> int:
        """The version of the library, not of its front end."""
        return int(self._cudnn.backend_version())

    def build_plans(self, conv: Convolution, search: ConvSearch) -> list[BuiltConvPlan]:
        """What the library's heuristics propose and builds, best first."""
        self._use_context()
        modes, found = self._cudnn.heur_mode, dict[ConvPlan, BuiltConvPlan]()
        for mode in (modes.A, modes.B) if search.is_thorough else (modes.A,):
            graph = self._propose(conv, mode, search.workspace_bytes)
            if graph is not None:
                new = itertools.islice(self._build_each(graph, frozenset(found)), search.count)
                found |= {built.plan: built for built in new}
        return [built for built in found.values() if built.workspace_bytes <= search.workspace_bytes]

    def prepare(self, conv: Convolution, plan: ConvPlan, code: bytes) -> PreparedConv:
        """Read a plan back, or build it again from its engine and knobs where it cannot be read and they are known."""
        key = (conv, plan, code)
        found = self._prepared.get(key)
        if found is None:
            self._use_context()
            graph, size_bytes = self._restore(conv, plan, code)
            found = self._prepared[key] = PreparedConv(graph, _number_buffers(conv), size_bytes)
        return found

    def use_stream(self, stream: int) -> None:
        """Have the handle work on a stream; the front end remembers which one it has."""
        with _telling("it cannot use a stream"):
            self._cudnn.set_stream(self._handle, stream)

    def run(self, prepared: PreparedConv, addresses: list[int], workspace: int, stream: int) -> None:
        """Put a convolution on a stream."""
        self.use_stream(stream)
        buffers = dict(zip(prepared.numbers, addresses, strict=True))
        with _telling("a convolution failed"):
            prepared.graph.execute(buffers, workspace, self._handle)

    def close(self) -> None:
        """Give the handle back."""
        self._use_context()
        self._cudnn.destroy_handle(self._handle)

    # plans

    def _propose(self, conv: Convolution, mode: Any, workspace_bytes: int) -> Any:
        """A graph with the plans of a heuristic; None where the library has no such convolution."""
        graph = self._write_graph(conv)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.deselect_workspace_greater_than(workspace_bytes)
            self._deselect_notes(graph, conv)
            graph.create_execution_plans([mode])
        except Exception:  # noqa: BLE001 - it says so by errors of several kinds
            return None
        return graph

    def _build_each(self, graph: Any, known: frozenset[ConvPlan]) -> Iterator[BuiltConvPlan]:
        """The plans that build and are not known, with few of those that are compiled only then."""
        num_compiled = 0
        for index in range(graph.get_execution_plan_count()):
            plan, is_compiled = self._inspect(graph, index)
            if plan is None or plan in known:
                continue
            num_compiled += is_compiled
            built = None if is_compiled and num_compiled > _MOST_COMPILED else self._build(graph, index, plan)
            if built is not None:
                yield built

    def _inspect(self, graph: Any, index: int) -> tuple[ConvPlan | None, bool]:
        """A plan of the library itself, and whether it is compiled when it is built; None for what cannot be stored."""
        try:
            engine, knobs = graph.get_engine_and_knobs_at_index(index)
            tag = graph.get_plan_name_at_index(index)
            notes = graph.get_behavior_notes_for_plan_at_index(index)
        except Exception:  # noqa: BLE001 - a choice that is left to the library has no engine
            return None, False
        numbers = tuple(sorted((int(knob), int(value)) for knob, value in knobs.items()))
        plan = ConvPlan(tag=str(tag), engine=int(engine), knobs=numbers) if 0 <= engine < MOST_ENGINES else None
        return plan, self._cudnn.behavior_note.RUNTIME_COMPILATION in notes

    def _build(self, graph: Any, index: int, plan: ConvPlan) -> BuiltConvPlan | None:
        try:
            graph.build_plan_at_index(index)
            size, code = graph.get_workspace_size_plan_at_index(index), graph.serialize(as_bytes=True)
        except Exception:  # noqa: BLE001 - what the heuristics propose need not be supported, or is deselected
            return None
        return BuiltConvPlan(plan=plan, version=self.get_version(), workspace_bytes=int(size), code=bytes(code))

    def _deselect_notes(self, graph: Any, conv: Convolution) -> None:
        """Leave out what gives other results from run to run, or computes in less than single precision."""
        notes = self._cudnn.numerical_note
        unwanted = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION, notes.DOWN_CONVERT_INPUTS]
        if conv.dtype == "float32" and not conv.allows_tf32:
            unwanted.append(notes.TENSOR_CORE)
        graph.deselect_numeric_notes(unwanted)

    def _restore(self, conv: Convolution, plan: ConvPlan, code: bytes) -> tuple[Any, int]:
        """Return a graph that can run, and the size of its workspace in bytes."""
        graph = self._cudnn.pygraph(handle=self._handle)
        try:
            graph.deserialize(self._handle, code)
            size_bytes = int(graph.get_workspace_size())
        except Exception:  # noqa: BLE001 - the form is the library's own; what it means is stored besides
            return self._rebuild(conv, plan)
        if not hasattr(graph, "query_tensor_attributes_of_uid"):  # an older front end, which does not report tensors
            return self._rebuild(conv, plan)
        self._verify(graph, conv, plan)
        return graph, size_bytes

    def _verify(self, graph: Any, conv: Convolution, plan: ConvPlan) -> None:
        """Compare the tensors of a deserialized graph with the memory of its launch.

        Raises:
            PlanCorruptError: They differ.
        """
        kind = getattr(self._cudnn.data_type, _TYPES[conv.dtype])
        for number, (dims, strides) in _list_tensors(conv).items():
            try:
                tensor = graph.query_tensor_attributes_of_uid(number)
                found = (list(tensor.get_dim()), list(tensor.get_stride()), tensor.get_data_type())
            except Exception as error:  # noqa: BLE001 - the front end raises several kinds
                found = ([str(error)[:100]], [], None)
            if found != (dims, strides, kind):
                raise PlanCorruptError(
                    "the stored code of a convolution has other tensors than its launch",
                    where=f"cuDNN plan {plan.tag[:100]!a}, tensor {number}",
                    expected=f"{conv.dtype} {dims}, strides {strides}",
                    got=found,
                    fix="build the plan again",
                )

    def _rebuild(self, conv: Convolution, plan: ConvPlan) -> tuple[Any, int]:
        graph = self._write_graph(conv)
        knobs = {self._cudnn.knob_type(knob): value for knob, value in plan.knobs}
        with _telling(f"the plan {plan.tag[:100]} of a convolution can neither be read nor be built again"):
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plan(plan.engine, knobs)
            index = graph.get_execution_plan_count() - 1
            graph.build_plan_at_index(index)
            size_bytes = int(graph.get_workspace_size_plan_at_index(index))
        return graph, size_bytes

    # graphs

    def _write_graph(self, conv: Convolution) -> Any:
        """A convolution in the library's words; the residual comes before the bias, as its own fusions have it."""
        types = self._cudnn.data_type
        kind = getattr(types, _TYPES[conv.dtype])
        graph = self._cudnn.pygraph(
            io_data_type=kind,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )
        return write_graph(graph, conv, kind)


def _list_tensors(conv: Convolution) -> dict[int, tuple[list[int], list[int]]]:
    """Return dimensions and strides in elements of each buffer, by its id."""
    _, deep, high, wide = conv.filter_shape
    count, result = conv.filters, (list(conv.result_shape), list(conv.result_strides))
    return {
        _IMAGE: (list(conv.image), list(conv.image_strides)),
        _FILTERS: (list(conv.filter_shape), [high * wide * deep, 1, wide * deep, deep]),
        **({_BIAS: ([1, count, 1, 1], [count, 1, count, count])} if conv.has_bias else {}),
        **({_RESIDUAL: result} if conv.has_residual else {}),
        _RESULT: result,
    }


def write_graph(graph: Any, conv: Convolution, kind: Any) -> Any:
    """Put a convolution into an empty graph."""
    tensors = _list_tensors(conv)

    def add_tensor(name: str, number: int) -> Any:
        dims, strides = tensors[number]
        return graph.tensor(name=name, dim=dims, stride=strides, uid=number)

    sums = graph.conv_fprop(
        image=add_tensor("image", _IMAGE),
        weight=add_tensor("filters", _FILTERS),
        pre_padding=list(conv.before),
        post_padding=list(conv.after),
        stride=list(conv.strides),
        dilation=list(conv.dilations),
    )
    if conv.has_residual:
        sums = graph.add(a=sums, b=add_tensor("residual", _RESIDUAL))
    if conv.has_bias:
        sums = graph.bias(input=sums, bias=add_tensor("bias", _BIAS))
    made = _ACTIVATE[conv.activation](graph, sums)
    dims, strides = tensors[_RESULT]
    made.set_output(True).set_data_type(kind).set_dim(dims).set_stride(strides).set_uid(_RESULT)
    return graph


_ACTIVATE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "": lambda graph, x: x,
    "relu": lambda graph, x: graph.relu(x),
    "relu6": lambda graph, x: graph.relu(x, lower_clip=0.0, upper_clip=6.0),
    "sigmoid": lambda graph, x: graph.sigmoid(x),
    "tanh": lambda graph, x: graph.tanh(x),
    "swish": lambda graph, x: graph.swish(x),
    "gelu": lambda graph, x: graph.gelu(x),
    "gelu_tanh": lambda graph, x: graph.gelu_approx_tanh(x),
}


def _number_buffers(conv: Convolution) -> list[int]:
    """What the library calls the buffers of a launch, in their order."""
    return [_IMAGE, _FILTERS, *[_BIAS] * conv.has_bias, *[_RESIDUAL] * conv.has_residual, _RESULT]


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Tells an error of the library as one of this back end."""
    try:
        yield
    except Exception as error:
        raise ProviderError(f"{what}: {str(error)[:300]}", where="cuDNN") from error
