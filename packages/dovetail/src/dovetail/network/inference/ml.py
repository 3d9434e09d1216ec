"""Types and shapes of operators of ai.onnx.ml, where the schema does not tie an output to an input.

Attributes decide: the labels of a classifier are its results, the words of a vocabulary its columns. What a file says
of such values is no help: converters write shapes for one row that is then many.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir
import onnx_shape_inference as osi

from dovetail.network.value_types import MapType

__all__ = ["ML_DOMAIN", "correct_feature_extractor", "find_ml_type", "set_ml_shapes"]

ML_DOMAIN: Final = "ai.onnx.ml"
_Dim = int | ir.SymbolicDim | None
_LABELS: Final = ("classlabels_strings", "classlabels_string", "classlabels_ints", "classlabels_int64s")


def find_ml_type(node: ir.Node) -> ir.TypeProtocol | None:
    """The type of the first output where attributes decide it, or a map does."""
    find = _TYPES.get(node.op_type)
    return None if find is None else find(node)


def set_ml_shapes(context: osi.ShapeInferenceContext, node: ir.Node) -> None:
    """Set the shapes of outputs as far as attributes and the first input decide them."""
    find = _DIMS.get(node.op_type)
    for value, dims in zip(node.outputs, () if find is None else find(node), strict=False):
        known = [context.new_symbolic_dim() if dim is None else dim for dim in dims]
        context.set_shape(value, context.name_anonymous_dims_in_shape(ir.Shape(known)))


def correct_feature_extractor(context: osi.ShapeInferenceContext, node: ir.Node) -> bool:
    """All indices count, whatever their shape, and a vector is one row; the library looks at their last dim alone."""
    data, indices = node.inputs[0], node.inputs[1]
    if data is not None and data.dtype is not None:
        context.set_dtype(node.outputs[0], data.dtype)
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return True
    rows = list(context.name_anonymous_dims_in_shape(data.shape))[:-1] or [1]
    count = functools.reduce(operator.mul, context.name_anonymous_dims_in_shape(indices.shape), 1)
    context.set_shape(node.outputs[0], ir.Shape([*rows, count]))
    return True


def _values(node: ir.Node, *names: str) -> list[Any]:
    """What the attributes of these names hold, one after the other."""
    return [item for name in names if name in node.attributes for item in node.attributes[name].value]


def _number(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


# types


def _label_type(node: ir.Node) -> ir.TypeProtocol:
    """A classifier returns the labels that it was given, and numbers when they are no texts."""
    return ir.TensorType(ir.DataType.STRING if _values(node, *_LABELS[:2]) else ir.DataType.INT64)


def _zipped_type(node: ir.Node) -> ir.TypeProtocol:
    """Labels are the keys, and scores, which are single precision, what they lead to."""
    return ir.SequenceType(MapType(_label_type(node).dtype, ir.DataType.FLOAT))


def _mapped_type(node: ir.Node) -> ir.TypeProtocol:
    given = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    return ir.TensorType(ir.DataType.INT64 if given == ir.DataType.STRING else ir.DataType.STRING)


def _cast_map_type(node: ir.Node) -> ir.TypeProtocol:
    to = node.attributes.get("cast_to")
    names = {"TO_STRING": ir.DataType.STRING, "TO_INT64": ir.DataType.INT64}
    return ir.TensorType(ir.DataType.FLOAT if to is None else names.get(str(to.value), ir.DataType.FLOAT))


def _element_type(node: ir.Node) -> ir.TypeProtocol | None:
    given = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return ir.TensorType(given.dtype) if isinstance(given, MapType) else None


_TYPES: Final[Mapping[str, Callable[[ir.Node], ir.TypeProtocol | None]]] = {
    "CastMap": _cast_map_type,
    "CategoryMapper": _mapped_type,
    "DictVectorizer": _element_type,
    "LinearClassifier": _label_type,
    "SVMClassifier": _label_type,
    "TreeEnsembleClassifier": _label_type,
    "ZipMap": _zipped_type,
}


# shapes


def _dims_of_input(node: ir.Node) -> list[_Dim]:
    """The first input as rows of features; None where it is not known."""
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if shape is None:
        return [None, None]
    return [1, *shape] if len(shape) == 1 else list(shape)


def _like_input(node: ir.Node) -> list[Sequence[_Dim]]:
    given = node.inputs[0]
    return [] if given is None or given.shape is None else [list(given.shape)]


def _one_hot_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    return [[*dims, len(_values(node, "cats_int64s", "cats_strings"))] for dims in _like_input(node)]


def _vocabulary_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    """One row, with a column for each word."""
    return [[1, len(_values(node, "string_vocabulary", "int64_vocabulary"))]]


def _cast_map_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    """One row, of a given length when keys are places in it."""
    form, count = node.attributes.get("map_form"), _number(node, "max_map", 1)
    return [[1, count if form is not None and form.as_string() == "SPARSE" and count > 0 else None]]


def _linear_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    """A label a row, and the scores: one for each row of coefficients, but two where one serves two classes."""
    rows, features = _dims_of_input(node)[0], _dims_of_input(node)[-1]
    if not isinstance(features, int) or features == 0:
        return [[rows], [rows, None]]
    count = len(_values(node, "coefficients")) // features
    return [[rows], [rows, 2 if count == 1 and len(_values(node, *_LABELS)) == 2 else count]]


def _tree_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    rows, count = _dims_of_input(node)[0], len(_values(node, *_LABELS))
    return [[rows], [rows, count if count > 2 else None]]


def _svm_dims(node: ir.Node) -> list[Sequence[_Dim]]:
    rows = _dims_of_input(node)[0]
    return [[rows], [rows, None]]


def _target_dims(name: str) -> Callable[[ir.Node], list[Sequence[_Dim]]]:
    """A row of targets for each row; an attribute of this name counts them."""

    def find(node: ir.Node) -> list[Sequence[_Dim]]:
        count = _number(node, name, 1)
        return [[_dims_of_input(node)[0], count if count > 0 else None]]

    return find


_DIMS: Final[Mapping[str, Callable[[ir.Node], list[Sequence[_Dim]]]]] = {
    "CastMap": _cast_map_dims,
    "CategoryMapper": _like_input,
    "DictVectorizer": _vocabulary_dims,
    "Imputer": _like_input,
    "LinearClassifier": _linear_dims,
    "LinearRegressor": _target_dims("targets"),
    "Normalizer": _like_input,
    "OneHotEncoder": _one_hot_dims,
    "SVMClassifier": _svm_dims,
    "Scaler": _like_input,
    "TreeEnsembleClassifier": _tree_dims,
    "TreeEnsembleRegressor": _target_dims("n_targets"),
}
"""The dims of each output; None for one that is not known."""
