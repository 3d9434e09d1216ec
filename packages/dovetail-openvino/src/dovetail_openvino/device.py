"""The CPU as OpenVINO sees it: models compiled for it, and arrays as it takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import openvino as ov

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.provider.calls import first_line
from dovetail.provider.devices import Device
from dovetail.provider.host import host_device
from dovetail.provider.interfaces import TensorSpec

__all__ = ["FORBIDDEN", "TYPES", "compile_model", "explain", "find_devices", "find_wide", "share"]

Specs = Sequence[TensorSpec]
FORBIDDEN: Final = b"location"
"""The key under which a tensor of ONNX names a file; no payload has these letters anywhere."""
_NATIVE: Final = ("bool", "float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16")
_EXTENDED: Final = {"bfloat16": ov.Type.bf16, "float8_e4m3fn": ov.Type.f8e4m3, "float8_e5m2": ov.Type.f8e5m2}
TYPES: Final = {name: ov.Type(np.dtype(name).type) for name in _NATIVE} | _EXTENDED
"""The types that are taken, by their NumPy names."""
_CPU: Final = "CPU"
_OPTIONS: Final = {
    "PERFORMANCE_HINT": "LATENCY",
    "EXECUTION_MODE_HINT": "ACCURACY",
    "INFERENCE_PRECISION_HINT": "f32",  # whatever else the processor offers
    "CACHE_DIR": "",
}
_INT32: Final = np.iinfo(np.int32)
_AGAIN: Final = "build the plan again"


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


def compile_model(
    payload: bytes, weights: Mapping[str, Any], border: tuple[Specs, Specs], options: Mapping[str, Any], where: str
) -> Any:
    """Compile ONNX that has inputs in place of weights; the memory of these is used as long as the model is.

    Raises:
        ProviderError: OpenVINO does not take it.
        PlanCorruptError: It names a file, or has other weights, inputs or outputs than the plan says.
    """
    if FORBIDDEN in payload:
        raise PlanCorruptError("a compiled partition names a file", where=where, fix=_AGAIN)
    try:
        model = _core().read_model(payload)
        _insert_weights(model, weights)
        for ports, specs in zip((model.inputs, model.outputs), border, strict=True):
            _check_border(ports, specs, where)
        return _core().compile_model(model, _CPU, {**_OPTIONS, **options})
    except PlanCorruptError:
        raise
    except Exception as error:
        raise ProviderError(f"OpenVINO does not take a partition: {explain(error)}", where=where) from error


def _insert_weights(model: Any, weights: Mapping[str, Any]) -> None:
    """Put constants in the place of inputs."""
    inputs = {node.friendly_name: node for node in model.get_parameters()}
    for name in weights.keys() & inputs.keys():
        inputs[name].output(0).replace(ov.op.Constant(share(weights[name]), shared_memory=True).output(0))
        model.remove_parameter(inputs[name])
    model.validate_nodes_and_infer_types()


def _check_border(ports: Sequence[Any], specs: Specs, where: str) -> None:
    """Compare inputs or outputs of a model with those of the plan: what is stored may be any model."""
    found = [(port.element_type, port.partial_shape) for port in ports]
    wanted = [(TYPES.get(spec.dtype), ov.PartialShape(_dims(spec))) for spec in specs]
    pairs = zip(found, wanted, strict=False)
    if len(found) != len(wanted) or not all(a == c and b.compatible(d) for (a, b), (c, d) in pairs):
        text = "a compiled partition has other inputs or outputs than the plan says"
        raise PlanCorruptError(text, where=where, expected=str(wanted), got=str(found), fix=_AGAIN)


def _dims(spec: TensorSpec) -> Any:
    return "..." if spec.sizes is None else [-1 if size is None else size for size in spec.sizes]


def find_wide(array: Any) -> int | None:
    """A number that 32 bits do not hold; OpenVINO computes in them what has 64, and would cut it off without a word."""
    least, greatest = (array.item(),) * 2 if array.size == 1 else (array.min(initial=0), array.max(initial=0))
    return int(least) if least < _INT32.min else int(greatest) if greatest > _INT32.max else None


def share(array: Any) -> Any:
    """A tensor over the memory of an array, which it does not keep; arrays that are not for writing are only read."""
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.__array_interface__["data"][0])
    raw = np.frombuffer(memory, np.uint8) if array.nbytes else np.empty(0, np.uint8)
    return ov.Tensor(raw, ov.Shape(array.shape), TYPES[array.dtype.name])


def explain(error: BaseException) -> str:
    """The first line of a message of OpenVINO that says why and not where: those end with a colon or a full stop."""
    lines = (line.strip(" -") for line in str(error).splitlines())
    return first_line(RuntimeError(next((line for line in lines if line and line[-1] not in ":."), str(error))))
