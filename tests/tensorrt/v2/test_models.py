"""V2 plugins in ONNX models, in engines without a profile, in threads, and with any stored bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.plugin.fields import decode_fields, encode_fields
from dovetail.plugin.registry import PluginRegistry
from dovetail_tensorrt import v2
from tests.tensorrt.v2.noted import NotedPlugin
from tests.tensorrt.v2_files import FILES, PluginFile, import_file


def make_model(file: PluginFile, op: str, **attributes: Any) -> onnx.ModelProto:
    shape = ["n", *file.shapes[0][1:]]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def compile_file(name: str, op: str, **attributes: Any) -> tuple[PluginFile, Any]:
    file = next(file for file in FILES if file.name == name)
    registry = PluginRegistry()
    registry.register_creator(getattr(import_file(file.path), file.creator)())
    return file, dt.compile(make_model(file, op, **attributes), registry=registry)


def test_an_unknown_operator_becomes_a_v2_layer_of_an_open_engine() -> None:
    file, engine = compile_file("circ_pad", "CircPadPlugin", pads=[1, 2, 0, 3])
    for batch in (1, 5, 2):
        (x,) = file.make_inputs(batch)
        np.testing.assert_array_equal(engine(x), file.expected(x)[0])


def test_an_open_engine_cannot_tell_the_largest_batch() -> None:
    with pytest.raises(dt.DovetailError, match="the largest batch is not known"):
        compile_file("clip_v2", "ClipV2", low=-0.5, high=0.25)


def test_contexts_run_in_threads() -> None:
    file, engine = compile_file("gate_context", "Gate", threshold=0.5)
    inputs = [file.make_inputs(batch)[0] for batch in range(1, 9)]

    def run(x: Any) -> bool:
        context = engine.create_execution_context()
        found = [context.run([x])[0] for _ in range(20)]
        context.close()
        return all(np.array_equal(y, file.expected(x)[0]) for y in found)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, inputs))


@given(st.binary(max_size=300) | st.text(max_size=100))
def test_any_bytes_come_back_as_they_were(data: bytes | str) -> None:
    seen: list[bytes] = []

    class Plugin(NotedPlugin):
        def serialize(self) -> Any:
            return data

    class Creator(v2.IPluginCreator):
        name, plugin_version = "Noted", "1"
        field_names = dt.PluginFieldCollection([])

        def deserialize_plugin(self, name: str, serialized_plugin: bytes) -> Any:
            seen.append(serialized_plugin)
            return Plugin()

    fields = v2.adapt_plugin(Plugin()).get_fields_to_serialize()
    stored = decode_fields(encode_fields(fields, where="test"))
    v2.adapt_creator(Creator()).create_plugin("layer", stored, dt.TensorRTPhase.RUNTIME)
    assert seen == [data.encode() if isinstance(data, str) else data]
