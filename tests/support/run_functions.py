"""Makes sessions of models with functions again and again: ``python -m tests.support.run_functions ROUTE...``.

The functions are like those that exporters write: constants that ``CastLike`` takes to the type of an input, and
``Cast`` there and back. ONNX Runtime puts them in place of their calls while it asks which nodes are taken. It is a
program of its own so that a test can choose how memory is filled when it is freed, and so that a crash ends nothing
else.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import onnx
import onnx.parser

from tests.support.ort_ep import dovetail_session, reference_session, register

__all__ = ["MODELS", "feeds", "function_model"]

_SESSIONS = 3
_FUNCTIONS = """
<domain: "lib", opset_import: ["": 18, "lib": 1]>
scaled (x, like) => (y) {
    two = Constant <value_int = 2>()
    factor = CastLike(two, like)
    far = Cast <to = 11>(x)
    near = CastLike(far, like)
    y = Mul(near, factor)
}
<domain: "lib", opset_import: ["": 18, "lib": 1]>
shifted (x, k) => (y) {
    steps = Cast <to = 1>(k)
    half = Constant <value_float = 0.5>()
    twice = lib.scaled(steps, half)
    y = Add(x, twice)
}
"""
MODELS = {
    "calls": "a = lib.shifted(x, k) b = lib.scaled(a, x) y = lib.shifted(b, k)",
    "calls in branches": """
        some = ReduceSum <keepdims = 0>(x)
        zero = Constant <value_float = 0.0>()
        is_more = Greater(some, zero)
        a = If (is_more) <
            then_branch = more () => (b) { b = lib.shifted(x, k) },
            else_branch = less () => (c) { c = lib.scaled(x, zero) }
        >
        y = lib.scaled(a, x)
    """,
    "calls in a loop": """
        count = Constant <value_int = 3>()
        go = Constant <value = bool {1}>()
        y = Loop (count, go, x) <
            body = step (int64 i, bool on, float[n, 8] s) => (bool still, float[n, 8] t) {
                still = Identity(on)
                t = lib.shifted(s, k)
            }
        >
    """,
}
"""The nodes of a graph with the inputs x and k and the output y."""


def function_model(nodes: str) -> onnx.ModelProto:
    """A model of nodes that call the functions."""
    head = '<ir_version: 10, opset_import: ["": 18, "lib": 1]> g (float[n, 8] x, int64[n, 8] k) => (float[n, 8] y)'
    return onnx.parser.parse_model(f"{head} {{ {nodes} }} {_FUNCTIONS}")


def feeds(seed: int = 0) -> dict[str, Any]:
    """Inputs of the models."""
    chance = np.random.default_rng(seed)
    return {"x": chance.standard_normal((3, 8)).astype(np.float32), "k": chance.integers(-4, 4, (3, 8))}


def main(routes: list[str]) -> None:
    """Run every model in several sessions of every route, and compare with ONNX Runtime alone."""
    register()
    for name, nodes in MODELS.items():
        model, given = function_model(nodes), feeds()
        (expected,) = reference_session(model).run(None, given)
        for route in routes * _SESSIONS:
            session = dovetail_session(model, fallback=True, claim="all", route=route)
            np.testing.assert_allclose(session.run(None, given)[0], expected, rtol=1e-5, err_msg=name)
        gc.collect()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1:])
