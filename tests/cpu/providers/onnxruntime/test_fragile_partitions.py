"""Partitions that ONNX Runtime breaks, in its optimiser or in its kernels, and partitions that nobody reads."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import dovetail as dt
from dovetail.passes import PASS_NAMES
from dovetail.plan.walk import walk_steps

X = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 2


def _parse(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def _kinds(engine: Any) -> list[tuple[str, str]]:
    return [(step.kind, step.provider) for program in engine.manifest.programs for step in walk_steps(program)]


LOOP = """last = Loop(count, "", start)
    <body = body (int64 i, bool go, {type} s) => (bool on, {type} t)
        {{ {more} on = Identity(go) t = Add(s, {captured}) }}>"""


def test_a_name_that_the_optimiser_makes_in_a_body_and_beside_it() -> None:
    """Half precision is cast to single at each use, in the body and outside of it, by nodes of one name."""
    loop = LOOP.format(type="float16[3,4]", captured="x", more="")
    model = _parse(f"""g (float16[3,4] x) => (float16[3,4] y) <int64 count = {{2}}>
        {{ start = Abs(x) {loop} c = Cos(x) y = Add(last, c) }}""")
    engine = dt.compile(model)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    x = X.astype(np.float16)
    np.testing.assert_allclose(engine(x), np.abs(x) + 2 * x + np.cos(x), rtol=1e-2, atol=1e-2)
    again = dt.Runtime().deserialize_cuda_engine(bytes(engine.serialize()))
    np.testing.assert_array_equal(again(x), engine(x))


def test_a_constant_of_a_body_in_a_body() -> None:
    """ONNX Runtime writes it twice, once as a node and once as a weight, and then does not read it."""
    model = _parse("""g (float[3,4] x, bool c) => (float[3,4] y) <int64 count = {2}>
        { last = Loop(count, "", x) <body = body (int64 i, bool go, float[3,4] s) => (bool on, float[3,4] t) {
            on = Identity(go)
            t = If(c) <then_branch = a () => (float[3,4] u) {
                            k = Constant<value_ints = [0]>() e = Constant<value_ints = [3]>()
                            cut = Slice(s, k, e) u = Neg(cut) },
                       else_branch = b () => (float[3,4] v) { v = Abs(s) }> }>
          y = Neg(last) }""")
    config = dt.BuilderConfig()
    config.passes_off = PASS_NAMES
    engine = dt.compile(model, config=config)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    np.testing.assert_array_equal(engine(X, np.array(True)), -X)
    np.testing.assert_array_equal(engine(X, np.array(False)), -np.abs(X))


QUANTIZED = """q = QuantizeLinear(x, scale, z) d = DequantizeLinear(q, scale, z) turned = Transpose(d)"""


def test_signed_bytes_of_new_opsets_stay_in_a_partition() -> None:
    """ONNX Runtime makes them unsigned, forgets the attribute that says what they are, and refuses its own work."""
    model = _parse(
        f"g (float[3,4] x) => (float[4,3] y) <float scale = {{0.5}}, int8 z = {{1}}> {{ {QUANTIZED} y = Neg(turned) }}"
    )
    engine = dt.compile(model)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    np.testing.assert_array_equal(engine(X), -X.T)


@pytest.mark.parametrize("flag", [None, dt.BuilderFlag.REFIT])
def test_a_body_that_reads_what_was_quantized_ends_no_process(flag: Any) -> None:
    """ONNX Runtime's passes over Q and DQ do, so it happens in another one here."""
    model = _parse(f"""g (float[3,4] x, bool c) => (float[4,3] y) <float scale = {{0.5}}, uint8 z = {{20}}>
        {{ {QUANTIZED} y = If(c) <then_branch = a () => (float[4,3] u) {{ u = Neg(turned) }},
                                  else_branch = b () => (float[4,3] v) {{ v = Abs(turned) }}> }}""")
    code = (
        "import sys, numpy as np, dovetail as dt\n"
        "from dovetail.passes import PASS_NAMES\n"
        "config = dt.BuilderConfig()\n"
        "config.passes_off = PASS_NAMES\n"
        f"[config.set_flag(flag) for flag in {[] if flag is None else [int(flag)]}]\n"
        "engine = dt.compile(sys.stdin.buffer.read(), config=config)\n"
        "x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 2\n"
        "print([step.provider for step in engine.manifest.programs[0].steps])\n"
        "print(engine(x, np.array(True)).tolist())\n"
    )
    data = model.SerializeToString()
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines()[-2:] == ["['onnxruntime']", str((-X.T).tolist())]


