"""Convolutions as a plan stores them for cuDNN, and the plans of that library."""

from __future__ import annotations

import itertools
import math
from typing import Final

from dovetail_cuda.run.records import Record, require

__all__ = [
    "ACTIVATIONS",
    "CONV_TYPES",
    "MOST_ENGINES",
    "MOST_WORKSPACE_BYTES",
    "BuiltConvPlan",
    "ConvPlan",
    "Convolution",
    "check_convolution",
]

MOST_WORKSPACE_BYTES: Final = 64 << 20
"""Scratch memory that a convolution may use."""
MOST_ENGINES: Final = 10_000
"""Engines from here on are no part of the library itself."""
CONV_TYPES: Final = ("float16", "bfloat16", "float32")
ACTIVATIONS: Final = ("", "relu", "relu6", "sigmoid", "tanh", "swish", "gelu", "gelu_tanh")
_MOST_KNOBS: Final = 64
_MOST_LETTERS: Final = 1000
_LEAST_WORKSPACE_BYTES: Final = 1 << 20


class Convolution(Record, frozen=True, kw_only=True):
    """A convolution over two dimensions: act(sums + residual + bias), everything with its channels last."""

    dtype: str
    image: tuple[int, int, int, int]
    """(N, C, H, W)"""
    image_strides: tuple[int, int, int, int]
    """Elements from one image, channel, line and pixel to the next."""
    filters: int
    group: int = 1
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    """The padding around an image."""
    outputs: tuple[int, int]
    result_line: int
    """Elements from one pixel of the result to the next; lines and images follow without a gap."""
    has_bias: bool = False
    """Whether a number is added for each filter."""
    has_residual: bool = False
    """Whether what lies as the result does is added."""
    activation: str = ""
    allows_tf32: bool = False

    @property
    def filter_shape(self) -> tuple[int, int, int, int]:
        """Filters, channels of a group, height and width; stored with the channels last."""
        return self.filters, self.image[1] // self.group, *self.kernel

    @property
    def result_shape(self) -> tuple[int, int, int, int]:
        """Images, filters, height and width."""
        return self.image[0], self.filters, *self.outputs

    @property
    def result_strides(self) -> tuple[int, int, int, int]:
        """Elements from one image, filter, line and pixel of the result to the next."""
        high, wide = self.outputs
        return high * wide * self.result_line, 1, wide * self.result_line, self.result_line


class ConvPlan(Record, frozen=True, kw_only=True):
    """What the library calls one way to do a convolution."""

    tag: str
    """The library's name for all that follows, which tells a plan from others."""
    engine: int
    knobs: tuple[tuple[int, int], ...] = ()
    """What can be chosen about it: the number of each knob, 0 where the front end has no name for it, and its value."""


class BuiltConvPlan(Record, frozen=True, kw_only=True):
    """A plan that is built, with the form in which the library reads it back."""

    plan: ConvPlan
    version: int
    workspace_bytes: int
    code: bytes

    @property
    def scratch_bytes(self) -> int:
        """What the plan needs, and enough for most plans that another version of the library may have instead."""
        return max(self.workspace_bytes, _LEAST_WORKSPACE_BYTES)

    @property
    def name(self) -> str:
        """What plans and timing caches call it: another version of the library may have another kernel for it."""
        return f"cuDNN {self.version} {self.plan.tag}"


def check_convolution(conv: Convolution, plan: ConvPlan) -> list[int]:
    """Check every number of a convolution.

    Returns:
        How many elements each of its buffers must have.

    Raises:
        ValueError: Something cannot be.
    """
    require(conv.dtype in CONV_TYPES and conv.activation in ACTIVATIONS, "there is no such convolution")
    require(0 <= plan.engine < MOST_ENGINES and len(plan.knobs) <= _MOST_KNOBS, "there is no such engine")
    require(len(plan.tag) <= _MOST_LETTERS and plan.tag.isascii(), "a plan has no such name")
    require(all(abs(n) < 2**31 for n in itertools.chain(*plan.knobs)), "there is no such knob")
    sizes = (*conv.image, conv.filters, conv.group, *conv.kernel, *conv.strides, *conv.dilations, *conv.outputs)
    require(all(1 <= n < 2**31 for n in sizes), "a convolution has no such sizes")
    require(conv.image[1] % conv.group == 0 and conv.filters % conv.group == 0, "channels do not fit the groups")
    require(all(0 <= n < 2**31 for n in (*conv.before, *conv.after)), "there is no such padding")
    require(_count_outputs(conv) == conv.outputs, "a convolution gives other sizes")
    require(all(1 <= step < 2**48 for step in conv.image_strides), "an image has no such strides")
    require(conv.filters <= conv.result_line < 2**48, "a result has no such line")
    return _count_elements(conv)


def _count_outputs(conv: Convolution) -> tuple[int, ...]:
    found = []
    for axis in range(2):
        reach = conv.dilations[axis] * (conv.kernel[axis] - 1) + 1
        room = conv.image[2 + axis] + conv.before[axis] + conv.after[axis] - reach
        found.append(room // conv.strides[axis] + 1)
    return tuple(found)


def _count_elements(conv: Convolution) -> list[int]:
    image = 1 + sum((n - 1) * step for n, step in zip(conv.image, conv.image_strides, strict=True))
    result = 1 + sum((n - 1) * step for n, step in zip(conv.result_shape, conv.result_strides, strict=True))
    extra = [conv.filters] * conv.has_bias + [result] * conv.has_residual
    return [image, math.prod(conv.filter_shape), *extra, result]
