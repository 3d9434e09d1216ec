"""Sequences, optionals and strings from a model through a saved plan to results, and what callers may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING


def _tensor(name: str, kind: int = FLOAT, dims: Any = None) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def _sequence(name: str, kind: int = FLOAT) -> Any:
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, None)))


def _optional(name: str, inner: Any) -> Any:
    return helper.make_value_info(name, helper.make_optional_type_proto(inner.type))


def _compile(nodes: Any, inputs: Any, outputs: Any, constants: Any = (), **options: Any) -> dt.Engine:
    graph = helper.make_graph(nodes, "objects", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return dt.compile(model, providers=["cpu"], **options)


def _array(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def _text(*texts: str) -> Any:
    return np.array(texts, dtype=object)


# sequences


@pytest.fixture
def longer() -> dt.Engine:
    return _compile(
        [helper.make_node("SequenceInsert", ["s", "x"], ["y"])], [_sequence("s"), _tensor("x")], [_sequence("y")]
    )


def test_a_sequence_goes_in_and_out_as_a_list(longer: dt.Engine) -> None:
    result = longer([_array(1), _array(2, 3)], _array(4))
    assert [item.tolist() for item in result] == [[1], [2, 3], [4]]
    assert [item.tolist() for item in longer((), _array(4))] == [[4]]


def test_what_comes_out_is_the_callers_own() -> None:
    engine = _compile([helper.make_node("Identity", ["s"], ["y"])], [_sequence("s")], [_sequence("y")])
    given = [_array(1, 2)]
    result = engine(given)
    result[0][:] = 9
    assert given[0].tolist() == [1, 2]
    assert engine(given)[0].tolist() == [1, 2]


def test_an_input_that_is_an_output_is_copied() -> None:
    engine = _compile(
        [helper.make_node("SequenceLength", ["s"], ["n"]), helper.make_node("Identity", ["s"], ["y"])],
        [_sequence("s")],
        [_tensor("n", INT64, []), _sequence("y")],
    )
    results = engine([_array(1), _array(2)])
    assert results["n"] == 2
    assert len(results["y"]) == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_array(1), "not a sequence"),
        (None, "not a sequence"),
        ([_array(1), np.array([1])], "item 1"),
        ([None], "nothing was given"),
        ("ab", "not a sequence"),
    ],
)
def test_a_wrong_sequence_is_named(longer: dt.Engine, value: Any, expected: str) -> None:
    with pytest.raises(dt.InputError, match=expected) as caught:
        longer(value, _array(1))
    assert "input 's'" in str(caught.value)


def test_parts_of_a_tensor_and_back() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=1),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1),
    ]
    engine = _compile(nodes, [_tensor("x", FLOAT, ["n", 2])], [_tensor("y")])
    assert engine(np.arange(6, dtype=np.float32).reshape(3, 2)).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert engine.tensor("y").dims is None


# optionals


def _has_or_not() -> dt.Engine:
    then = helper.make_graph([helper.make_node("OptionalGetElement", ["o"], ["a"])], "then", [], [_tensor("a")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["b"])], "else", [], [_tensor("b")])
    nodes = [
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=then, else_branch=other),
    ]
    return _compile(nodes, [_optional("o", _tensor("o")), _tensor("x")], [_tensor("y")])


def test_an_optional_is_a_value_or_none() -> None:
    engine = _has_or_not()
    assert engine(_array(1, 2), _array(3)).tolist() == [1, 2]
    assert engine(None, _array(3)).tolist() == [-3]
    assert engine(_array(5), _array(3)).tolist() == [5]


def test_an_optional_of_another_type_is_named() -> None:
    with pytest.raises(dt.InputError, match="wrong type"):
        _has_or_not()(np.array([1]), _array(3))


def test_branches_give_optionals_of_sequences() -> None:
    kind = _optional("p", _sequence("p"))
    then = helper.make_graph([helper.make_node("Optional", ["s"], ["p"])], "then", [], [kind])
    empty = helper.make_node("Optional", [], ["q"], type=_sequence("q").type)
    other = helper.make_graph([empty], "else", [], [_optional("q", _sequence("q"))])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    engine = _compile([node], [_tensor("c", BOOL, []), _sequence("s")], [_optional("y", _sequence("y"))])
    assert [item.tolist() for item in engine(np.array(True), [_array(1)])] == [[1]]
    assert engine(np.array(False), [_array(1)]) is None


# loops


def test_a_loop_carries_a_sequence() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
            helper.make_node("Add", ["f", "x"], ["z"]),
            helper.make_node("SequenceInsert", ["seq", "z"], ["next"]),
            helper.make_node("Identity", ["c"], ["going"]),
        ],
        "body",
        [_tensor("i", INT64, []), _tensor("c", BOOL, []), _sequence("seq")],
        [_tensor("going", BOOL, []), _sequence("next"), _tensor("z")],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["m", "", "none"], ["y", "parts"], body=body),
    ]
    engine = _compile(nodes, [_tensor("m", INT64, []), _tensor("x", FLOAT, [2])], [_sequence("y"), _tensor("parts")])
    results = engine(np.array(3), _array(0, 10))
    assert [item.tolist() for item in results["y"]] == [[0, 10], [1, 11], [2, 12]]
    assert results["parts"].shape == (3, 2)
    assert engine(np.array(0), _array(0, 10))["y"] == []


# strings


@pytest.fixture
def joined() -> dt.Engine:
    suffix = numpy_helper.from_array(_text("-é", "\0"), "suffix")
    return _compile(
        [helper.make_node("StringConcat", ["t", "suffix"], ["u"])],
        [_tensor("t", STRING, ["n", 1])],
        [_tensor("u", STRING, ["n", 2])],
        [suffix],
    )


def test_strings_are_arrays_of_str(joined: dt.Engine) -> None:
    expected = [["a-é", "a\0"], ["-é", "\0"]]
    for given in (_text("a", "").reshape(2, 1), [["a"], [""]], np.array([["a"], [""]])):
        result = joined(given)
        assert result.dtype == object
        assert result.tolist() == expected


@pytest.mark.parametrize("value", ["", "texte é", "null\0inside\0"])
def test_a_constant_string_survives_a_plan(value: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["one"], value_string=value),
        helper.make_node("StringConcat", ["t", "one"], ["y"]),
    ]
    engine = _compile(nodes, [_tensor("t", STRING, [2])], [_tensor("y", STRING, [2])])
    engine.save(tmp_path / "text.plan")
    again = dt.load(tmp_path / "text.plan")
    assert again(_text("a", "b")).tolist() == [f"a{value}", f"b{value}"]
    assert bytes(again.serialize()) == (tmp_path / "text.plan").read_bytes()


def test_the_shape_of_strings_decides_other_shapes() -> None:
    nodes = [helper.make_node("StringSplit", ["t"], ["parts", "counts"], delimiter=" ")]
    engine = _compile(nodes, [_tensor("t", STRING, ["n"])], [_tensor("parts", STRING), _tensor("counts", INT64)])
    for texts in (("a b", "c"), (), ("x y z",)):
        results = engine(_text(*texts))
        assert results["counts"].tolist() == [len(text.split()) for text in texts]
        assert results["parts"].shape[0] == len(texts)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([[b"a"]], dtype=object), "decode it first"),
        (np.array([[1.0]], np.float32), "expected strings"),
        (np.array([[1]], dtype=object), "got int"),
        (np.array([["a", "b"]], dtype=object), "wrong shape"),
        ([["a"], ["b", "c"]], "got list"),
        (None, "nothing was given"),
    ],
)
def test_wrong_strings_are_named(joined: dt.Engine, value: Any, expected: str) -> None:
    with pytest.raises(dt.InputError, match=expected) as caught:
        joined(value)
    assert "input 't'" in str(caught.value)


def test_a_profile_bounds_strings() -> None:
    nodes = [helper.make_node("StringConcat", ["t", "t"], ["u"])]
    ports = [_tensor("t", STRING, ["n"])], [_tensor("u", STRING, ["n"])]
    engine = _compile(nodes, *ports, shapes={"t": ((1,), (2,), (3,))})
    assert engine(_text("a")).tolist() == ["aa"]
    with pytest.raises(dt.InputError, match="outside profile"):
        engine(_text("a", "b", "c", "d"))


# the interface by address


def test_objects_have_no_address(longer: dt.Engine, joined: dt.Engine) -> None:
    context = longer.create_execution_context()
    for call in (
        lambda: context.set_tensor_address("s", 64),
        lambda: context.set_input_shape("s", (1,)),
        lambda: context.set_output_allocator("y", None),
        lambda: longer.get_tensor_dtype("s"),
        lambda: joined.create_execution_context().set_tensor_address("t", 64),
        lambda: context.execute_async_v3(0),
    ):
        with pytest.raises(dt.UsageError, match=r"engine\(\.\.\.\)"):
            call()
    with pytest.raises(dt.UsageError, match="has no shape"):
        longer.get_tensor_shape("s")
    assert context.infer_shapes() == ["s", "x"]
    assert [item.tolist() for item in context.run([[], _array(1)])[0]] == [[1]]


def test_an_engine_says_what_its_objects_are(longer: dt.Engine) -> None:
    assert "s: seq(tensor(float))" in repr(longer)
    assert "x: float32[...]" in repr(longer)


# sizes that only the run knows


def test_an_output_whose_rank_only_the_run_knows() -> None:
    engine = _compile(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"])], [_sequence("s"), _tensor("i", INT64, [])], [_tensor("y")]
    )
    assert engine.tensor("y").dims is None
    with pytest.raises(dt.UsageError, match="only the run tells"):
        engine.get_tensor_shape("y")
    for shape in ((), (2,), (1, 3)):
        assert engine([np.ones(shape, np.float32)], np.array(0)).shape == shape


def test_an_input_of_any_rank() -> None:
    engine = _compile([helper.make_node("Neg", ["x"], ["y"])], [_tensor("x")], [_tensor("y")])
    for shape in ((), (2,), (1, 3)):
        assert engine(np.ones(shape, np.float32)).shape == shape


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (0, 0), (3, 1), (2, 2)])
def test_open_dims_meet_as_numpy_says(first: int, second: int) -> None:
    nodes = [helper.make_node("Add", ["x", "y"], ["z"]), helper.make_node("Exp", ["z"], ["w"])]
    engine = _compile(nodes, [_tensor("x", FLOAT, ["a"]), _tensor("y", FLOAT, ["b"])], [_tensor("w")])
    for sizes in ((first, second), (2, 1), (first, second)):
        result = engine(*(np.zeros(size, np.float32) for size in sizes))
        assert result.shape == np.broadcast_shapes(*((size,) for size in sizes))


@pytest.mark.parametrize(("start", "end"), [(0, -1), (1, 2**40), (0, 1), (-1, 2**40)])
def test_slices_of_an_empty_dimension(start: int, end: int) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "start", "end"], ["y"]),
        helper.make_node("Concat", ["y", "x"], ["z"], axis=0),
    ]
    bounds = [helper.make_tensor(name, INT64, [1], [n]) for name, n in (("start", start), ("end", end))]
    engine = _compile(nodes, [_tensor("x", FLOAT, ["n"])], [_tensor("y"), _tensor("z")], bounds)
    for size in (0, 3, 1, 0, 2):
        x = np.arange(size, dtype=np.float32)
        results = engine(x)
        np.testing.assert_array_equal(results["y"], x[start:end])
        np.testing.assert_array_equal(results["z"], np.concatenate([x[start:end], x]))


def test_the_default_providers_hand_objects_to_each_other(tmp_path: Path) -> None:
    """Sequences cross the borders between the kernels here and compiled partitions, in both directions."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("SequenceAt", ["s", "i"], ["part"]),
        helper.make_node("Softmax", ["part"], ["soft"]),
        helper.make_node("SequenceInsert", ["s", "soft"], ["y"]),
        helper.make_node("Optional", ["y"], ["o"]),
    ]
    ports = [_tensor("x", FLOAT, ["n", 2]), _tensor("i", INT64, [])], [_sequence("y"), _optional("o", _sequence("o"))]
    graph = helper.make_graph(nodes, "objects", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    dt.compile(model).save(tmp_path / "objects.plan")
    engine = dt.load(tmp_path / "objects.plan")
    results = engine(np.zeros((3, 2), np.float32), np.array(1))
    assert [item.tolist() for item in results["y"]] == [[[0, 0]]] * 3 + [[[0.5, 0.5]]]
    assert len(results["o"]) == 4
