"""Large tensors that stay where they are: found wherever ONNX may hold them, and nothing else is changed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import ModelError
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.wire import TensorStash

LARGE = np.arange(20_000, dtype=np.float32)
FLOATS = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [20_000])]


def large(name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(LARGE, name)


def make_model() -> onnx.ModelProto:
    """Large tensors as initializer, attribute, in a body and in a function, and a small one."""
    p, q, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "pqy")
    then = helper.make_graph(
        [helper.make_node("Add", ["u", "inner"], ["p"])], "t", [], [p], initializer=[large("inner")]
    )
    other = helper.make_graph([helper.make_node("Neg", ["u"], ["q"])], "e", [], [q])
    nodes = [
        helper.make_node("Constant", [], ["k"], value=large("k")),
        helper.make_node("Add", ["x", "k"], ["s"]),
        helper.make_node("Mul", ["s", "w"], ["t"]),
        helper.make_node("F", ["t"], ["u"], domain="acme"),
        helper.make_node("If", ["c"], ["v"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["v", "small"], ["y"]),
    ]
    body = [helper.make_node("Constant", [], ["m"], value=large("m")), helper.make_node("Sub", ["a", "m"], ["r"])]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
    function = helper.make_function("acme", "F", ["a"], ["r"], body, opsets[:1])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    small = numpy_helper.from_array(np.ones(1, np.float32), "small")
    graph = helper.make_graph(nodes, "g", [*FLOATS, condition], [y], initializer=[large("w"), small])
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def tensors_of(model: ir.Model) -> list[np.ndarray]:
    found = []
    for graph in [model.graph, *model.graph.subgraphs()]:
        found += [value.const_value.numpy() for value in graph.initializers.values() if value.const_value is not None]
        for node in graph:
            found += [a.as_tensor().numpy() for a in node.attributes.values() if a.type == ir.AttributeType.TENSOR]
    return found


def test_every_large_tensor_stays_and_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(make_model(), path)
    for source in (path, path.read_bytes()):
        arrays = [array for array in tensors_of(import_model(source)) if array.size > 1]
        assert len(arrays) == 4
        for array in arrays:
            np.testing.assert_array_equal(array, LARGE)
            assert not array.flags.writeable
            assert not array.flags.owndata


def test_what_is_parsed_is_small() -> None:
    data = make_model().SerializeToString()
    stash = TensorStash(data)
    thin = stash.thin()
    assert len(data) > 320_000
    assert len(thin) < 2_000
    proto = onnx.ModelProto.FromString(thin)
    tensor = proto.graph.initializer[0]
    assert stash.size_of(tensor) == LARGE.nbytes
    array = stash.array_of(tensor)
    assert array is not None
    np.testing.assert_array_equal(array.view(np.float32), LARGE)
    assert stash.array_of(proto.graph.initializer[1]) is None


def test_a_small_model_is_parsed_as_it_is() -> None:
    data = helper.make_model(helper.make_graph([], "g", [], [])).SerializeToString()
    assert TensorStash(data).thin() == data


@pytest.mark.parametrize("count", [0, 4, 79_996, 80_004])
def test_a_size_that_does_not_fit_is_found(count: int) -> None:
    proto = make_model()
    proto.graph.initializer[0].raw_data = b"\0" * count
    with pytest.raises(ModelError, match="its data does not fit its shape"):
        import_model(proto.SerializeToString())


def test_a_file_cannot_hold_a_mark() -> None:
    """The mark of one reading in a file is data in the next."""
    stash = TensorStash(make_model().SerializeToString())
    marked = onnx.ModelProto.FromString(stash.thin())
    again = TensorStash(marked.SerializeToString())
    assert again.thin() == marked.SerializeToString()
    assert again.array_of(marked.graph.initializer[0]) is None


def test_a_tensor_with_two_contents_is_the_parser_s(tmp_path: Path) -> None:
    tensor = large("w").SerializeToString()
    doubled = tensor + onnx.TensorProto(raw_data=LARGE[::-1].tobytes()).SerializeToString()
    parsed = onnx.TensorProto.FromString(doubled)
    proto = make_model()
    data = proto.SerializeToString().replace(tensor, doubled)
    assert parsed.raw_data == LARGE[::-1].tobytes()
    assert TensorStash(data).thin() is not None  # the lengths around it no longer fit, so it is left to the parser


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_damage_is_left_to_the_parser(position: int, byte: int) -> None:
    data = bytearray(make_model().SerializeToString())
    data[position % len(data)] = byte
    stash = TensorStash(bytes(data))
    thin = stash.thin()
    with contextlib.suppress(DecodeError):
        onnx.ModelProto.FromString(thin)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what memory is one's own")
@pytest.mark.parametrize("external", [False, True])
def test_weights_take_no_memory_of_their_own(tmp_path: Path, external: bool) -> None:
    array = np.zeros((64, 1 << 18), np.float32)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 18])]
    graph = helper.make_graph(nodes, "g", inputs, [y], initializer=[numpy_helper.from_array(array, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=external, location="w.bin")
    program = """
import sys
from dovetail.network.importer.importer import import_model
def own():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
before = own()
model = import_model(sys.argv[1])
print(own() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40_000  # of 67,000, in KiB; what is imported late counts too
