"""Models of a few kilobytes that ask a build for gigabytes, and what a build of one takes, in a process of its own.

Run as ``python -m tests.support.growing_models NAME PROVIDER``; it prints how many megabytes the process had at most.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

import dovetail

__all__ = ["GROWING", "calling_twice", "doubling", "just_under_the_limit"]


def _model(nodes: list[Any], outputs: list[str], **weights: Any) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in [("x", [1])]]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ports, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def doubling(op: str = "Concat", times: int = 28) -> onnx.ModelProto:
    """A constant that is joined with itself again and again."""
    options = {"axis": 0} if op == "Concat" else {}
    nodes = [helper.make_node(op, [f"k{i}", f"k{i}"], [f"k{i + 1}"], **options) for i in range(times)]
    nodes += [
        helper.make_node("ReduceSum", [f"k{times}"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    return _model(nodes, ["y"], k0=np.ones(4, np.float32))


def just_under_the_limit(op: str = "ConstantOfShape", count: int = 200) -> onnx.ModelProto:
    """Constants that are each as large as one may be."""
    nodes, weights = [], {"s": np.array([(4 << 20) - 16], np.int64)}
    for index in range(count):
        if op == "ConstantOfShape":
            value = numpy_helper.from_array(np.array([index], np.float32))
            nodes.append(helper.make_node(op, ["s"], [f"c{index}"], value=value))
        else:
            weights[f"v{index}"] = np.array([index], np.float32)  # type: ignore[assignment]
            nodes.append(helper.make_node(op, [f"v{index}", "s"], [f"c{index}"]))
        nodes.append(helper.make_node("Add", [f"c{index}", "x"], [f"y{index}"]))
    return _model(nodes, [f"y{index}" for index in range(count)], **weights)


def calling_twice(depth: int) -> onnx.ModelProto:
    """Functions that each call the one before twice: two to the depth nodes."""
    text = f'<ir_version: 10, opset_import: ["" : 21, "a" : 1]> g (float[N] x) => (float[N] y) {{ y = a.f{depth}(x) }}'
    text += '<domain: "a", opset_import: ["" : 21]> f0 (a) => (r) { r = Neg(a) }'
    for level in range(1, depth + 1):
        text += f'<domain: "a", opset_import: ["" : 21, "a" : 1]> f{level} (a) => (r)'
        text += f"{{ t = a.f{level - 1}(a) r = a.f{level - 1}(t) }}"
    return parser.parse_model(text)


GROWING: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "doubling": doubling,
    "just under the limit": just_under_the_limit,
    "expanding": lambda: just_under_the_limit("Expand"),
}


if __name__ == "__main__":
    dovetail.compile(GROWING[sys.argv[1]](), providers=[sys.argv[2]])
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
