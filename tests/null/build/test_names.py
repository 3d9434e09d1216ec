"""Names that a plan must not have are refused by the build, wherever they stand."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import dovetail as dt


@pytest.mark.parametrize("name", ["x\0", "\0"], ids=["at the end", "alone"])
@pytest.mark.parametrize("place", ["input", "output", "inner tensor", "layer"])
def test_a_name_that_no_plan_may_have(name: str, place: str) -> None:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input(name if place == "input" else "x", dt.float32, (2,))
    first = network.add_elementwise(x, x, dt.ElementWiseOperation.SUM)
    second = network.add_elementwise(first.get_output(0), x, dt.ElementWiseOperation.SUM)
    if place == "layer":
        first.name = name
    if place == "inner tensor":
        first.get_output(0).name = name
    if place == "output":
        second.get_output(0).name = name
    network.mark_output(second.get_output(0))
    with pytest.raises(dt.ModelError, match="a name has a NUL character or over 65536 characters"):
        builder.build_serialized_network(network, builder.create_builder_config())


@pytest.mark.parametrize("name", ["x\0", "n" * 70_000], ids=["NUL", "too long"])
def test_the_same_in_a_model(name: str) -> None:
    ports = [[helper.make_tensor_value_info(port, TensorProto.FLOAT, [2])] for port in (name, "y")]
    graph = helper.make_graph([helper.make_node("Neg", [name], ["y"])], "names", *ports)
    with pytest.raises(dt.ModelError, match="a name has a NUL character or over 65536 characters"):
        dt.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
