"""Kernels of built-in plugins in Triton's interpreter, over memory of the host.

It must be imported before Triton is, because Triton decides to interpret when it is imported.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.plugin.arrays import address_of
from dovetail.types import PluginTensorDesc, TensorFormat, data_type_from_numpy
from dovetail_tensorrt.builtin.base import BuiltinPlugin
from dovetail_tensorrt.builtin.device.launch import (
    Argument,
    DeviceBuffer,
    HostConstant,
    KernelLaunch,
    make_request,
    measure_buffers,
)
from tests.cuda.host.interpreter import _TYPES, Pointer

from dovetail_cuda.compile.triton_compiler import load_kernel  # isort: skip

Array = npt.NDArray[Any]


def run_interpreted(plugin: BuiltinPlugin, inputs: Sequence[Array], shapes: Sequence[Sequence[int]]) -> list[Array]:
    """The outputs, of these shapes, that the plugin's kernels compute."""
    given = [_copy_aligned(array) for array in inputs]
    types = plugin.get_output_data_types([data_type_from_numpy(array.dtype) for array in given])
    made = [_copy_aligned(np.full(shape, 77, dtype.numpy)) for shape, dtype in zip(shapes, types, strict=True)]
    descs = [_describe(array) for array in given], [_describe(array) for array in made]
    run_described(plugin, *descs, given, made)
    return made


def run_described(
    plugin: BuiltinPlugin,
    input_desc: Sequence[PluginTensorDesc],
    output_desc: Sequence[PluginTensorDesc],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
) -> None:
    """Run the kernels over arrays in the layouts that the descriptors say."""
    sizes = plugin.list_buffers([tuple(desc.dims) for desc in input_desc], [desc.type for desc in input_desc])
    workspace = _copy_aligned(np.full(measure_buffers(sizes) + 64, 0xEE, np.uint8))
    places = [address_of(array) for array in inputs], [address_of(array) for array in outputs]
    for launch in plugin.plan_run(input_desc, output_desc, *places, address_of(workspace)):
        run_launch(launch)
    assert (workspace[-64:] == 0xEE).all()


def run_launch(launch: KernelLaunch) -> None:
    if 0 in launch.grid:
        return
    kept: list[Array] = []
    arguments = [_convert(value, kept) for value in launch.arguments.values()]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        load_kernel(make_request(launch, 90))[launch.grid](*arguments, *launch.constants.values())


def _convert(value: Argument, kept: list[Array]) -> Any:
    if isinstance(value, DeviceBuffer):
        return Pointer(value.address, _TYPES[value.kind])
    if isinstance(value, HostConstant):
        kept.append(np.frombuffer(value.data, np.uint8))
        return Pointer(address_of(kept[-1]), _TYPES[value.kind])
    return value


def _describe(array: Array) -> PluginTensorDesc:
    return PluginTensorDesc(array.shape, data_type_from_numpy(array.dtype), TensorFormat.LINEAR)


def _copy_aligned(array: Array) -> Array:
    memory = np.zeros(array.nbytes + 512, np.uint8)
    start = -address_of(memory) % 256
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
