"""Run the node tests that onnx ships against the kernels of a registry, one kernel call a test.

``load_models`` gives every node test, or those of the generator modules that mention a wanted op, since generating all
takes long. ``as_case`` is a node test as one call of a kernel, when its model is one node without a graph inside; one
that expands a function body has several nodes. ``check_case`` calls the kernel that the registry finds for the node and
compares with the expected outputs, the dtype included.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
from onnx import numpy_helper

from dovetail.provider.kernels import Kernel, KernelRegistry

__all__ = [
    "NodeCase",
    "as_case",
    "attributes_of",
    "check_case",
    "has_graph",
    "load_cases",
    "load_models",
    "opset_of",
    "run_case",
]

_ONNX_DOMAINS = frozenset({"", "ai.onnx"})
_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_BFLOAT16_RTOL = 2.0**-6
"""Two steps of bfloat16, the tolerance that onnx's own runner gives these outputs."""


@dataclass(frozen=True, kw_only=True)
class NodeCase:
    """One node test: a model of a single node, its data sets (inputs, expected outputs) and the tolerance."""

    name: str
    node: onnx.NodeProto
    opset: int
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


def load_models(ops: Iterable[str] | None = None) -> list[Any]:
    """The node tests of onnx, all of them or those from modules about these ops, in the order of their names."""
    with warnings.catch_warnings():
        # The generators overflow on purpose while they make the expected values.
        warnings.simplefilter("ignore")
        for module in _modules_about(None if ops is None else frozenset(ops)):
            importlib.import_module(module)
    return sorted(node_cases._NodeTestCases, key=lambda case: case.name)


def load_cases(ops: Iterable[str] | None = None) -> list[NodeCase]:
    """All node tests whose model is a single node, of one of these ops if any are named."""
    wanted = None if ops is None else frozenset(ops)
    cases = [as_case(test) for test in load_models(wanted) if test.model is not None]
    return [case for case in cases if case is not None and (wanted is None or case.node.op_type in wanted)]


def _modules_about(ops: frozenset[str] | None) -> Iterator[str]:
    folder = Path(node_cases.__path__[0])
    for info in pkgutil.walk_packages([str(folder)], f"{node_cases.__name__}."):
        if info.ispkg:
            continue
        path = Path(importlib.util.find_spec(info.name).origin)  # type: ignore[union-attr,arg-type]
        if ops is None or any(f'"{op}"' in path.read_text(encoding="utf-8") for op in ops):
            yield info.name


def as_case(test: Any) -> NodeCase | None:
    """A node test as one call of a kernel, or None when its model is more than one node or has a graph inside."""
    nodes = test.model.graph.node
    if len(nodes) != 1 or has_graph(nodes[0]):
        return None
    return NodeCase(
        name=test.name,
        node=nodes[0],
        opset=opset_of(test.model, nodes[0].domain),
        data_sets=[(_arrays(inputs), _arrays(outputs)) for inputs, outputs in test.data_sets or ()],
        rtol=test.rtol,
        atol=test.atol,
    )


def has_graph(node: onnx.NodeProto) -> bool:
    """Whether a node runs a graph of its own."""
    return any(attribute.type in _GRAPHS for attribute in node.attribute)


def opset_of(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of an operator set that a model imports."""
    names = _ONNX_DOMAINS if domain in _ONNX_DOMAINS else {domain}
    return next(int(entry.version) for entry in model.opset_import if entry.domain in names)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node as plain values: str for bytes, tuples for lists, arrays for tensors."""
    return {attribute.name: _plain(onnx.helper.get_attribute_value(attribute)) for attribute in node.attribute}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(_plain(item) for item in value) if is_list else value


def _array(value: Any) -> Any:
    """What a kernel gets: arrays (strings as objects), lists of arrays for sequences, None for an empty optional."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_array(item) for item in value]
    array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def _arrays(values: Iterable[Any]) -> list[Any]:
    return [_array(value) for value in values]


def _by_name(names: Sequence[str], values: Iterable[Any]) -> list[Any]:
    """Values in the order of the node's names, None where the name is empty."""
    present = iter(values)
    return [next(present) if name else None for name in names]


def run_case(case: NodeCase, registry: KernelRegistry) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """Run each data set of a case; yield the outputs of the kernel with the expected ones (None where not wanted)."""
    node = case.node
    kernel = _find_kernel(registry, node, case.opset)
    function = kernel.bind(attributes_of(node), len(node.output))
    for inputs, expected in case.data_sets:
        arrays = _by_name(node.input, inputs)
        _check_types(kernel, node, case.opset, arrays)
        result = function(*arrays)
        yield result if isinstance(result, tuple) else (result,), _by_name(node.output, expected)


def _find_kernel(registry: KernelRegistry, node: onnx.NodeProto, opset: int) -> Kernel:
    kernel = registry.find(node.op_type, node.domain, opset)
    assert kernel is not None, f"no kernel is registered for {node.op_type} at opset {opset}"
    return kernel


def _check_types(kernel: Kernel, node: onnx.NodeProto, opset: int, arrays: Sequence[Any]) -> None:
    """A kernel whose type constraints refuse the test's inputs would never be chosen for such a node."""
    formals = onnx.defs.get_schema(node.op_type, opset, node.domain).inputs
    for index, array in enumerate(arrays):
        constraint = formals[min(index, len(formals) - 1)].type_str
        if isinstance(array, np.ndarray) and constraint in kernel.types:
            accepted = sorted(kernel.types[constraint])
            assert array.dtype.name in accepted, f"input {index} is {array.dtype.name}, {constraint} takes {accepted}"


def check_case(case: NodeCase, registry: KernelRegistry) -> None:
    """Run a case and compare every output that the node names: kind, dtype, shape and values."""
    with np.errstate(all="raise", under="ignore"):
        results = list(run_case(case, registry))
    for outputs, expected in results:
        wanted = sum(1 for value in expected if value is not None)
        assert len(outputs) >= wanted, f"the kernel returned {len(outputs)} outputs, the node has {len(expected)}"
        for index, (output, value) in enumerate(zip(outputs, expected, strict=False)):
            if value is not None:
                _compare(output, value, f"output {index}", rtol=case.rtol, atol=case.atol)


def _compare(actual: Any, expected: Any, where: str, *, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, Sequence), f"{where} is {type(actual)}, expected a sequence"
        assert len(actual) == len(expected), f"{where} has {len(actual)} elements, expected {len(expected)}"
        for index, (part, wanted) in enumerate(zip(actual, expected, strict=True)):
            _compare(part, wanted, f"{where}[{index}]", rtol=rtol, atol=atol)
        return
    assert isinstance(actual, np.ndarray), f"{where} is {type(actual)}, expected an array"
    assert actual.dtype == expected.dtype, f"{where} is {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{where} has shape {actual.shape}, expected {expected.shape}"
    _compare_values(actual, expected, where, rtol=rtol, atol=atol)


def _compare_values(actual: Any, expected: Any, where: str, *, rtol: float, atol: float) -> None:
    if expected.dtype.kind in "OUSb":
        np.testing.assert_array_equal(actual, expected, err_msg=where)
        return
    if expected.dtype.kind == "V" or expected.dtype.name not in np.sctypeDict:
        rtol = max(rtol, _BFLOAT16_RTOL) if expected.dtype == ml_dtypes.bfloat16 else rtol
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol, err_msg=where)
