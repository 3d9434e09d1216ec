"""The best that a provider does here: a large product for arithmetic, a large sum for memory.

They are run as engines like any other, so that a roofline compares layers with what the same provider can reach.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from dovetail.api import compile as compile_model
from dovetail.build.config import BuilderConfig
from dovetail.runtime.measuring import Pace, measure
from dovetail.tools.bound_runs import bind_run

__all__ = ["measure_peaks"]

_ROWS: Final = 768
"""Rows and columns of the product: enough to keep every core busy, and over in milliseconds on one."""
_ELEMENTS: Final = 1 << 23
"""Larger than caches: 32 MiB a tensor."""
_PACE: Final = Pace(warmup_s=0.1, duration_s=0.3)


def measure_peaks(provider: str) -> dict[str, float]:
    """Operations and bytes a second that a provider reaches in float32.

    Raises:
        DovetailError: The provider cannot run here.
    """
    square, line = (_ROWS, _ROWS), (_ELEMENTS,)
    product_s = _time(provider, "MatMul", square)
    sum_s = _time(provider, "Add", line)
    return {"flops": 2 * _ROWS**3 / product_s, "bytes": 3 * 4 * _ELEMENTS / sum_s}


def _time(provider: str, op: str, shape: tuple[int, ...]) -> float:
    """Seconds of one run of an operator over two tensors that lie where the provider has them."""
    config = BuilderConfig()
    config.providers = (provider,)
    rng = np.random.default_rng(0)
    arrays = {name: rng.random(shape, np.float32) for name in "ab"}
    with compile_model(_make_model(op, shape), config=config) as engine:
        context = engine.create_execution_context()
        run = bind_run(context, arrays) or (lambda: context.run(list(arrays.values())))
        spans = measure(run, _PACE)
    return min(end - start for start, end in spans) / 1e9


def _make_model(op: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "abc"]
    node = helper.make_node(op, ["a", "b"], ["c"], name=op)
    graph = helper.make_graph([node], f"peak of {op}", tensors[:2], tensors[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
