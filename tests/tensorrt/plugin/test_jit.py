"""Plugins whose function runs in Python, through a build, a plan and a load, on the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dovetail
import dovetail_tensorrt.trt.plugin as trtp
from dovetail_tensorrt.trt.plugin.definitions import definitions


def build(
    add: Any, *shapes: tuple[int, ...], dtype: Any = dovetail.float32, profile: Any = None, **settings: Any
) -> Any:
    """An engine of one plugin layer, from its plan; ``add`` makes the call of the plugin over the inputs."""
    builder = dovetail.Builder()
    network = builder.create_network()
    inputs = [network.add_input(f"x{i}", dtype, shape) for i, shape in enumerate(shapes)]
    layer = trtp.expand(network, add(*inputs), settings.get("aot"))
    for index in range(layer.num_outputs):
        layer.get_output(index).name = f"y{index}"
        network.mark_output(layer.get_output(index))
    config = builder.create_builder_config()
    config.providers = settings.get("providers")
    if settings.get("aliases"):
        config.set_preview_feature(dovetail.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    if profile is not None:
        made = builder.create_optimization_profile()
        for name, bounds in profile.items():
            made.set_shape(name, *bounds)
        config.add_optimization_profile(made)
    return dovetail.Runtime().deserialize_cuda_engine(builder.build_serialized_network(network, config))


def test_a_plugin_runs_from_a_plan_with_the_attributes_its_function_takes() -> None:
    seen: list[Any] = []

    @trtp.register("t::scale_pad")
    def desc(
        x: trtp.TensorDesc, pad: int, scale: float, mode: str, on: bool, table: npt.NDArray[np.float16]
    ) -> trtp.TensorDesc:
        out = x.like()
        out.shape_expr = (x.shape_expr[0], x.shape_expr[1] + 2 * pad)
        return out

    @trtp.impl("t::scale_pad")
    def run(
        x: trtp.Tensor,
        scale: float,
        mode: str,
        on: bool,
        table: npt.NDArray[np.float16],
        outputs: tuple[trtp.Tensor],
        stream: int,
    ) -> None:
        seen.append((scale, mode, on, table.tolist()))
        out, source = np.asarray(outputs[0]), np.asarray(x)
        edge = (out.shape[1] - source.shape[1]) // 2
        out[:] = 0
        out[:, edge:-edge] = source * scale

    table = np.array([1.5, -2], np.float16)
    engine = build(
        lambda x: trtp.op.t.scale_pad(x, pad=1, scale=2.5, mode="same", on=True, table=table),
        (-1, 3),
        profile={"x0": ((1, 3), (2, 3), (4, 3))},
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(engine(x), np.pad(x * 2.5, ((0, 0), (1, 1))))
    assert seen[-1] == (2.5, "same", True, [1.5, -2.0])


def test_a_size_tensor_tells_the_shape() -> None:
    @trtp.register("t::nonzero")
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        upper = x.shape_expr.numel()
        size = trtp.size_tensor(opt=upper // 2, upper_bound=upper)
        return trtp.from_shape_expr((size.expr(), 2), dovetail.int32), size

    @trtp.impl("t::nonzero")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        found = np.argwhere(np.asarray(x))
        assert outputs[0].is_data_dependent
        assert outputs[0].shape == (x.numel(), 2)
        np.asarray(outputs[0])[: len(found)] = found
        np.asarray(outputs[1])[...] = len(found)

    engine = build(lambda x: trtp.op.t.nonzero(x), (2, 3))
    made = engine(np.array([[0, 1, 0], [2, 0, 3]], np.float32))
    assert made["y0"].tolist() == [[0, 1], [1, 0], [1, 2]]
    assert int(made["y1"]) == 3


def test_an_output_shares_the_memory_of_its_input() -> None:
    @trtp.register("t::add_one")
    def desc(x: trtp.TensorDesc) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        return x.aliased(), x.like()

    @trtp.impl("t::add_one")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor, trtp.Tensor], stream: int) -> None:
        assert outputs[0].get_aliased() is x
        assert outputs[0].is_aliased
        assert not outputs[1].is_aliased
        assert outputs[1].get_aliased() is None
        np.asarray(outputs[1])[:] = np.asarray(x) * 2
        np.asarray(outputs[0])[:] += 1

    made = build(lambda x: trtp.op.t.add_one(x), (4,), aliases=True)(np.arange(4, dtype=np.float32))
    assert made["y0"].tolist() == [1, 2, 3, 4]
    assert made["y1"].tolist() == [0, 2, 4, 6]
    with pytest.raises(dovetail.DovetailError, match="ALIASED_PLUGIN_IO_10_03"):
        build(lambda x: trtp.op.t.add_one(x), (4,))


def test_the_tuner_tries_what_autotune_offers() -> None:
    seen: set[tuple[int, str]] = set()
    shapes: list[Any] = []

    @trtp.register("t::twice")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.autotune("t::twice")
    def offer(x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]) -> list[trtp.AutoTuneCombination]:
        shapes.append((tuple(x.shape), x.has_shape, outputs[0].dtype))
        return [trtp.AutoTuneCombination("FP32|FP16, FP32|FP16", "LINEAR*HWC", [1, 2])]

    @trtp.impl("t::twice")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int, tactic: int) -> None:
        seen.add((tactic, x.format.name))
        np.asarray(outputs[0])[:] = np.asarray(x) * 2

    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    engine = build(lambda x: trtp.op.t.twice(x), x.shape)
    np.testing.assert_array_equal(engine(x), x * 2)
    assert {tactic for tactic, _ in seen} == {1, 2}
    assert {form for _, form in seen} == {"LINEAR", "HWC"}
    assert shapes[0] == ((1, 2, 3, 4), True, dovetail.float32)


def test_types_without_a_name_in_array_interfaces_are_refused() -> None:
    @trtp.register("t::brain")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("t::brain")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        with pytest.raises(ValueError, match="BF16"):
            _ = x.__array_interface__
        assert x.data_ptr
        assert x.strides == (1,)
        ctypes.memset(outputs[0].data_ptr, 0, 8)

    build(lambda x: trtp.op.t.brain(x), (4,), dtype=dovetail.bfloat16)(np.zeros(4, dovetail.bfloat16.numpy))


def test_a_plan_needs_the_registration_and_says_so() -> None:
    @trtp.register("t::gone")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("t::gone")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        np.asarray(outputs[0])[:] = np.asarray(x)

    builder = dovetail.Builder()
    network = builder.create_network()
    x = network.add_input("x", dovetail.float32, (2,))
    network.mark_output(trtp.expand(network, trtp.op.t.gone(x)).get_output(0))
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    made = definitions.find("t", "gone")
    assert made is not None
    dovetail.get_plugin_registry().deregister_creator(made.creator)
    made.creator = None
    with pytest.raises(dovetail.PluginError, match="no creator is registered for plugin 'gone'"):
        dovetail.Runtime().deserialize_cuda_engine(plan)


def test_an_onnx_node_finds_the_plugin() -> None:
    from onnx import TensorProto, helper

    @trtp.register("t::Affine")
    def desc(x: trtp.TensorDesc, slope: float, offset: int, taps: npt.NDArray[np.int64]) -> trtp.TensorDesc:
        n, m = x.shape_expr
        return trtp.from_shape_expr((n, m * len(taps)), x.dtype)

    @trtp.impl("t::Affine")
    def run(
        x: trtp.Tensor, slope: float, offset: int, taps: npt.NDArray[np.int64], outputs: tuple[trtp.Tensor], stream: int
    ) -> None:
        parts = [np.asarray(x) * slope + offset + tap for tap in taps]
        np.asarray(outputs[0])[:] = np.concatenate(parts, 1)

    node = helper.make_node(
        "Affine", ["x"], ["y"], slope=0.5, offset=3, taps=[10, 20], plugin_namespace="t", domain="my"
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("my", 1)])
    assert dovetail.compile(model)(np.array([[2, 4]], np.float32)).tolist() == [[14, 15, 24, 25]]


def test_on_a_device_tensors_are_those_of_cuda() -> None:
    from dovetail.testing import host_device

    @trtp.register("t::device_twice")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("t::device_twice")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        out = outputs[0]
        assert not hasattr(x, "__array_interface__")
        assert not hasattr(x, "__dlpack__")
        facts = x.__cuda_array_interface__
        assert facts["data"] == (x.data_ptr, False)
        assert facts["shape"] == (2, 3)
        assert facts["strides"] == (12, 4)
        assert facts["stream"] == stream
        source, target = (device.view_at(each.data_ptr, each.shape, np.float32) for each in (x, out))
        device.find_stream(stream).submit("twice", lambda: np.multiply(source.view(), 2, out=target.view()))

    with host_device() as device:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        engine = build(lambda x: trtp.op.t.device_twice(x), (2, 3), providers=[device.id, "cpu"])
        np.testing.assert_array_equal(engine(x), x * 2)


def test_a_layer_is_called_quick() -> None:
    @trtp.register("t::named")
    def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("t::named")
    def run(x: trtp.Tensor, outputs: tuple[trtp.Tensor], stream: int) -> None:
        return

    network = dovetail.Builder().create_network()
    layer = trtp.expand(network, trtp.op.t.named(network.add_input("x", dovetail.float32, (2,))))
    assert layer.name == "(Unnamed Layer* 0) [PluginV3_V3QUICK]"


def test_arrays_of_a_tensor_are_its_memory() -> None:
    from dovetail_tensorrt.trt.plugin.tensors import make_tensor

    memory = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = make_tensor(memory.ctypes.data, dovetail.PluginTensorDesc((2, 3)), 0)
    np.from_dlpack(tensor)[0, 0] = 7
    np.asarray(tensor)[1, 2] = 9
    assert memory[0, 0] == 7
    assert memory[1, 2] == 9
    flat = tensor.aliased((6,))
    assert flat.get_aliased() is tensor
    assert np.asarray(flat)[5] == 9
    with pytest.raises(ValueError, match="smaller"):
        tensor.aliased((7,))
    with pytest.raises(ValueError, match="cannot be set"):
        tensor.shape = (1,)  # type: ignore[misc]


LIBRARY = """
import numpy as np
import dovetail_tensorrt.trt.plugin as trtp

@trtp.register("lib::Triple")
def desc(x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("lib::Triple")
def run(x, outputs, stream):
    np.multiply(np.asarray(x), 3, out=np.asarray(outputs[0]))
"""


def test_a_library_brings_its_plugins_and_can_be_loaded_again(tmp_path: Any) -> None:
    path = tmp_path / "triple.py"
    path.write_text(LIBRARY)
    for _ in range(2):
        registry = dovetail.PluginRegistry()
        library = registry.load_library(str(path))
        creator = registry.get_creator("Triple", "1", "lib")
        plugin = creator.create_plugin("triple", dovetail.PluginFieldCollection(), dovetail.TensorRTPhase.BUILD)
        assert plugin.num_outputs == 1
        assert dovetail.get_plugin_registry().find_creator("Triple", "1", "lib") is None
        registry.deregister_library(library)
