"""Run one node with ONNX Runtime and with the kernel of the ``cpu`` provider, and compare the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from dovetail.providers.cpu._numeric import NARROW_FLOATS, Array, plain_kernel
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry

__all__ = ["check_node", "compare", "run_kernel", "run_ort"]

MICROSOFT = "com.microsoft"
OPSET = 21


def run_kernel(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int = 1,
    domain: str = MICROSOFT,
    opset: int | None = None,
) -> tuple[Array, ...]:
    """The kernel as a step of a plan calls it; what every kernel must keep is checked on the way."""
    load_kernels()
    kernel = registry.find(op, domain, opset or (1 if domain == MICROSOFT else OPSET))
    assert kernel is not None, f"no kernel for {domain}::{op}"
    narrow = any(array is not None and array.dtype.name in NARROW_FLOATS for array in inputs)
    function = kernel.bind(attributes or {}, outputs, function=None if narrow else plain_kernel(kernel.function))
    before = [None if array is None else array.copy() for array in inputs]
    with np.errstate(all="ignore"):
        result = function(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    for array, old in zip(inputs, before, strict=True):
        assert array is None or old is None or array.tobytes() == old.tobytes(), "an input was changed"
        shared = [np.shares_memory(array, part) for part in results if array is not None and part is not None]
        assert not any(shared), "an output is an input"
    return results[:outputs]


def run_ort(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | Sequence[bool] = 1,
    domain: str = MICROSOFT,
    opset: int = OPSET,
    constants: Sequence[int] = (),
    output_types: Mapping[int, Any] | None = None,
) -> list[Array | None]:
    """The outputs of ONNX Runtime's CPU; None for those that are not asked for.

    ``output_types`` are the dtypes of outputs whose type no input decides.
    """
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    names = [f"y{index}" if is_wanted else "" for index, is_wanted in enumerate(wanted)]
    node = onnx.helper.make_node(op, _names(inputs), names, domain=domain, **(attributes or {}))
    present = {f"x{index}": array for index, array in enumerate(inputs) if array is not None}
    fixed = {name: present.pop(name) for name in [f"x{index}" for index in constants] if name in present}
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            op,
            [_describe(name, array) for name, array in present.items()],
            [_output(name, (output_types or {}).get(index)) for index, name in enumerate(names) if name],
            [onnx.numpy_helper.from_array(array, name) for name, array in fixed.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(MICROSOFT, 1)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = dict(zip([name for name in names if name], _run(session, present), strict=True))
    return [results.get(name) for name in names]


def _names(inputs: Sequence[Array | None]) -> list[str]:
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    return names


def _describe(name: str, array: Array) -> onnx.ValueInfoProto:
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, number, array.shape)


def _output(name: str, dtype: Any) -> onnx.ValueInfoProto:
    if dtype is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)


def _run(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Types that NumPy does not know go in through ``OrtValue``, which strings cannot."""
    if any(array.dtype == object for array in feeds.values()):
        return list(session.run(None, dict(feeds)))
    wrapped = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        if array.dtype.kind == "V"
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    return [value.numpy() for value in session.run_with_ort_values(None, wrapped)]


def compare(ours: Array, theirs: Array, *, rtol: float, atol: float, what: str = "") -> None:
    """The same shape and type, and values within the tolerance."""
    assert isinstance(ours, np.ndarray), f"{what} is no array"
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), what
    left, right = (array.astype(np.float64) if array.dtype != object else array for array in (ours, theirs))
    if left.dtype == object:
        assert left.tolist() == right.tolist()
    else:
        np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, err_msg=what)


def check_node(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int | Sequence[bool] = 1,
    domain: str = MICROSOFT,
    opset: int = OPSET,
    constants: Sequence[int] = (),
    output_types: Mapping[int, Any] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> tuple[Array, ...]:
    """Assert that the kernel gives what ONNX Runtime gives, and return the kernel's outputs."""
    theirs = run_ort(
        op,
        inputs,
        attributes,
        outputs=outputs,
        domain=domain,
        opset=opset,
        constants=constants,
        output_types=output_types,
    )
    version = 1 if domain == MICROSOFT else opset
    ours = run_kernel(op, inputs, attributes, outputs=len(theirs), domain=domain, opset=version)
    for index, expected in enumerate(theirs):
        if expected is not None:
            compare(ours[index], expected, rtol=rtol, atol=atol, what=f"{op} output {index}")
    return ours
