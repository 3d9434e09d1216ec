"""Models with maps: their types are read, found again and written, and what is wrong with them is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import dovetail as dt
from dovetail.network.importer.importer import import_model
from dovetail.network.importer.maps import model_from_proto, model_to_proto, save_model
from dovetail.network.value_types import MapType, describe_type
from dovetail.tools.compare import compare_models
from dovetail.tools.sides import read_source

FLOAT, DOUBLE, INT32, INT64, STRING = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.STRING,
)
ML = "ai.onnx.ml"


def _tensor(kind: int = FLOAT) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(kind, None)


def _map(key: int = STRING, element: int = FLOAT) -> onnx.TypeProto:
    return helper.make_map_type_proto(key, _tensor(element))


MAPS = helper.make_sequence_type_proto(_map())


def _floats(name: str, *dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, dims)


def _model(nodes: Any, inputs: Any, outputs: Any, *, opset: int = 18, **graph: Any) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 1)]
    made = helper.make_graph(nodes, "maps", inputs, outputs, **graph)
    return helper.make_model(made, opset_imports=opsets, ir_version=8)


def _scored(output: onnx.TypeProto | None = MAPS, **options: Any) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=1),
        helper.make_node("ZipMap", ["s"], ["y"], domain=ML, classlabels_strings=["p", "q"]),
    ]
    declared = onnx.ValueInfoProto(name="y") if output is None else helper.make_value_info("y", output)
    return _model(nodes, [_floats("x", "n", 2)], [declared], **options)


def _rows(kind: onnx.TypeProto, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain=ML, **attributes)
    return _model([node], [helper.make_value_info("m", kind)], [onnx.ValueInfoProto(name="y")])


def _port_types(model: ir.Model) -> list[tuple[str | None, str]]:
    values = (*model.graph.inputs, *model.graph.outputs)
    return [(value.name, describe_type(value.type)) for value in values if value.type is not None]


# reading


@pytest.mark.parametrize("output", [MAPS, None], ids=["declared", "not declared"])
def test_what_comes_out_is_found(output: onnx.TypeProto | None) -> None:
    model = import_model(_scored(output))
    assert model.graph.outputs[0].type == ir.SequenceType(MapType(ir.DataType.STRING, ir.DataType.FLOAT))


def test_a_message_is_left_as_it_is() -> None:
    proto = _scored(value_info=[helper.make_value_info("y", MAPS), helper.make_value_info("s", _tensor())])
    before = proto.SerializeToString(deterministic=True)
    assert dt.compile(proto)(np.zeros((1, 2), np.float32)) == [{"p": 0.5, "q": 0.5}]
    assert proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    "kind",
    [
        helper.make_map_type_proto(INT32, _tensor()),
        helper.make_map_type_proto(INT64, _tensor(TensorProto.FLOAT16)),
        helper.make_map_type_proto(INT64, MAPS),
        helper.make_map_type_proto(INT64, _map()),
        helper.make_map_type_proto(INT64, onnx.TypeProto()),
        helper.make_map_type_proto(99, _tensor()),
        helper.make_sequence_type_proto(helper.make_map_type_proto(STRING, _tensor(99))),
    ],
)
def test_maps_that_nobody_takes(kind: onnx.TypeProto) -> None:
    with pytest.raises(dt.UnsupportedOpError, match="maps of these types are not supported") as caught:
        dt.compile(_rows(kind, string_vocabulary=["a"]))
    assert "input 'm'" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            _scored(helper.make_sequence_type_proto(_map(INT64))),
            r"declared seq\(map\(int64,.* computed as seq\(map\(str",
        ),
        (_scored(_tensor()), r"declared FLOAT and computed as seq\(map\(string,tensor\(float\)\)\)"),
        (_rows(_map(STRING, STRING), string_vocabulary=["a"]), r"'m' is map\(string,tensor\(string\)\), which the op"),
        (_rows(_tensor(), string_vocabulary=["a"]), "'m' is FLOAT, which the operator does not take"),
        (_rows(MAPS, string_vocabulary=["a"]), r"'m' is seq\(map\(string,tensor\(float\)\)\), which the operator"),
        (
            _model(
                [helper.make_node("Identity", ["m"], ["y"])],
                [helper.make_value_info("m", _map())],
                [helper.make_value_info("y", _map())],
            ),
            r"'m' is map\(string,tensor\(float\)\), which the operator does not take",
        ),
    ],
)
def test_what_does_not_fit_is_named(model: onnx.ModelProto, expected: str) -> None:
    with pytest.raises(dt.ModelError, match=expected):
        dt.compile(model)


def test_a_plugin_gets_no_map() -> None:
    @dt.layer("TakesMap")
    def take(x: Any) -> Any:
        return x

    model = _model(
        [helper.make_node("TakesMap", ["m"], ["y"])], [helper.make_value_info("m", _map())], [_floats("y", 2)]
    )
    with pytest.raises(dt.PluginError, match=r"no type the contract knows.*map\(string,tensor\(float\)\)"):
        dt.compile(model)


def test_hints_inside_are_nobodys_word() -> None:
    """What a file says of values that nodes make is found again, in bodies and functions too."""
    inner = helper.make_graph(
        [helper.make_node("DictVectorizer", ["m"], ["a"], domain=ML, string_vocabulary=["p"])],
        "then",
        [],
        [_floats("a", 1, 1)],
        value_info=[helper.make_value_info("a", _map())],
    )
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "else", [], [_floats("b", 1, 1)])
    nodes = [
        helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=other),
        helper.make_node("Twice", ["z"], ["y"], domain="local"),
    ]
    twice = helper.make_function(
        "local",
        "Twice",
        ["u"],
        ["v"],
        [helper.make_node("Add", ["u", "u"], ["v"])],
        [helper.make_opsetid("", 18)],
        value_info=[helper.make_value_info("u", MAPS)],
    )
    ports = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_value_info("m", _map())]
    model = _model(nodes, [*ports, _floats("x", 1, 1)], [_floats("y", 1, 1)])
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("local", 1))
    engine = dt.compile(model)
    assert engine(np.array(True), {"p": 2.0}, np.ones((1, 1), np.float32)).tolist() == [[4]]
    assert engine(np.array(False), {}, np.ones((1, 1), np.float32)).tolist() == [[2]]


def test_a_model_with_maps_is_converted() -> None:
    """ONNX's converter knows no maps, and gets none."""
    nodes = [
        helper.make_node("DictVectorizer", ["m"], ["a"], domain=ML, string_vocabulary=["p", "q"]),
        helper.make_node("ReduceSum", ["a"], ["r"], axes=[1]),
        helper.make_node("Div", ["a", "r"], ["s"]),
        helper.make_node("ZipMap", ["s"], ["y"], domain=ML, classlabels_strings=["p", "q"]),
    ]
    proto = _model(nodes, [helper.make_value_info("m", _map())], [helper.make_value_info("y", MAPS)], opset=11)
    model = import_model(proto, kernels=lambda op, domain, opset: op != "ReduceSum" or opset >= 13)
    assert model.opset_imports[""] == 13
    assert _port_types(model) == [("m", "map(string,tensor(float))"), ("y", "seq(map(string,tensor(float)))")]
    assert dt.compile(model, providers=["cpu"])({"p": 1.0, "q": 3.0}) == [{"p": 0.25, "q": 0.75}]


