"""Rule 1.9: an unknown operator of a model becomes a plugin, with its attributes as fields."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as trt
from dovetail.plugin import as_array
from tests.conformance.contract.authors import Messages, Plus, PlusCreator

T = trt.PluginFieldType
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _model(
    node: onnx.NodeProto, *others: onnx.NodeProto, inputs: Any = (), initializers: Any = (), **kwargs: Any
) -> Any:
    given = inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node, *others], "g", given, outputs, list(initializers))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **kwargs)


def _compile(model: Any, *creators: Any, logger: Any = None) -> Any:
    registry = trt.PluginRegistry(parent=trt.get_plugin_registry())
    for creator in creators:
        registry.register_creator(creator, creator.plugin_namespace)
    return trt.compile(model, registry=registry, logger=logger or Messages())


class Noting(PlusCreator):
    """Keeps the fields of the build phase and makes Plus with a default."""

    def __init__(self, *fields: str, cls: type[Plus] = Plus) -> None:
        super().__init__(cls)
        self.field_names = trt.PluginFieldCollection([trt.PluginField(f, None, T.UNKNOWN) for f in fields])
        self.fields: dict[str, Any] = {}

    def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
        if phase == trt.TensorRTPhase.BUILD:
            self.fields = {f.name: f for f in fc}
        return super().create_plugin(name, fc, phase)


def test_the_op_type_is_the_plugins_name() -> None:
    creator = PlusCreator()
    engine = _compile(_model(helper.make_node("Plus", ["x"], ["y"], addend=4.0)), creator)
    np.testing.assert_array_equal(engine(X), X + 4)
    assert [phase for _, _, phase, _ in creator.created] == [trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME]


@pytest.mark.parametrize("domain", ["", "custom"])
def test_the_domain_does_not_matter(domain: str) -> None:
    node = helper.make_node("Plus", ["x"], ["y"], domain=domain, addend=4.0)
    np.testing.assert_array_equal(_compile(_model(node), PlusCreator())(X), X + 4)


def test_version_and_namespace_attributes_choose_the_creator() -> None:
    class Second(Plus):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.plugin_version, self.plugin_namespace = "2", "acme"

    one, two = PlusCreator(), PlusCreator(Second)
    two.plugin_version, two.plugin_namespace = "2", "acme"
    node = helper.make_node("Plus", ["x"], ["y"], plugin_version="2", plugin_namespace="acme", addend=4.0)
    np.testing.assert_array_equal(_compile(_model(node), one, two)(X), X + 4)
    assert (len(one.created), len(two.created)) == (0, 2)


def test_an_unknown_operator_without_a_plugin_says_what_is_near() -> None:
    with pytest.raises(trt.UnsupportedOpError, match="Plus"):
        _compile(_model(helper.make_node("Pluss", ["x"], ["y"])), PlusCreator())


def test_a_namespace_makes_a_plugin_of_a_native_operator() -> None:
    class Louder(Plus):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.plugin_name, self.plugin_namespace = "Relu", "acme"

    creator = PlusCreator(Louder)
    creator.name, creator.plugin_namespace = "Relu", "acme"
    plain = _model(helper.make_node("Relu", ["x"], ["y"]))
    np.testing.assert_array_equal(_compile(plain, creator)(-X), np.maximum(-X, 0))
    asked = _model(helper.make_node("Relu", ["x"], ["y"], plugin_namespace="acme", addend=9.0))
    np.testing.assert_array_equal(_compile(asked, creator)(X), X + 9)


def test_a_function_of_the_model_wins_over_a_plugin() -> None:
    body = helper.make_function(
        "custom", "Plus", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    node = helper.make_node("Plus", ["x"], ["y"], domain="custom")
    np.testing.assert_array_equal(_compile(_model(node, functions=[body]), PlusCreator())(X), -X)


def test_attributes_become_fields() -> None:
    names = [
        "f",
        "fs",
        "i",
        "is_",
        "s",
        "ss",
        "t_float",
        "t_half",
        "t_brain",
        "t_double",
        "t_i8",
        "t_i16",
        "t_i32",
        "t_i64",
    ]
    creator = Noting(*names)
    tensors = {
        "t_float": np.array([1, 2], np.float32),
        "t_half": np.array([1, 2], np.float16),
        "t_double": np.array([1, 2], np.float64),
        "t_i8": np.array([-1, 2], np.int8),
        "t_i16": np.array([-1, 2], np.int16),
        "t_i32": np.array([[-1, 2]], np.int32),
        "t_i64": np.array([-1, 2**40], np.int64),
    }
    attributes: dict[str, Any] = {"f": 0.5, "fs": [1.0, 2.0], "i": 7, "is_": [1, -2, 3], "s": "edge", "ss": ["ab", "c"]}
    attributes |= {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    brain = np.array([1, 2], ml_dtypes.bfloat16)
    attributes["t_brain"] = helper.make_tensor("t", TensorProto.BFLOAT16, [2], brain.tobytes(), raw=True)
    _compile(_model(helper.make_node("Plus", ["x"], ["y"], **attributes)), creator)
    got = creator.fields
    assert set(got) == set(names)
    kinds = {name: field.type for name, field in got.items()}
    assert kinds == {
        "f": T.FLOAT32,
        "fs": T.FLOAT32,
        "i": T.INT32,
        "is_": T.INT32,
        "s": T.CHAR,
        "ss": T.CHAR,
        "t_float": T.FLOAT32,
        "t_half": T.FLOAT16,
        "t_brain": T.BF16,
        "t_double": T.FLOAT64,
        "t_i8": T.INT8,
        "t_i16": T.INT16,
        "t_i32": T.INT32,
        "t_i64": T.INT64,
    }
    assert got["f"].data[0] == 0.5
    assert got["fs"].data.tolist() == [1, 2]
    assert got["i"].data[0] == 7
    assert got["is_"].data.tolist() == [1, -2, 3]
    assert bytes(got["s"].data) == b"edge\0"
    assert got["s"].size == 5
    assert bytes(got["ss"].data) == b"ab\0c\0"
    assert got["t_i32"].data.tolist() == [-1, 2]
    assert got["t_i64"].data.tolist() == [-1, 2**40]


def test_an_undeclared_integer_beyond_32_bits_is_an_error() -> None:
    with pytest.raises(trt.ModelError, match=r"field 'big' of type INT32 cannot hold 4294967301"):
        _compile(_model(helper.make_node("Plus", ["x"], ["y"], big=2**32 + 5)), Noting("big"))


def test_only_named_attributes_are_passed_and_missing_ones_are_a_warning() -> None:
    creator, logger = Noting("wanted", "absent"), Messages()
    _compile(_model(helper.make_node("Plus", ["x"], ["y"], wanted=1, other=2)), creator, logger=logger)
    assert set(creator.fields) == {"wanted"}
    assert "absent" in logger.text()


class Sized(Plus):
    """Filled with the addend; its shape is the values of its shape inputs."""

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [trt.DimsExprs([value for dims in shape_inputs for value in dims])]

    def compute(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any) -> None:
        assert len(inputs) == 1
        as_array(outputs[0], output_desc[0])[...] = self.addend


@pytest.mark.parametrize("indices", [[1, 2], [-2, -1], [2, 1], [1, -1]])
def test_shape_inputs_are_named_by_index(indices: list[int]) -> None:
    node = helper.make_node("Plus", ["x", "a", "b"], ["y"], tensorrt_plugin_shape_input_indices=indices)
    constants = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("a", [4]), ("b", [5, 6]))]
    engine = _compile(_model(node, initializers=constants), Noting(cls=Sized))
    assert engine(X).shape == (4, 5, 6)


def test_shape_inputs_of_the_model() -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
    ]
    node = helper.make_node("Plus", ["x", "s"], ["y"], tensorrt_plugin_shape_input_indices=[1])
    engine = _compile(_model(node, inputs=inputs), Noting(cls=Sized))
    for shape in ((2, 2), (5, 1)):
        assert engine(X, np.array(shape, np.int64)).shape == shape


@pytest.mark.parametrize("indices", [[3], [-4], [1, 1]])
def test_shape_indices_name_inputs(indices: list[int]) -> None:
    node = helper.make_node("Plus", ["x", "a", "b"], ["y"], tensorrt_plugin_shape_input_indices=indices)
    constants = [numpy_helper.from_array(np.array([4], np.int64), n) for n in ("a", "b")]
    with pytest.raises(trt.ModelError, match="tensorrt_plugin_shape_input_indices"):
        _compile(_model(node, initializers=constants), Noting(cls=Sized))


def test_trailing_empty_inputs_are_inputs_that_are_not_there() -> None:
    node = helper.make_node("Plus", ["x", "", ""], ["y"], addend=4.0)
    np.testing.assert_array_equal(_compile(_model(node), PlusCreator())(X), X + 4)


def test_plugins_between_native_operators() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Plus", ["a"], ["b"], addend=1.0),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    np.testing.assert_array_equal(_compile(_model(*nodes), PlusCreator())(X), np.maximum(1 - X, 0))


def test_a_plugin_in_a_branch_of_a_model() -> None:
    def branch(addend: float) -> onnx.GraphProto:
        node = helper.make_node("Plus", ["x"], ["z"], addend=addend)
        return helper.make_graph([node], "b", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])])

    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch(1.0), else_branch=branch(50.0))
    engine = _compile(_model(node, inputs=inputs), PlusCreator())
    np.testing.assert_array_equal(engine(X, np.array(True)), X + 1)
    np.testing.assert_array_equal(engine(X, np.array(False)), X + 50)


@pytest.mark.parametrize("failure", ["raise", "none"])
def test_a_creator_that_fails_is_named_with_its_node(failure: str) -> None:
    class Failing(PlusCreator):
        def create_plugin(self, name: str, fc: Any, phase: Any) -> Any:
            if failure == "raise":
                raise ValueError("mode is missing")
            return None

    node = helper.make_node("Plus", ["x"], ["y"], name="the_node")
    with pytest.raises(trt.DovetailError, match=r"the_node[\s\S]*(mode is missing|returned None)"):
        _compile(_model(node), Failing())
