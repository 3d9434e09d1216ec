"""SpectralGate: the custom operator of the demo, as a plugin library.

Each image is damped in the frequency domain: y = ifft2(fft2(x) * gate), with a gate that is the product of one bell
curve a side. The layer takes images in two layouts and offers two tactics, both exact: Fourier transforms, and, because
damping frequencies is a linear map of every row and column, two matrix products.
"""

from __future__ import annotations

import copy

import numpy as np

import dovetail as dt
from dovetail.plugin import as_array

__all__ = ["TACTICS", "SpectralGateCreator", "SpectralGatePlugin", "bell", "get_creators"]

TACTICS = {1: "fft", 2: "matmul"}


def bell(size: int, strength: float) -> np.ndarray:
    """How much of each frequency of a side passes: all of the lowest, less the higher and the stronger the gate."""
    return np.exp(-((strength * 2 * np.fft.fftfreq(size)) ** 2))


def damping_matrix(size: int, strength: float) -> np.ndarray:
    """The same as a matrix on the values themselves."""
    return np.fft.ifft(bell(size, strength)[:, None] * np.fft.fft(np.eye(size), axis=0), axis=0).real.astype(np.float32)


class SpectralGatePlugin(dt.IPluginV3, dt.IPluginV3OneCore, dt.IPluginV3OneBuild, dt.IPluginV3OneRuntime):
    """All three capabilities in one object."""

    def __init__(self, strength):
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = "SpectralGate", "1", ""
        self.num_outputs = 1
        self.strength = strength
        self.timing_cache_id = self.metadata_string = f"strength={strength:g}"
        self.tactic = 0

    def get_capability_interface(self, kind):
        return self

    def clone(self):
        return copy.copy(self)

    # build

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, exprs):
        return [dt.DimsExprs(inputs[0])]

    def supports_format_combination(self, pos, in_out, num_inputs):
        desc = in_out[pos].desc
        if desc.type != dt.float32 or desc.format not in (dt.TensorFormat.LINEAR, dt.TensorFormat.HWC):
            return False
        return desc.format == in_out[0].desc.format

    def configure_plugin(self, inputs, outputs):
        pass

    def get_valid_tactics(self):
        return list(TACTICS)

    # runtime

    def set_tactic(self, tactic):
        self.tactic = tactic

    def on_shape_change(self, inputs, outputs):
        height, width = inputs[0].dims[-2:]  # dims are those of the network, whatever the layout
        if TACTICS[self.tactic] == "fft":
            self.gate = np.outer(bell(height, self.strength), bell(width, self.strength)[: width // 2 + 1])
            self.gate = self.gate.astype(np.float32)
        else:
            self.left, self.right = (damping_matrix(size, self.strength) for size in (height, width))

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        is_hwc = input_desc[0].format == dt.TensorFormat.HWC  # x is (batch, height, width, channel) then
        if TACTICS[self.tactic] == "fft":
            axes, gate = ((1, 2), self.gate[:, :, None]) if is_hwc else ((2, 3), self.gate)
            y[...] = np.fft.irfft2(np.fft.rfft2(x, axes=axes) * gate, s=input_desc[0].dims[-2:], axes=axes)
        elif is_hwc:
            rows = np.matmul(self.left, x.reshape(*x.shape[:2], -1)).reshape(x.shape)
            np.matmul(self.right, rows, out=y)
        else:
            np.matmul(np.matmul(self.left, x), self.right.T, out=y)

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        strength = np.array([self.strength], np.float32)
        return dt.PluginFieldCollection([dt.PluginField("strength", strength, dt.PluginFieldType.FLOAT32)])


class SpectralGateCreator(dt.IPluginCreatorV3One):
    """Makes the plugin from the ONNX node's attribute, and from the plan's field."""

    def __init__(self):
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "SpectralGate", "1", ""
        self.field_names = dt.PluginFieldCollection([dt.PluginField("strength", None, dt.PluginFieldType.FLOAT32)])

    def create_plugin(self, name, field_collection, phase):
        return SpectralGatePlugin(float(field_collection[0].data[0]))


def get_creators():
    """What makes this file a plugin library."""
    return [SpectralGateCreator()]
