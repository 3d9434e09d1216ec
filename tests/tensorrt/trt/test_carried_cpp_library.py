"""``plugins_to_serialize`` with a C++ library, and what ``engine_host_code_allowed`` decides."""

from __future__ import annotations

from onnx import TensorProto, helper

from dovetail_tensorrt import trt
from tests.support.native_libraries import compile_library


def test_a_cpp_library_comes_with_the_plan() -> None:
    library = str(compile_library("pad_plugin"))
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [2, 3, 2, 6]), ("y", [2, 3, 4, 4]))
    ]
    node = helper.make_node("Pad", ["x"], ["y"], domain="trt.plugins", size=4, value=7.0)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("trt.plugins", 1)]
    model = helper.make_model(helper.make_graph([node], "pad", *ports), opset_imports=opsets)
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    builder.get_plugin_registry().load_library(library)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse(model.SerializeToString())
    config = builder.create_builder_config()
    config.plugins_to_serialize = [library]
    plan = builder.build_serialized_network(network, config)
    runtime = trt.Runtime(logger)
    assert runtime.deserialize_cuda_engine(plan) is None
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    assert tuple(engine.get_tensor_shape("y")) == (2, 3, 4, 4)
