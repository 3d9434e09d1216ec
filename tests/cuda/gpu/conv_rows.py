"""Convolutions of ResNet-50 by every way, timed by the tuner: ``python -m tests.cuda.gpu.conv_rows [BATCH ...]``."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import onnx

import dovetail as dt
from dovetail.provider.loader import has_provider, register_provider
from dovetail_cuda.provider import CudaFactory

__all__ = ["Row", "list_conv_tables", "make_model"]

_TRANSPOSE: Final = "Transpose<perm=[0,2,3,1]>"
_FOLLOWERS: Final = {
    "": "f = Identity(c)",
    "relu": "f = Relu(c)",
    "residual relu": "q = Transpose<perm=[0,3,1,2]>(r) s = Add(c, q) f = Relu(s)",
    "swish": "s = Sigmoid(c) f = Mul(c, s)",
}


@dataclass(frozen=True)
class Row:
    """A convolution with a bias, over square images."""

    channels: int
    filters: int
    size: int
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    group: int = 1
    follower: str = ""

    @property
    def name(self) -> str:
        """What is printed."""
        words = (f"{self.channels}->{self.filters}@{self.size} {self.kernel}x{self.kernel}", f"/{self.stride}")
        return " ".join((*words, self.follower))


ROWS: Final = (
    *(Row(64, 64, 56), Row(64, 64, 56, kernel=3, follower="relu"), Row(64, 256, 56, follower="residual relu")),
    *(Row(256, 64, 56, follower="relu"), Row(256, 128, 56, follower="relu"), Row(256, 512, 56, stride=2)),
    *(Row(128, 128, 56, kernel=3, stride=2, follower="relu"), Row(128, 128, 28, kernel=3, follower="relu")),
    *(Row(128, 512, 28, follower="residual relu"), Row(512, 128, 28, follower="relu"), Row(512, 1024, 28, stride=2)),
    *(Row(256, 256, 28, kernel=3, stride=2, follower="relu"), Row(256, 256, 14, kernel=3, follower="relu")),
    *(Row(256, 1024, 14, follower="residual relu"), Row(1024, 256, 14, follower="relu")),
    *(Row(512, 512, 14, kernel=3, stride=2, follower="relu"), Row(512, 512, 7, kernel=3, follower="relu")),
    *(Row(512, 2048, 7, follower="residual relu"), Row(2048, 512, 7, follower="relu")),
)


def make_model(row: Row, batch: int, kind: str) -> onnx.ModelProto:
    """The convolution with its filters as inputs; what it adds and gives has its channels last, as between layers."""
    pad, outputs = row.dilation * (row.kernel // 2), -(-row.size // row.stride)
    shape = f"{kind}[{batch},{outputs},{outputs},{row.filters}]"
    residual = f", {shape} r" if "residual" in row.follower else ""
    filters = f"{row.filters},{row.channels // row.group},{row.kernel},{row.kernel}"
    given = f"strides=[{row.stride},{row.stride}], dilations=[{row.dilation},{row.dilation}], group={row.group}"
    text = f"""({kind}[{batch},{row.channels},{row.size},{row.size}] x,
        {kind}[{filters}] w, {kind}[{row.filters}] b{residual}) => ({shape} y) {{
        c = Conv<pads=[{pad},{pad},{pad},{pad}], {given}>(x, w, b) {_FOLLOWERS[row.follower]} y = {_TRANSPOSE}(f) }}"""
    return onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 22]> g ' + text)


def list_conv_tables(engine: Any) -> list[Any]:
    """What was timed for convolutions."""
    return [table for table in engine.manifest.tuning if table.name.startswith("convolution")]


def _find_best(table: Any, is_library: bool) -> str:
    rows = [row for row in table.candidates if row.name.startswith("cuDNN") == is_library and row.time_us is not None]
    best = min(rows, key=lambda row: row.time_us, default=None)
    return "none" if best is None else f"{best.time_us:7.2f} {best.name} (of {len(rows)})"


def _print_row(row: Row, batch: int) -> None:
    start = time.perf_counter()
    engine = dt.compile(make_model(row, batch, "float16"), providers=["cuda", "cpu"])
    took = time.perf_counter() - start
    for table in list_conv_tables(engine):
        lines = f"{_find_best(table, False):46} | {_find_best(table, True)}"
        print(f"b{batch} {row.name:40} | {lines} | {took:.1f} s", flush=True)


if __name__ == "__main__":
    if not has_provider("cuda"):
        register_provider(CudaFactory())
    for number in [int(each) for each in sys.argv[1:]] or [1, 32]:
        for each in ROWS:
            _print_row(each, number)
