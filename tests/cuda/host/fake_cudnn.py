"""Convolutions by NumPy, put on streams of the fake driver, in the place of cuDNN."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401
import msgspec
import numpy as np

from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution, ConvPlan, check_convolution
from dovetail_cuda.run.cudnn import ConvLibrary, ConvSearch, PreparedConv
from tests.cuda.host.fake_driver import FakeDriver

PLANS = (ConvPlan(tag="eng1_k2=4", engine=1, knobs=((2, 4),)), ConvPlan(tag="eng34", engine=34))
WORKSPACE_BYTES = 3 << 19
ACTIVATIONS: dict[str, Any] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
}


class FakeConvolutions(ConvLibrary):
    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.version = 91901
        self.is_closed = False
        self.searches: list[ConvSearch] = []

    def get_version(self) -> int:
        return self.version

    def build_plans(self, conv: Convolution, search: ConvSearch) -> list[BuiltConvPlan]:
        self.searches.append(search)
        plans = PLANS[: search.count] if search.is_thorough else PLANS[: min(search.count, 1)]
        return [self._build(conv, plan) for plan in plans]

    def _build(self, conv: Convolution, plan: ConvPlan) -> BuiltConvPlan:
        code = msgspec.msgpack.encode((self.version, plan, conv))
        return BuiltConvPlan(plan=plan, version=self.version, workspace_bytes=WORKSPACE_BYTES, code=code)

    def prepare(self, conv: Convolution, plan: ConvPlan, code: bytes) -> PreparedConv:
        assert msgspec.msgpack.decode(code, type=tuple[int, ConvPlan, Convolution]) == (self.version, plan, conv)
        return PreparedConv(conv, list(range(len(check_convolution(conv, plan)))), WORKSPACE_BYTES)

    def run(self, prepared: PreparedConv, addresses: list[int], workspace: int, stream: int) -> None:
        assert not self.is_closed, "the handle of a stream that is gone"
        assert len(addresses) == len(prepared.numbers)
        block = self.driver._find_block(workspace)
        assert block is not None, "there is no workspace"
        assert block == self.driver._find_block(workspace + WORKSPACE_BYTES - 1), "the workspace is too small"
        given = list(addresses)
        self.driver._submit(stream, "convolution", lambda: self._convolve(prepared.graph, given))

    def close(self) -> None:
        self.is_closed = True

    def _convolve(self, conv: Convolution, addresses: list[int]) -> None:
        self.driver.launched.append("convolution")
        counts = check_convolution(conv, PLANS[0])
        places = zip(addresses, counts, strict=True)
        image, weight, *extra, result = (self.driver.view(at, (n,), np.dtype(conv.dtype)) for at, n in places)
        sums = _sum_windows(conv, image, weight)
        if conv.has_bias:
            sums = sums + extra.pop(0).astype(np.float32)[None, :, None, None]
        if conv.has_residual:
            sums = sums + _lay(extra.pop(0), conv.result_shape, conv.result_strides)
        _lay(result, conv.result_shape, conv.result_strides)[:] = ACTIVATIONS[conv.activation](sums)


def _lay(flat: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in strides])


def _sum_windows(conv: Convolution, image: Any, weight: Any) -> Any:
    """The sums of a convolution, place by place of its window."""
    filters, deep, high, wide = conv.filter_shape
    packed = weight.astype(np.float32).reshape(conv.group, filters // conv.group, high, wide, deep)
    around = [(0, 0), (0, 0), *zip(conv.before, conv.after, strict=True)]
    padded = np.pad(_lay(image, conv.image, conv.image_strides).astype(np.float32), around)
    padded = padded.reshape(len(padded), conv.group, deep, *padded.shape[2:])
    (down, across), sums = conv.outputs, 0.0
    for r, s in np.ndindex(high, wide):
        top, left = r * conv.dilations[0], s * conv.dilations[1]
        window = padded[..., top :: conv.strides[0], left :: conv.strides[1]][..., :down, :across]
        sums = sums + np.einsum("ngchw,gfc->ngfhw", window, packed[:, :, r, s])
    return np.reshape(sums, conv.result_shape)
