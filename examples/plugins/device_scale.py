"""CupyScale and TritonScale: y = factor * x as plugins of a GPU, one with CuPy and one with a kernel of Triton.

Both ask for memory of a device, get its addresses and its stream in ``enqueue``, and put their work there without
waiting for it. Beside providers without a device they run on the host, with NumPy.
"""

from __future__ import annotations

import copy
import math

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array

try:
    import cupy
except ImportError:  # not needed where the plugin runs on the host
    cupy = None
try:
    import torch
    import triton
    import triton.language as tl
except ImportError:
    torch = triton = tl = None

__all__ = ["CupyScale", "ScaleCreator", "TritonScale", "get_creators"]

_BLOCK = 256

if triton is not None:

    @triton.jit
    def _scale(x, y, factor, count, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, factor * tl.load(x + at, mask=at < count), mask=at < count)


class _Scale(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """What both plugins share: everything but the work on the device."""

    preferred_memory = "device"

    def __init__(self, factor):
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = type(self).__name__, "1", ""
        self.num_outputs = 1
        self.factor = factor

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        return in_out[pos].desc.type == dt.float32 and in_out[pos].desc.format == dt.TensorFormat.LINEAR

    def configure_plugin(self, inputs, outputs):
        pass

    def set_tactic(self, tactic):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        if not input_desc[0].is_on_device:
            np.multiply(as_array(inputs[0], input_desc[0]), self.factor, out=as_array(outputs[0], output_desc[0]))
        elif math.prod(input_desc[0].dims):
            self.scale(inputs[0], outputs[0], tuple(input_desc[0].dims), stream)

    def scale(self, source, target, shape, stream):
        """Put the work on the stream, over addresses of the device."""
        raise NotImplementedError

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        factor = np.array([self.factor], np.float32)
        return dt.PluginFieldCollection([dt.PluginField("factor", factor, dt.PluginFieldType.FLOAT32)])


class CupyScale(_Scale):
    """With CuPy: arrays over the addresses, and the stream as that of the block."""

    def scale(self, source, target, shape, stream):
        with cupy.cuda.ExternalStream(stream):
            cupy.multiply(_open(source, shape), np.float32(self.factor), out=_open(target, shape))


def _open(address, shape):
    """The array of CuPy at an address; it owns nothing."""
    memory = cupy.cuda.UnownedMemory(address, 4 * math.prod(shape), None)
    return cupy.ndarray(shape, np.float32, cupy.cuda.MemoryPointer(memory, 0))


class TritonScale(_Scale):
    """With a kernel of Triton, which takes tensors and the current stream of PyTorch."""

    def scale(self, source, target, shape, stream):
        count = math.prod(shape)
        x, y = (torch.as_tensor(_Described(address, (count,)), device="cuda") for address in (source, target))
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            _scale[(triton.cdiv(count, _BLOCK),)](x, y, self.factor, count, BLOCK=_BLOCK)


class _Described:
    """Memory at an address, as PyTorch, CuPy and Numba read it without a copy."""

    def __init__(self, address, shape):
        facts = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 3, "stream": None}
        self.__cuda_array_interface__ = facts


class ScaleCreator(dt.IPluginCreatorV3One):
    """Makes one of the plugins from its factor."""

    def __init__(self, kind):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = kind.__name__, "1", ""
        self.field_names = dt.PluginFieldCollection([dt.PluginField("factor", None, dt.PluginFieldType.FLOAT32)])
        self.kind = kind

    def create_plugin(self, name, field_collection, phase):
        return self.kind(float(field_collection[0].data[0]))


def get_creators():
    """What makes this file a plugin library."""
    return [ScaleCreator(CupyScale), ScaleCreator(TritonScale)]
