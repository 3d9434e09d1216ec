"""Aliased plugin outputs need the preview feature: without it a build fails and names the feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail as dt
from dovetail.plugin import as_array
from tests.support.plugins import PlainCreator, ScalePlugin

FEATURE = "ALIASED_PLUGIN_IO_10_03"


class InPlace(ScalePlugin, dt.IPluginV3OneBuildV2):
    """Adds (index + 1) to every aliased output; other outputs are the sum of all inputs before that."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()
    aliases: tuple[Any, ...] = (0,)
    out_dtype: dt.DataType | None = None

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestAliases"
        self.num_outputs = len(self.aliases)

    def get_output_data_types(self, input_types: Any) -> Any:
        return [self.out_dtype or input_types[0]] * len(self.aliases)

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [dt.DimsExprs(inputs[0]) for _ in self.aliases]

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        return in_out[pos].desc.format is dt.TensorFormat.LINEAR

    def get_aliased_input(self, output_index: int) -> Any:
        return self.aliases[output_index]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, *rest: Any) -> None:
        total = sum(as_array(*pair).copy() for pair in zip(inputs, input_desc, strict=True))
        for index, (address, desc) in enumerate(zip(outputs, output_desc, strict=True)):
            array = as_array(address, desc)
            if self.aliases[index] >= 0:
                array += np.float32(index + 1)
            else:
                array[...] = total


def make_class(**members: Any) -> type[InPlace]:
    return type("Made", (InPlace,), members)


def build(kind: type[InPlace], count: int = 1, *, is_enabled: bool, before: str = "negate", weak: bool = False) -> Any:
    """An engine of one layer whose inputs are made by another layer, are the network's own, or are constants."""
    builder = dt.Builder()
    builder.get_plugin_registry().register_creator(PlainCreator("TestAliases", kind), "")
    network = builder.create_network(strongly_typed=not weak)
    tensors = [network.add_input(f"x{i}", dt.float32, (4,)) for i in range(count)]
    if before == "negate":
        tensors = [network.add_unary(tensor, dt.UnaryOperation.NEG).get_output(0) for tensor in tensors]
    elif before == "constant":
        ones = np.ones(4, np.float32)
        tensors = [network.add_constant((4,), ones * (i + 1)).get_output(0) for i in range(count)]
    layer = network.add_plugin_v3(tensors, [], kind())
    for index in range(layer.num_outputs):
        tensor = network.add_unary(layer.get_output(index), dt.UnaryOperation.NEG).get_output(0)
        tensor.name = f"y{index}"
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, is_enabled)
    return builder.build_engine_with_config(network, config)


@pytest.mark.parametrize("before", ["negate", "input", "constant"])
def test_an_alias_without_the_feature_fails_the_build_and_names_the_feature(before: str) -> None:
    with pytest.raises(dt.PluginError, match=FEATURE) as caught:
        build(InPlace, is_enabled=False, before=before)
    text = str(caught.value)
    assert "layer '" in text
    assert "plugin 'TestAliases'" in text
    assert "fix:" in text


def test_an_alias_without_the_feature_fails_in_a_weakly_typed_network() -> None:
    with pytest.raises(dt.PluginError, match=FEATURE):
        build(InPlace, is_enabled=False, weak=True)


def test_an_alias_without_the_feature_fails_in_compile() -> None:
    node = onnx.helper.make_node("TestAliases", ["x"], ["y"], factor=1.0)
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("TestAliases", ["x"], ["z"])],
        "body",
        [],
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [4])],
    )
    branch = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    value = onnx.helper.make_tensor_value_info
    x, y = value("x", onnx.TensorProto.FLOAT, [4]), value("y", onnx.TensorProto.FLOAT, [4])
    condition = value("c", onnx.TensorProto.BOOL, [])
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.register_creator(PlainCreator("TestAliases", InPlace), "")
    for nodes, inputs in (([node], [x]), ([branch], [condition, x])):
        graph = onnx.helper.make_graph(nodes, "g", inputs, [y])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
        with pytest.raises(dt.DovetailError, match=FEATURE):
            dt.compile(model, registry=registry, providers=["cpu"])


@pytest.mark.parametrize("returned", [None, "0", 0.0, True, object()])
@pytest.mark.parametrize("is_enabled", [False, True])
def test_a_non_integer_alias_is_an_error(returned: Any, is_enabled: bool) -> None:
    with pytest.raises(dt.PluginError, match="get_aliased_input"):
        build(make_class(aliases=(returned,)), is_enabled=is_enabled)


def test_an_aliased_output_has_the_type_of_its_input() -> None:
    with pytest.raises(dt.PluginError, match="shares memory with input 0 and has another type"):
        build(make_class(out_dtype=dt.int32), is_enabled=True)


@given(
    count=st.integers(1, 3),
    aliases=st.lists(st.integers(-3, 4), min_size=1, max_size=3),
    is_enabled=st.booleans(),
    before=st.sampled_from(["negate", "input", "constant"]),
)
def test_aliases_build_exactly_when_they_are_valid_and_enabled(
    count: int, aliases: list[int], is_enabled: bool, before: str
) -> None:
    kind = make_class(aliases=tuple(aliases))
    used = [source for source in aliases if source >= 0]
    is_valid = all(-1 <= source < count for source in aliases) and len(set(used)) == len(used)
    if not is_valid or (used and not is_enabled):
        pattern = FEATURE if is_valid else "get_aliased_input must return"
        with pytest.raises(dt.PluginError, match=pattern):
            build(kind, count, is_enabled=is_enabled, before=before)
        return
    arrays = [np.full(4, i + 1, np.float32) for i in range(count)]
    sources = [-array if before == "negate" else array for array in arrays]
    made = build(kind, count, is_enabled=is_enabled, before=before)(*[array.copy() for array in arrays])
    found = [made] if len(aliases) == 1 else [made[f"y{index}"] for index in range(len(aliases))]
    for index, (source, array) in enumerate(zip(aliases, found, strict=True)):
        wanted = sum(sources) if source < 0 else sources[source] + index + 1
        np.testing.assert_array_equal(-array, wanted)