IDENTITY = "m = Mul(x, x) y = Identity(m) i = Cast<to = 6>(m) s = Shape(i) size = Gather(s, zero)"


def test_an_identity_beside_a_cast_of_which_only_the_shape_is_read() -> None:
    """ONNX Runtime takes the identity away, and then does not find what it was one of."""
    engine = dt.compile(_parse(f"g (float[n,4] x) => (float[n,4] y, int64 size) <int64 zero = {{0}}> {{ {IDENTITY} }}"))
    assert _kinds(engine) == [("partition", "onnxruntime")]
    results = engine(X)
    np.testing.assert_array_equal(results["y"], X * X)
    assert results["size"] == 3


def test_identities_of_everything() -> None:
    """Of the same value twice, of an input, of a weight and of an output."""
    model = _parse("""g (float[3,4] x)
        => (float[3,4] a, float[3,4] b, float[3,4] c, float d, float[3,4] e, float[3,4] f)
        <float one = {1}> { m = Mul(x, x) a = Identity(m) b = Identity(m) c = Identity(x) d = Identity(one)
          e = Neg(m) f = Identity(e) }""")
    expected = {"a": X * X, "b": X * X, "c": X, "d": np.float32(1), "e": -X * X, "f": -X * X}
    for name, array in dt.compile(model)(X).items():
        np.testing.assert_array_equal(array, expected[name])


def test_an_identity_at_the_end_of_a_body() -> None:
    model = _parse(f"""g (float[n,4] x, bool c) => (float[n,4] z, int64 t) <int64 zero = {{0}}> {{ z, t = If(c)
        <then_branch = a () => (float[n,4] y, int64 size) {{ {IDENTITY} }},
         else_branch = b () => (float[n,4] v, int64 w) {{ v = Neg(x) w = Identity(zero) }}> }}""")
    engine = dt.compile(model)
    assert _kinds(engine) == [("partition", "onnxruntime")]
    results = engine(X, np.array(True))
    np.testing.assert_array_equal(results["z"], X * X)
    assert results["t"] == 3


@pytest.mark.parametrize(
    ("kind", "node", "result"),
    [
        ("float16", "QuantizeLinear(x, s, z)", "int8"),
        ("int8", "DequantizeLinear<output_dtype = 10>(x, s, z)", "float16"),
    ],
)
def test_data_and_scale_of_different_types(kind: str, node: str, result: str) -> None:
    """Of these ONNX Runtime has kernels that fail in the run, the second one before 1.31."""
    model = _parse(f"g ({kind}[4] x) => ({result}[4] y) <float s = {{0.5}}, int8 z = {{0}}> {{ y = {node} }}", 23)
    x = np.arange(-2, 2).astype(kind)
    np.testing.assert_array_equal(dt.compile(model)(x), (x * 2 if result == "int8" else x / 2).astype(result))


@pytest.mark.parametrize("rows", [0, 3])
def test_the_largest_of_nothing(rows: int) -> None:
    """ONNX Runtime before 1.31 divides by the number of rows."""
    text = f"g (float[{rows},4] x) => (float[{rows},2] y) <int64[1] k = {{2}}> {{ y, i = TopK(x, k) }}"
    np.testing.assert_array_equal(dt.compile(_parse(text))(X[:rows]), X[:rows, :1:-1])


def test_a_partition_that_nobody_reads_is_left_out() -> None:
    model = _parse(
        "g (float[3,4] x) => (float[3,4] y) { y = Neg(x) [cut] c = Relu(x) d = Tanh(c) e = Mul(d, d) f = Exp(e) }"
    )
    config = dt.BuilderConfig()
    config.passes_off = ["dead_code"]
    config.layer_providers = {"cut": "cpu"}
    engine = dt.compile(model, config=config)
    np.testing.assert_array_equal(engine(X), -X)
    assert ("partition", "onnxruntime") in _kinds(engine)
