"""Damaged and crafted model bytes: a ``ModelError`` or a model, never anything else and never a crash.

The bytes of a small model with a body, a function, tensors and attributes are cut, flipped and mixed. What still reads
as a model may import; everything that does not must say so in our own words.
"""

from __future__ import annotations

import random
import resource
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from dovetail.errors import DovetailError, ModelError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.importer import import_model
from dovetail.plugin.registry import PluginRegistry

TEXT = """
<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
agraph (float[N,4] x, bool c) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}, int64[2] s = {0, -1}> {
    a = Mul(x, w)
    b = acme.Twice(a)
    r = Reshape<allowzero = 0>(b, s)
    k = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>()
    y = If (c) <then_branch = t () => (float[N,4] p) { p = Add(r, k) },
                else_branch = e () => (float[N,4] q) { q = LeakyRelu<alpha = 0.5>(r) }>
}
<domain: "acme", opset_import: ["" : 21]> Twice (a) => (r) { r = Add(a, a) }
"""
DATA = parser.parse_model(TEXT).SerializeToString()
REGISTRY = PluginRegistry()


class Silent(ILogger):
    """Drops everything."""

    def log(self, severity: Severity, msg: str) -> None:
        """Nothing."""


def attempt(data: bytes) -> bool:
    """Whether the bytes import; every error must be ours."""
    try:
        model = import_model(data, registry=REGISTRY, logger=Silent())
    except ModelError:
        return False
    assert isinstance(model, ir.Model)
    return True


def test_the_model_itself_is_right() -> None:
    assert attempt(DATA)


def test_cut_anywhere() -> None:
    lengths = range(0, len(DATA), max(len(DATA) // 128, 1))
    results = [attempt(DATA[:length]) for length in lengths]
    assert not any(results[: len(results) // 2])


def test_empty() -> None:
    with pytest.raises(ModelError, match="no graph"):
        import_model(b"")


def test_every_bit_of_every_eleventh_byte() -> None:
    for position in range(0, len(DATA), 11):
        for bit in range(8):
            damaged = bytearray(DATA)
            damaged[position] ^= 1 << bit
            attempt(bytes(damaged))


def test_bytes_set_to_extremes() -> None:
    for position in range(0, len(DATA), 5):
        for byte in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(DATA)
            damaged[position] = byte
            attempt(bytes(damaged))


def test_pieces_removed_doubled_and_swapped() -> None:
    chance = random.Random(7)
    for _ in range(200):
        low, high = sorted(chance.sample(range(len(DATA)), 2))
        attempt(DATA[:low] + DATA[high:])
        attempt(DATA[:high] + DATA[low:])
        attempt(DATA[low:high] + DATA[:low] + DATA[high:])


@given(st.binary(max_size=400))
def test_garbage(data: bytes) -> None:
    attempt(data)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, len(DATA) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_several_bytes_at_once(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(DATA)
    for position, byte in changes:
        damaged[position] = byte
    attempt(bytes(damaged))


@pytest.mark.parametrize(
    "data",
    [
        b"PK\x03\x04" + b"\0" * 100,
        b"\x89HDF\r\n\x1a\n" + b"\0" * 100,
        b"GGUF" + b"\0" * 100,
        b"<html><body>Not found</body></html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        b"\x80\x04\x95" + b"\0" * 100,
        b"\xff" * 1000,
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x08" + b"\x80" * 20,
        b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    ],
    ids=["zip", "hdf5", "gguf", "html", "lfs", "pickle", "ones", "long", "endless varint", "huge length"],
)
def test_other_files(data: bytes) -> None:
    assert not attempt(data)


def test_nesting_beyond_the_parser_s_limit() -> None:
    graph = b""
    for _ in range(10_000):
        attribute = _message(6, graph)
        graph = _message(1, _message(5, attribute))
    assert not attempt(_message(7, graph))


def _message(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_bodies_nested_in_memory() -> None:
    proto = parser.parse_model(TEXT)
    graph = proto.graph
    for _ in range(300):
        graph = graph.node.add(op_type="If").attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    with pytest.raises(ModelError, match="nested more than 64 deep"):
        import_model(proto)


def model_of(tensor: onnx.TensorProto) -> bytes:
    y = helper.make_tensor_value_info("y", tensor.data_type, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], initializer=[tensor])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())


def tensor(data_type: int, dims: list[int], **fields: object) -> onnx.TensorProto:
    return TensorProto(name="w", data_type=data_type, dims=dims, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "proto",
    [
        tensor(TensorProto.FLOAT, [4], raw_data=b"\0" * 15),
        tensor(TensorProto.FLOAT, [4], raw_data=b"\0" * 17),
        tensor(TensorProto.FLOAT, [4], raw_data=b""),
        tensor(TensorProto.FLOAT, [2**62, 2**62], raw_data=b"\0" * 16),
        tensor(TensorProto.FLOAT, [2**40], float_data=[1.0]),
        tensor(TensorProto.FLOAT, [-1], raw_data=b"\0" * 16),
        tensor(TensorProto.FLOAT, [-2, -2], float_data=[1.0] * 4),
        tensor(TensorProto.INT4, [2**40], raw_data=b"\0"),
        tensor(TensorProto.INT4, [4], raw_data=b"\0"),
        tensor(TensorProto.UINT4, [2**33], int32_data=[0]),
        tensor(TensorProto.INT64, [2], int32_data=[1, 2]),
        tensor(TensorProto.COMPLEX64, [2], float_data=[1.0, 2.0]),
        tensor(TensorProto.STRING, [3], string_data=[b"a"]),
        tensor(0, [1], float_data=[1.0]),
        tensor(99, [1], float_data=[1.0]),
        tensor(-5, [1], float_data=[1.0]),
        tensor(TensorProto.FLOAT, [2**31], data_location=TensorProto.EXTERNAL),
    ],
)
def test_tensors_whose_data_does_not_fit(proto: onnx.TensorProto) -> None:
    assert not attempt(model_of(proto))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 4), np.float32),
        np.array(3.5, np.float32),
        np.zeros((1,) * 12, np.float32),
        np.array([True, False]),
        np.arange(3, dtype=np.uint64),
        np.array([1 + 2j], np.complex64),
    ],
)
def test_unusual_tensors_that_are_right(array: np.ndarray) -> None:
    model = import_model(model_of(numpy_helper.from_array(array, "w")))
    tensor_read = model.graph.initializers["w"].const_value
    assert tensor_read is not None
    np.testing.assert_array_equal(tensor_read.numpy(), array)


def test_strings_that_are_not_utf8() -> None:
    for name in (b"agraph", b"alpha", b"acme", b"LeakyRelu", b"Twice"):
        assert name in DATA
        attempt(DATA.replace(name, b"\xff\xfe" + name[2:]))


def test_an_unknown_field_is_ignored_as_the_format_says() -> None:
    assert attempt(DATA + b"\xfa\x3e\x03abc")


def test_memory_stays_small() -> None:
    """A few bytes must not make the process grow by the sizes they claim."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for dims in ([2**30], [2**20, 2**20], [2**62]):
        for kind in (TensorProto.FLOAT, TensorProto.INT4, TensorProto.BOOL, TensorProto.BFLOAT16):
            attempt(model_of(tensor(kind, dims, raw_data=b"\0" * 8)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    unit = 1 if sys.platform == "darwin" else 1024
    assert grown * unit < 64 << 20


def test_a_model_that_only_looks_damaged_says_what_is_wrong() -> None:
    with pytest.raises(DovetailError) as caught:
        import_model(DATA[: len(DATA) // 2])
    assert "model" in str(caught.value)
