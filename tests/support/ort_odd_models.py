"""Small models with parts that are unusual in a graph: types, shapes, joins, bodies, functions and attributes.

``ODD_MODELS`` has them by name; each is made when it is asked for, with what is fed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.support.ort_models import make_model, node, tensor

__all__ = ["ODD_MODELS", "OddModel"]

OddModel = tuple[onnx.ModelProto, dict[str, Any]]
"""A model and its feeds."""

_FLOAT, _INT, _BOOL, _TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
_X = np.float32([1, 2, 3, 4])
_W = np.float32([4, 3, 2, 1])
_ML = "ai.onnx.ml"
_TEXTS = np.array(["a", "bß"], object)
_SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(_FLOAT, None))
_OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(_FLOAT, [4]))

ODD_MODELS: dict[str, Callable[[], OddModel]] = {}


def _add(name: str, nodes: Sequence[Any], outputs: Sequence[Any], weights: Any = None, **more: Any) -> None:
    """Add a model of these nodes over ``x``.

    Args:
        name: What is unusual in it.
        nodes: In order.
        outputs: What it gives.
        weights: By name.
        **more: ``inputs`` and ``feeds`` besides ``x``, ``versions`` of other domains, ``functions``, ``opset``.
    """
    ODD_MODELS[name] = lambda: (_make(nodes, outputs, weights, **more), {"x": _X} | more.get("feeds", {}))


def _make(
    nodes: Sequence[Any],
    outputs: Sequence[Any],
    weights: Any,
    *,
    inputs: Sequence[Any] = (),
    feeds: object = None,  # for whoever runs the model
    versions: Mapping[str, int] | None = None,
    functions: Sequence[Any] = (),
    opset: int = 21,
) -> onnx.ModelProto:
    model = make_model(nodes, [tensor("x", [4]), *inputs], outputs, weights, opset=opset)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in (versions or {}).items())
    model.functions.extend(functions)
    return model


def _y(shape: Any = None, kind: int = _FLOAT) -> list[onnx.ValueInfoProto]:
    return [tensor("y", shape, kind)]


def _chain(*ops: str) -> list[onnx.NodeProto]:
    """Nodes from ``x`` to ``y``; an operator with a colon is a cast to a type."""
    names = ["x", *(f"v{i}" for i in range(len(ops) - 1)), "y"]
    return [
        node("Cast", [read], [made], to=TensorProto.DataType.Value(op[1:]))
        if op[0] == ":"
        else node(op, [read], [made])
        for op, read, made in zip(ops, names, names[1:], strict=False)
    ]


# texts


def _add_texts() -> None:
    words = {"w": helper.make_tensor("w", _TEXT, [2], [b"a", b"c"])}
    brought: dict[str, Any] = {"inputs": [tensor("t", [2], _TEXT)], "feeds": {"t": _TEXTS}}
    _add("numbers become texts", _chain(":STRING"), _y([4], _TEXT))
    _add("texts between numbers", _chain("Neg", ":STRING", ":FLOAT", "Abs"), _y([4]))
    _add("texts pass", [node("Identity", ["t"], ["y"])], _y([2], _TEXT), **brought)
    _add("texts as a weight", [node("Equal", ["t", "w"], ["y"])], _y([2], _BOOL), words, **brought)
    _add("texts as a weight and a result", _chain("Abs"), [*_y([4]), tensor("w", [2], _TEXT)], words)
    _add("texts that nobody reads", _chain("Abs"), _y([4]), words, **brought)
    _add("the shape of texts", [node("Shape", ["t"], ["s"]), node("Neg", ["s"], ["y"])], _y([1], _INT), **brought)
    constants = [node("Constant", [], ["y"], value_strings=["ab", "", "c"])]
    _add("a constant of texts", constants, _y([3], _TEXT))
    _add("a constant text", [node("Constant", [], ["y"], value_string="ab")], _y([], _TEXT))
    split = [node("StringSplit", ["t"], ["s", "n"], delimiter=" "), node("Neg", ["n"], ["y"])]
    _add("texts are split", split, _y(None, _INT), **brought)
    there = node("LabelEncoder", ["x"], ["s"], domain=_ML, keys_floats=[1.0, 2.0, 3.0], values_strings=["a", "", "b"])
    back = node("LabelEncoder", ["s"], ["y"], domain=_ML, keys_strings=["b", "", "a"], values_floats=[3.0, 0.5, 1.0])
    _add("empty texts in attributes", [there, back], _y([4]), opset=18, versions={_ML: 3})


# what is no tensor


def _add_other_kinds() -> None:
    sequence = {"inputs": [helper.make_value_info("q", _SEQUENCE)], "feeds": {"q": [_X, _W]}}
    optional = {"inputs": [helper.make_value_info("o", _OPTIONAL)]}
    zero = {"i": np.array(0)}
    join = node("ConcatFromSequence", ["q"], ["y"], axis=0)
    made = node("SequenceConstruct", ["a", "x"], ["q"])
    _add("a sequence between", [node("Abs", ["x"], ["a"]), made, join], _y())
    parts = node("SplitToSequence", ["x"], ["y"], axis=0, keepdims=0)
    _add("a sequence as a result", [parts], [helper.make_value_info("y", _SEQUENCE)])
    at = [node("SequenceAt", ["q", "i"], ["a"]), node("Neg", ["a"], ["y"])]
    _add("a sequence as an input", at, _y(), zero, **sequence)
    _add("a sequence passes", [node("Identity", ["q"], ["y"])], [helper.make_value_info("y", _SEQUENCE)], **sequence)
    texts = [node("SequenceConstruct", ["t", "t"], ["q"]), node("SequenceLength", ["q"], ["y"])]
    _add("a sequence of texts", texts, _y([], _INT), inputs=[tensor("t", [2], _TEXT)], feeds={"t": _TEXTS})
    has = [node("OptionalHasElement", ["o"], ["h"]), node("Not", ["h"], ["y"])]
    _add("an optional value", has, _y([], _BOOL), feeds={"o": _X}, **optional)
    _add("an optional value that is not there", has, _y([], _BOOL), feeds={"o": None}, **optional)
    inside = [node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["g"]), node("Neg", ["g"], ["y"])]
    _add("an optional value between", inside, _y([4]))
    _add_maps()


def _add_maps() -> None:
    numbers = helper.make_map_type_proto(_INT, helper.make_tensor_type_proto(_FLOAT, None))
    rows = helper.make_value_info("y", helper.make_sequence_type_proto(numbers))
    ml = {"versions": {_ML: 1}}
    nodes = [
        node("Unsqueeze", ["x", "i"], ["a"]),
        node("ZipMap", ["a"], ["y"], domain=_ML, classlabels_int64s=[1, 2, 3, 4]),
    ]
    _add("maps as a result", nodes, [rows], {"i": np.array([0])}, **ml)
    dense = [node("CastMap", ["m"], ["a"], domain=_ML, cast_to="TO_FLOAT"), node("Neg", ["a"], ["y"])]
    brought: dict[str, Any] = {"inputs": [helper.make_value_info("m", numbers)], "feeds": {"m": {1: 2.0, 3: 4.0}}}
    _add("a map as an input", dense, _y(), **brought, **ml)


# elements and shapes


def _add_elements() -> None:
    for kind in ("INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT8E4M3FNUZ", "BFLOAT16", "FLOAT16", "UINT64"):
        _add(f"{kind.lower()} between", _chain(f":{kind}", ":FLOAT", "Abs"), _y([4]))
        _add(f"the shape of {kind.lower()}", _chain(f":{kind}", "Shape"), _y([1], _INT))
        weight = helper.make_tensor("w", TensorProto.DataType.Value(kind), [4], [1, 0, 1, 1])
        nodes = [node("Cast", ["w"], ["f"], to=_FLOAT), node("Add", ["f", "x"], ["y"])]
        _add(f"{kind.lower()} as a weight", nodes, _y([4]), {"w": weight})
    values = helper.make_tensor("values", _FLOAT, [2], [5.0, 6.0])
    places = helper.make_tensor("places", _INT, [2], [1, 3])
    sparse = node("Constant", [], ["w"], sparse_value=helper.make_sparse_tensor(values, places, [4]))
    _add("a sparse constant", [sparse, node("Add", ["x", "w"], ["y"])], _y([4]))


def _add_shapes() -> None:
    none = np.zeros((0, 2), np.float32)
    _add(
        "an unknown rank",
        [node("Abs", ["z"], ["a"]), node("Neg", ["a"], ["y"])],
        _y(),
        inputs=[tensor("z", None)],
        feeds={"z": _X},
    )
    shaped: dict[str, Any] = {"inputs": [tensor("s", None, _INT)], "feeds": {"s": np.array([2, 2])}}
    _add("a shape of unknown rank", [node("Reshape", ["x", "s"], ["a"]), node("Neg", ["a"], ["y"])], _y(), **shaped)
    scalar: dict[str, Any] = {"inputs": [tensor("s", [])], "feeds": {"s": np.array(-3, np.float32)}}
    _add("a scalar", [node("Abs", ["s"], ["y"])], _y([]), **scalar)
    empty: dict[str, Any] = {"inputs": [tensor("z", ["N", 2])], "feeds": {"z": none}}
    _add(
        "nothing in it",
        [node("Abs", ["z"], ["a"]), node("Concat", ["a", "w"], ["y"], axis=0)],
        _y(),
        {"w": none},
        **empty,
    )
    _add("a sum of nothing", [node("ReduceSum", ["z"], ["y"], keepdims=0)], _y(), **empty)
    _add("an empty weight", [node("Concat", ["w", "x"], ["y"], axis=0)], _y(), {"w": _W[:0]})
    _add("a result without a type", _chain("Abs"), [onnx.ValueInfoProto(name="y")])


# how values are joined


def _add_joins() -> None:
    dead, y = node("Exp", ["x"], ["dead"]), _y([4])
    text = node("Cast", ["dead"], ["text"], to=_TEXT)
    _add("a node for nobody", [dead, *_chain("Abs")], y)
    _add("two nodes for nobody", [dead, node("Neg", ["dead"], ["too"]), *_chain("Abs")], y)
    _add("only a node for nobody", [dead], [tensor("x", [4])])
    _add("only texts for nobody", [dead, text], [tensor("x", [4])])
    _add("texts for nobody", [dead, text, *_chain("Abs")], y)
    _add("one result for nobody", [node("Split", ["x"], ["a", "y"], num_outputs=2)], _y([2]))
    _add("results that are left out", [node("Unique", ["x"], ["u", "", "y"])], _y(None, _INT))
    _add("a last result that is left out", [node("Dropout", ["x"], ["y", ""])], y)
    _add("no node", [], [tensor("x", [4])])
    _add("no node but a weight", [], [tensor("w", [4])], {"w": _W})
    _add("an input as a result", _chain("Abs"), [*y, tensor("x", [4])])
    _add("a weight as a result", [node("Add", ["x", "w"], ["y"])], [*y, tensor("w", [4])], {"w": _W})
    _add("a result that is read", [node("Abs", ["x"], ["a"]), node("Neg", ["a"], ["y"])], [*y, tensor("a", [4])])
    _add("one input many times", [node("Concat", ["x"] * 20, ["y"], axis=0)], _y([80]))
    _add("one weight twice", [node("Add", ["w", "w"], ["a"]), node("Mul", ["a", "x"], ["y"])], y, {"w": _W})
    _add("only a constant", [node("Constant", [], ["y"], value_float=3.0)], _y([]))
    _add("an input that is left out", [node("Clip", ["x", "", "w"], ["y"])], y, {"w": np.float32(2)})
    _add("an input for nobody", _chain("Abs"), y, inputs=[tensor("z", [2], _TEXT)], feeds={"z": _TEXTS})
    _add("odd names", [node("Abs", ["x"], ["a b/ü\n"]), node("Neg", ["a b/ü\n"], ["y"])], y)
    brought = {"inputs": [tensor("w", [4])]}
    _add("an input with a value", [node("Mul", ["x", "w"], ["y"])], y, {"w": _W}, **brought)
    _add(
        "an input with a value that is fed", [node("Mul", ["x", "w"], ["y"])], y, {"w": _W}, feeds={"w": _X}, **brought
    )


# bodies


def _graph(nodes: Sequence[Any], output: Any, weights: Sequence[Any] = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, output.name, [], [output], weights)


_OTHER = _graph([node("Abs", ["x"], ["e"])], tensor("e", [4]))


def _add_branch(name: str, then: onnx.GraphProto, other: onnx.GraphProto = _OTHER, **more: Any) -> None:
    before, kind = more.pop("before", []), more.pop("kind", tensor("y", [4]))
    chosen = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    condition = {"inputs": [tensor("c", [], _BOOL), *more.pop("inputs", ())], "feeds": {"c": np.array(True)}}
    _add(name, [*before, chosen], [kind], **more, **condition)


def _add_bodies() -> None:
    t, weight = tensor("t", [4]), {"w": _W}
    own = [numpy_helper.from_array(_W, "v")]
    plus = _graph([node("Add", ["x", "w"], ["t"])], t)
    _add_branch("a body that reads a value", _graph([node("Neg", ["a"], ["t"])], t), before=[node("Exp", ["x"], ["a"])])
    _add_branch("a body that reads a weight", plus, weights=weight)
    _add_branch("a body that reads an input with a value", plus, weights=weight, inputs=[tensor("w", [4])])
    _add_branch("a body that hands a value on", _graph([node("Identity", ["x"], ["t"])], t))
    _add_branch("a body that is a weight", _graph([], tensor("v", [4]), own))
    _add_branch("a body with a node for nobody", _graph([node("Exp", ["x"], ["d"]), node("Neg", ["x"], ["t"])], t))
    untyped = [_graph([node(op, ["x"], [op])], onnx.ValueInfoProto(name=op)) for op in ("Neg", "Abs")]
    _add_branch("bodies without types", *untyped)
    texts = [_graph([node("Cast", ["x"], [name], to=_TEXT)], tensor(name, [4], _TEXT)) for name in "te"]
    _add_branch("bodies of texts", *texts, kind=tensor("y", [4], _TEXT))
    empty = node("Optional", [], ["e"], type=helper.make_tensor_type_proto(_FLOAT, [4]))
    optional = [_graph([node("Optional", ["x"], ["t"])], helper.make_value_info("t", _OPTIONAL))]
    optional += [_graph([empty], helper.make_value_info("e", _OPTIONAL))]
    _add_branch("bodies of optional values", *optional, kind=helper.make_value_info("y", _OPTIONAL))
    inner = node(
        "If", ["c"], ["n"], then_branch=plus, else_branch=_graph([node("Neg", ["x"], ["o"])], tensor("o", [4]))
    )
    _add_branch("a body in a body", _graph([inner], tensor("n", [4])), weights=weight)
    _add_loops()


def _add_loops() -> None:
    inputs = [tensor("i", [], _INT), tensor("go", [], _BOOL), tensor("v", [4])]
    nodes = [node("Identity", ["go"], ["on"]), node("Exp", ["v"], ["dead"]), node("Neg", ["v"], ["next"])]
    body = helper.make_graph(nodes, "body", inputs, [tensor("on", [], _BOOL), tensor("next", [4])])
    count = {"n": np.array(3)}
    _add("a loop", [node("Loop", ["n", "", "x"], ["y"], body=body)], _y([4]), count)
    _add("a loop for nobody", [node("Loop", ["n", "", "x"], ["d"], body=body), *_chain("Abs")], _y([4]), count)


# functions


def _function(name: str, nodes: Sequence[Any], attributes: Sequence[str] = ()) -> onnx.FunctionProto:
    return helper.make_function("local", name, ["p"], ["r"], nodes, [helper.make_opsetid("", 21)], list(attributes))


def _add_function(name: str, nodes: Sequence[Any], **attributes: Any) -> None:
    call = node("F", ["x"], ["a"], domain="local", **attributes)
    function = _function("F", nodes, list(attributes))
    _add(name, [call, node("Neg", ["a"], ["y"])], _y(), versions={"local": 1}, functions=[function])


def _refer(made: onnx.NodeProto, name: str, kind: Any) -> onnx.NodeProto:
    """A node with an attribute that is the attribute ``t`` of the function around it."""
    made.attribute.add(name=name, ref_attr_name="t", type=kind)
    return made


def _add_functions() -> None:
    absolute = node("Abs", ["p"], ["r"])
    tensors = [helper.make_tensor("t", _FLOAT, [1], [1.0])] * 2
    kind = helper.make_tensor_type_proto(_FLOAT, None)
    values, places = helper.make_tensor("v", _FLOAT, [1], [5.0]), helper.make_tensor("i", _INT, [1], [1])
    _add_function("a function", [node("Add", ["p", "p"], ["q"]), node("Exp", ["q"], ["d"]), node("Abs", ["q"], ["r"])])
    _add_function("a function of texts", [node("Cast", ["p"], ["s"], to=_TEXT), node("Cast", ["s"], ["r"], to=_FLOAT)])
    _add_function("an attribute of tensors", [absolute], t=tensors)
    _add_function("an attribute of types", [absolute], t=[kind])
    _add_function("an attribute of bodies", [absolute], t=[_OTHER])
    _add_function("an attribute that is a body", [absolute], t=_OTHER)
    _add_function("an attribute of odd texts", [absolute], t=[b"\xff\xfe", b"", b"a"])
    _add_function("an attribute that is an odd text", [absolute], t=b"\xff\xfe")
    sum_up, sparse = node("Add", ["p", "k"], ["r"]), helper.make_sparse_tensor(values, places, [4])
    constant = _refer(node("Constant", [], ["k"]), "sparse_value", AttributeProto.SPARSE_TENSOR)
    _add_function("an attribute that is sparse", [constant, sum_up], t=sparse)
    has = [node("OptionalHasElement", ["o"], ["h"]), node("Cast", ["h"], ["k"], to=_FLOAT), sum_up]
    optional = _refer(node("Optional", [], ["o"]), "type", AttributeProto.TYPE_PROTO)
    _add_function("an attribute that is a type", [optional, *has], t=kind)
    _add_called_in_bodies()


def _add_called_in_bodies() -> None:
    """Functions that are called in two bodies: put into them, their values have no types for a while."""
    calls = [_graph([node("F", ["x"], [name], domain="local")], tensor(name, [4])) for name in "te"]
    whole = node("If", ["q"], ["r"], then_branch=_inner("Neg", "l"), else_branch=_inner("Exp", "p"))
    bodies = {
        "a function in bodies": [node("Abs", ["p"], ["a"]), node("Exp", ["a"], ["b"]), node("Neg", ["b"], ["r"])],
        "a function of texts in bodies": [node("Cast", ["p"], ["s"], to=_TEXT), node("Cast", ["s"], ["r"], to=_FLOAT)],
        "a function with bodies in bodies": [
            node("ReduceSum", ["p"], ["s"], keepdims=0),
            node("Cast", ["s"], ["q"], to=_BOOL),
            node("Abs", ["p"], ["l"]),
            whole,
        ],
    }
    for name, nodes in bodies.items():
        _add_branch(name, *calls, versions={"local": 1}, functions=[_function("F", nodes)])


def _inner(op: str, read: str) -> onnx.GraphProto:
    return _graph([node(op, [read], [f"in_{op}"])], tensor(f"in_{op}", None))


for add in (_add_texts, _add_other_kinds, _add_elements, _add_shapes, _add_joins, _add_bodies, _add_functions):
    add()
