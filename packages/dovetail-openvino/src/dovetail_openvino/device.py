"""The CPU as OpenVINO sees it: models compiled for it, and arrays as it takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import openvino as ov

from dovetail.errors import DovetailError, PlanCorruptError, ProviderError
from dovetail.provider.calls import first_line
from dovetail.provider.devices import Device
from dovetail.provider.host import host_device
from dovetail.provider.interfaces import BorderValue
from dovetail.provider.type_names import dtype_from_onnx_type

__all__ = ["FORBIDDEN", "TYPES", "Settings", "check_border", "compile_model", "explain", "find_devices", "share"]

FORBIDDEN: Final = b"location"
"""The key under which a tensor of ONNX names a file; no payload has these letters anywhere."""
TYPES: Final = {
    **{"bool": ov.Type.boolean, "float16": ov.Type.f16, "bfloat16": ov.Type.bf16, "float32": ov.Type.f32},
    **{"float8_e4m3fn": ov.Type.f8e4m3, "float8_e5m2": ov.Type.f8e5m2, "uint8": ov.Type.u8, "uint16": ov.Type.u16},
    **{"int8": ov.Type.i8, "int16": ov.Type.i16, "int32": ov.Type.i32, "int64": ov.Type.i64},
}
"""The types that are taken, by their NumPy names."""
_CPU: Final = "CPU"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How partitions of a provider are compiled."""

    threads: int = 0
    """Threads of a partition; 0 for one a core."""
    profiling: bool = False


@cache
def _core() -> Any:
    return ov.Core()


def find_devices() -> list[Device]:
    """The one CPU, as far as this build of OpenVINO has the plug-in for it."""
    if _CPU not in _core().available_devices:
        return []
    version = ".".join(ov.__version__.split(".")[:2])
    name = str(_core().get_property(_CPU, "FULL_DEVICE_NAME")).strip()
    return [Device(name=name, kind="cpu", fingerprint=f"{host_device().fingerprint}-openvino-{version}")]


def compile_model(payload: bytes, weights: Mapping[str, Any], settings: Settings, where: str) -> Any:
    """Compile a partition for the CPU, so that it computes in single precision what is in single precision.

    Args:
        payload: ONNX, with inputs in place of weights.
        weights: Their memory is used as long as the model is.
        settings: Of the provider.
        where: What an error is about.

    Raises:
        ProviderError: OpenVINO does not take it.
        PlanCorruptError: It names a file, or not the weights that there are.
    """
    if FORBIDDEN in payload:
        raise PlanCorruptError("a compiled partition names a file", where=where, fix="build the plan again")
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "EXECUTION_MODE_HINT": "ACCURACY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": settings.threads,
        "PERF_COUNT": settings.profiling,
        "CACHE_DIR": "",
    }
    try:
        model = _core().read_model(payload)
        _insert_weights(model, weights)
        return _core().compile_model(model, _CPU, options)
    except DovetailError:
        raise
    except Exception as error:
        raise ProviderError(f"OpenVINO does not take a partition: {explain(error)}", where=where) from error


def _insert_weights(model: Any, weights: Mapping[str, Any]) -> None:
    """Put constants in the place of inputs."""
    inputs = {node.friendly_name: node for node in model.get_parameters()}
    if not weights.keys() <= inputs.keys():
        raise PlanCorruptError("a compiled partition has no use for a weight", fix="build the plan again")
    for name, array in weights.items():
        constant = ov.op.Constant(share(array), shared_memory=True)
        constant.set_friendly_name(name)
        inputs[name].output(0).replace(constant.output(0))
        model.remove_parameter(inputs[name])
    model.validate_nodes_and_infer_types()


def check_border(ports: Sequence[Any], values: Sequence[BorderValue], where: str) -> list[str]:
    """The types of inputs or outputs, which must be as the plan says: what is stored may be any model.

    Raises:
        PlanCorruptError: Number, types or sizes are others.
    """
    dtypes = [dtype_from_onnx_type(value.type) for value in values]
    dims = [None if value.dims is None else [-1 if d is None else d for d in value.dims] for value in values]
    expected = [
        (TYPES.get(a), ov.PartialShape.dynamic() if b is None else ov.PartialShape(b))
        for a, b in zip(dtypes, dims, strict=True)
    ]
    found = [(port.element_type, port.partial_shape) for port in ports]
    is_same = len(found) == len(expected) and all(
        a == c and b.compatible(d) for (a, b), (c, d) in zip(found, expected, strict=True)
    )
    if not is_same:
        text = "a compiled partition has other inputs or outputs than the plan says"
        raise PlanCorruptError(text, where=where, expected=str(expected), got=str(found), fix="build the plan again")
    return dtypes


def share(array: Any) -> Any:
    """A tensor over the memory of an array, which it does not keep; arrays that are not for writing are only read."""
    raw = np.empty(0, np.uint8)
    if array.nbytes:
        raw = np.frombuffer(
            (ctypes.c_uint8 * array.nbytes).from_address(array.__array_interface__["data"][0]), np.uint8
        )
    return ov.Tensor(raw, ov.Shape(array.shape), TYPES[array.dtype.name])


def explain(error: BaseException) -> str:
    """The first line of a message of OpenVINO that says why and not where: those end with a colon or a full stop."""
    lines = (line.strip(" -") for line in str(error).splitlines())
    return first_line(RuntimeError(next((line for line in lines if line and line[-1] not in ":."), str(error))))
