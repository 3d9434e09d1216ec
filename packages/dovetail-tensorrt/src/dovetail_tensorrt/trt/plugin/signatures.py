"""The signatures of decorated functions, read once and checked; each error names the function and the parameter.

``register`` fixes the inputs, attributes and outputs of a plugin. The other functions take the inputs by the same names
and in the same order, then some of the attributes, then what their kind adds.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail_tensorrt.trt.plugin.attributes import AttributeType, describe_types, read_annotation
from dovetail_tensorrt.trt.plugin.combinations import AutoTuneCombination
from dovetail_tensorrt.trt.plugin.descriptors import TensorDesc
from dovetail_tensorrt.trt.plugin.errors import DecoratorError
from dovetail_tensorrt.trt.plugin.expressions import SymExprs
from dovetail_tensorrt.trt.plugin.launch import KernelLaunchParams
from dovetail_tensorrt.trt.plugin.tensors import Tensor

__all__ = ["Callback", "Signature", "read_callback", "read_registered"]

_EMPTY: Final = inspect.Parameter.empty
_RESERVED: Final = frozenset(("outputs", "stream", "tactic"))
_PLAIN: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a register function says: inputs, attributes, and how many outputs there are."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttributeType]
    num_outputs: int


@dataclass(frozen=True, kw_only=True)
class Callback:
    """Another function of a plugin, with the attributes that it takes."""

    function: Callable[..., Any]
    attributes: tuple[str, ...]
    takes_tactic: bool = False


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What one kind of function takes after inputs and attributes, and what it may be annotated with."""

    decorator: str
    tensor: type[Any]
    tail: tuple[str, ...]
    may_take_tactic: bool
    returns: Callable[[Any], bool]
    returns_text: str
    needs_return: bool = False


def _place_of(function: Any, decorator: str) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        raise DecoratorError(f"@{decorator} decorates a function", got=type(function).__name__)
    return f"@{decorator} {function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _annotations_of(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except NameError as error:
        raise DecoratorError(
            f"an annotation cannot be read: {error}", where=where, fix="import what it names in the module"
        ) from None