# writing


@pytest.mark.parametrize("make", [_scored, lambda: _rows(_map(INT64, DOUBLE), int64_vocabulary=[1])])
def test_maps_survive_writing(make: Any, tmp_path: Path) -> None:
    model = read_source(make())
    ports = _port_types(model)
    save_model(model, tmp_path / "saved.onnx", external_data="saved.data")
    for again in (model_from_proto(model_to_proto(model)), read_source(tmp_path / "saved.onnx")):
        assert _port_types(again) == ports
    assert _port_types(model) == ports
    ort.InferenceSession(tmp_path / "saved.onnx", providers=["CPUExecutionProvider"])


def test_layers_of_maps_are_compared() -> None:
    result = compare_models(_scored(), layers=True, shapes={"x": (3, 2)})
    assert result.is_close
    assert result.layers is not None
    assert [output.shape for output in result.outputs] == [(3, 2)]
    given = compare_models(_rows(_map(), string_vocabulary=["a", "b"]), layers=True)
    assert given.is_close
    assert given.to_dict()["inputs"] == {"m": [len(given.inputs["m"])]}


# shapes


def _dims(model: onnx.ModelProto, name: str) -> Any:
    (value,) = [v for node in import_model(model).graph for v in node.outputs if v.name == name]
    return None if value.shape is None else [dim if isinstance(dim, int) else str(dim.value) for dim in value.shape]


@pytest.mark.parametrize(
    ("data", "indices", "expected"),
    [((3,), (1, 2), [1, 2]), ((3,), (2, 2), [1, 4]), (("n", 3), (2, 1), ["n", 2]), (("n", 3), (1, "k"), ["n", "k"])],
)
def test_all_indices_are_features(data: Any, indices: Any, expected: list[Any]) -> None:
    """The library takes the last dim of the indices for all, and a vector for no row."""
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain=ML)
    ports = [_floats("x", *data), helper.make_tensor_value_info("i", INT64, indices)]
    model = _model([node], ports, [onnx.ValueInfoProto(name="y")])
    assert _dims(model, "y") == expected
    x = np.arange(3, dtype=np.float32) if len(data) == 1 else np.arange(6, dtype=np.float32).reshape(2, 3)
    i = np.zeros([1 if isinstance(dim, str) else dim for dim in indices], np.int64)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(dt.compile(model, providers=["cpu"])(x, i), session.run(None, {"x": x, "i": i})[0])


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("LinearClassifier", {"coefficients": [1.0] * 4, "classlabels_ints": [3, 4]}, [["n"], ["n", 2]]),
        ("LinearClassifier", {"coefficients": [1.0] * 12, "classlabels_ints": [3, 4, 5]}, [["n"], ["n", 3]]),
        ("LinearRegressor", {"coefficients": [1.0] * 8, "targets": 2}, [["n", 2]]),
        ("OneHotEncoder", {"cats_int64s": [1, 2, 3]}, [["n", 4, 3]]),
        ("Scaler", {"scale": [2.0], "offset": [0.0]}, [["n", 4]]),
    ],
)
def test_rows_decide_and_not_the_file(op: str, attributes: Any, expected: list[Any]) -> None:
    """Converters declare one row where there are many."""
    names = [f"y{index}" for index in range(len(expected))]
    node = helper.make_node(op, ["x"], names, domain=ML, **attributes)
    wrong = [1] if len(expected) == 2 else [1] * len(expected[0])
    first = helper.make_tensor_value_info("y0", INT64 if op.endswith("Classifier") else FLOAT, wrong)
    model = _model([node], [_floats("x", "n", 4)], [first, *(onnx.ValueInfoProto(name=name) for name in names[1:])])
    assert [_dims(model, name) for name in names] == expected
    results = dt.compile(model, providers=["cpu"])(np.ones((3, 4), np.float32))
    arrays = [results[name] for name in names] if isinstance(results, dict) else [results]
    for array, dims in zip(arrays, expected, strict=True):
        assert array.shape == tuple(3 if dim == "n" else dim for dim in dims)