def _parameters_of(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in _PLAIN:
            raise DecoratorError(
                f"parameter '{parameter}' is not a plain one", where=where, fix="no *args, **kwargs and no bare *"
            )
        if parameter.default is not _EMPTY:
            raise DecoratorError(
                f"parameter '{parameter.name}' has a default", where=where, fix="leave the default out: callers say all"
            )
    return parameters


# register


def read_registered(function: Callable[..., Any]) -> Signature:
    """Read the signature of a register function."""
    where = _place_of(function, "register")
    annotations = _annotations_of(function, where)
    inputs: list[str] = []
    attributes: dict[str, AttributeType] = {}
    for parameter in _parameters_of(function, where):
        annotation = annotations.get(parameter.name, _EMPTY)
        if annotation is TensorDesc:
            _check_tensor_first(parameter.name, attributes, where)
            inputs.append(parameter.name)
        else:
            attributes[parameter.name] = _read_attribute(parameter.name, annotation, where)
    return Signature(
        function=function,
        inputs=tuple(inputs),
        attributes=attributes,
        num_outputs=_count_outputs(annotations.get("return", _EMPTY), where),
    )


def _check_tensor_first(name: str, attributes: Mapping[str, AttributeType], where: str) -> None:
    if attributes:
        raise DecoratorError(
            f"tensor '{name}' comes after an attribute", where=where, fix="put all tensors first, then the attributes"
        )


def _read_attribute(name: str, annotation: Any, where: str) -> AttributeType:
    if annotation is _EMPTY:
        raise DecoratorError(
            f"parameter '{name}' has no annotation", where=where, expected=f"TensorDesc, or {describe_types()}"
        )
    if name in _RESERVED:
        raise DecoratorError(f"'{name}' cannot be the name of an attribute", where=where, fix="call it something else")
    found = read_annotation(annotation)
    if found is None:
        raise DecoratorError(
            f"attribute '{name}' has a type that no plan can store",
            where=where,
            expected=describe_types(),
            got=annotation,
        )
    return found


def _count_outputs(annotation: Any, where: str) -> int:
    if annotation is TensorDesc:
        return 1
    types = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    if types and all(each is TensorDesc for each in types):
        return len(types)
    raise DecoratorError(
        "the return annotation tells how many outputs there are",
        where=where,
        expected="TensorDesc, or Tuple[TensorDesc, ...] with one TensorDesc for each output",
        got="none" if annotation is _EMPTY else annotation,
    )


# the other functions


def _is_none(annotation: Any) -> bool:
    return annotation in (None, type(None))


def _is_combinations(annotation: Any) -> bool:
    return typing.get_origin(annotation) is list and typing.get_args(annotation) == (AutoTuneCombination,)


def _is_kernel(annotation: Any) -> bool:
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is not tuple or len(parts) != 4:
        return False
    texts = [set(typing.get_args(part) or (part,)) <= {str, bytes} for part in parts[:2]]
    is_row = isinstance(parts[3], type) and issubclass(parts[3], SymExprs)
    return all(texts) and parts[2] is KernelLaunchParams and is_row


_KINDS: Final = {
    kind.decorator: kind
    for kind in (
        _Kind(
            decorator="impl",
            tensor=Tensor,
            tail=("outputs", "stream"),
            may_take_tactic=True,
            returns=_is_none,
            returns_text="None",
        ),
        _Kind(
            decorator="autotune",
            tensor=TensorDesc,
            tail=("outputs",),
            may_take_tactic=False,
            returns=_is_combinations,
            returns_text="List[AutoTuneCombination]",
        ),
        _Kind(
            decorator="aot_impl",
            tensor=TensorDesc,
            tail=("outputs",),
            may_take_tactic=True,
            returns=_is_kernel,
            returns_text="Tuple[Union[str, bytes], Union[str, bytes], KernelLaunchParams, SymExprs]",
            needs_return=True,
        ),
    )
}


def read_callback(function: Callable[..., Any], decorator: str, registered: Signature) -> Callback:
    """Read the signature of a function and check it against what was registered."""
    kind, where = _KINDS[decorator], _place_of(function, decorator)
    names = [parameter.name for parameter in _parameters_of(function, where)]
    takes_tactic = kind.may_take_tactic and names[-1:] == ["tactic"]
    tail = (*kind.tail, "tactic") if takes_tactic else kind.tail
    head, middle = names[: len(registered.inputs)], names[len(registered.inputs) : len(names) - len(tail)]
    if tuple(head) != registered.inputs or tuple(names[len(head) + len(middle) :]) != tail:
        raise DecoratorError(
            "the parameters are not those that this function gets",
            where=where,
            expected=_expect(kind, registered),
            got=f"({', '.join(names)})",
        )
    _check_subset(middle, registered, where)
    annotations = _annotations_of(function, where)
    _check_annotations(annotations, head, middle, kind, registered, where)
    _check_return(annotations.get("return", _EMPTY), kind, where)
    return Callback(function=function, attributes=tuple(middle), takes_tactic=takes_tactic)


def _expect(kind: _Kind, registered: Signature) -> str:
    attributes = [f"[{name}]" for name in registered.attributes]
    tactic = ["[tactic]"] if kind.may_take_tactic else []
    return f"({', '.join([*registered.inputs, *attributes, *kind.tail, *tactic])}), where [] may be left out"


def _check_subset(names: Sequence[str], registered: Signature, where: str) -> None:
    for name in names:
        if name not in registered.attributes:
            raise DecoratorError(
                f"'{name}' is no attribute of the plugin",
                where=where,
                expected=", ".join(registered.attributes) or "no attributes",
            )
    ordered = [name for name in registered.attributes if name in names]
    if list(names) != ordered:
        raise DecoratorError(
            "attributes come in the order of the register function",
            where=where,
            expected=", ".join(ordered),
            got=", ".join(names),
        )


def _check_annotations(
    annotations: Mapping[str, Any],
    inputs: Sequence[str],
    attributes: Sequence[str],
    kind: _Kind,
    registered: Signature,
    where: str,
) -> None:
    """Annotations may be left out; what is there must be right."""
    for name in inputs:
        _check_annotation(name, annotations, annotations.get(name) is kind.tensor, kind.tensor.__name__, where)
    for name in attributes:
        expected = registered.attributes[name]
        _check_annotation(name, annotations, read_annotation(annotations.get(name)) == expected, expected.text, where)
    outputs = annotations.get("outputs")
    parts = typing.get_args(outputs) if typing.get_origin(outputs) in (tuple, list) else ()
    is_row = bool(parts) and all(part in (kind.tensor, Ellipsis) for part in parts)
    _check_annotation("outputs", annotations, is_row, f"Tuple[{kind.tensor.__name__}]", where)
    for name in ("stream", "tactic"):
        is_int = annotations.get(name) is int or set(typing.get_args(annotations.get(name))) == {int, type(None)}
        _check_annotation(name, annotations, is_int, "int", where)


def _check_annotation(name: str, annotations: Mapping[str, Any], is_right: bool, expected: str, where: str) -> None:
    if name in annotations and not is_right:
        raise DecoratorError(
            f"parameter '{name}' has another annotation", where=where, expected=expected, got=annotations[name]
        )


def _check_return(annotation: Any, kind: _Kind, where: str) -> None:
    if annotation is _EMPTY:
        if kind.needs_return:
            raise DecoratorError("the return annotation is missing", where=where, expected=kind.returns_text)
    elif not kind.returns(annotation):
        raise DecoratorError(
            "the return annotation is another", where=where, expected=kind.returns_text, got=annotation
        )
