"""Layers that work element by element: one tensor, two tensors, a choice between two, and scaling by weights."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import ElementWiseOperation, LayerType, ScaleMode, UnaryOperation
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, WeightsProperty, choice, integer
from dovetail.types import Weights

if TYPE_CHECKING:
    import numpy.typing as npt

    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ElementWiseLayers", "IElementWiseLayer", "IScaleLayer", "ISelectLayer", "IUnaryLayer"]

_BINARY: Final = {
    ElementWiseOperation.SUM: "Add",
    ElementWiseOperation.PROD: "Mul",
    ElementWiseOperation.MAX: "Max",
    ElementWiseOperation.MIN: "Min",
    ElementWiseOperation.SUB: "Sub",
    ElementWiseOperation.DIV: "Div",
    ElementWiseOperation.POW: "Pow",
    ElementWiseOperation.AND: "And",
    ElementWiseOperation.OR: "Or",
    ElementWiseOperation.XOR: "Xor",
    ElementWiseOperation.EQUAL: "Equal",
    ElementWiseOperation.GREATER: "Greater",
    ElementWiseOperation.LESS: "Less",
}
_LOGICAL: Final = (ElementWiseOperation.AND, ElementWiseOperation.OR, ElementWiseOperation.XOR)
_UNARY: Final = {
    UnaryOperation.EXP: "Exp",
    UnaryOperation.LOG: "Log",
    UnaryOperation.SQRT: "Sqrt",
    UnaryOperation.RECIP: "Reciprocal",
    UnaryOperation.ABS: "Abs",
    UnaryOperation.NEG: "Neg",
    UnaryOperation.SIN: "Sin",
    UnaryOperation.COS: "Cos",
    UnaryOperation.TAN: "Tan",
    UnaryOperation.SINH: "Sinh",
    UnaryOperation.COSH: "Cosh",
    UnaryOperation.ASIN: "Asin",
    UnaryOperation.ACOS: "Acos",
    UnaryOperation.ATAN: "Atan",
    UnaryOperation.ASINH: "Asinh",
    UnaryOperation.ACOSH: "Acosh",
    UnaryOperation.ATANH: "Atanh",
    UnaryOperation.CEIL: "Ceil",
    UnaryOperation.FLOOR: "Floor",
    UnaryOperation.ERF: "Erf",
    UnaryOperation.NOT: "Not",
    UnaryOperation.SIGN: "Sign",
    UnaryOperation.ROUND: "Round",
    UnaryOperation.ISINF: "IsInf",
    UnaryOperation.ISNAN: "IsNaN",
}
_ANY_NUMBER: Final = (UnaryOperation.ABS, UnaryOperation.NEG, UnaryOperation.SIGN)


class IElementWiseLayer(ILayer):
    """An operation of two tensors of the same rank; a dimension of one is broadcast."""

    __slots__ = ()

    _layer_type = LayerType.ELEMENTWISE
    _kind = "ElementWise"
    _input_names = ("input1", "input2")
    _required_inputs = 2

    op = Property(choice(ElementWiseOperation), "The operation.")

    def __init__(self, network: NetworkCore, tensors: Sequence[ITensor], op: Any) -> None:
        super().__init__(network, tensors)
        self.op = op

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        a, b = e.input(0), e.input(1)
        e.require_same_type(a, b)
        e.require_rank(b, e.rank(a), "input2")
        _check_broadcast(e, a, b)
        is_bool = e.dtype(a) == ir.DataType.BOOL
        if is_bool != (self.op in _LOGICAL) and self.op != ElementWiseOperation.EQUAL:
            wanted = "BOOL" if self.op in _LOGICAL else "a number"
            raise e.error(f"{self.op.name} does not take this type", expected=wanted, got=e.dtype(a).name)
        if self.op == ElementWiseOperation.FLOOR_DIV:
            return [_floor_divide(e, a, b)]
        return [e.op(_BINARY[self.op], a, b)]


def _check_broadcast(e: Emitter, a: ir.Value, b: ir.Value) -> None:
    for axis, (first, second) in enumerate(zip(e.dims(a), e.dims(b), strict=True)):
        if first is None or second is None or first == second or 1 in (first, second):
            continue
        raise e.error(
            f"dimension {axis} of the inputs does not fit",
            expected="equal, or one of them 1",
            got=f"{e.describe(a)} and {e.describe(b)}",
        )


def _floor_divide(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Division rounded down; ONNX divides integers towards zero, so a negative inexact quotient is one too large."""
    quotient = e.op("Div", a, b)
    if not e.dtype(a).is_integer():
        return e.op("Floor", quotient)
    rest = e.op("Sub", a, e.op("Mul", quotient, b))
    zero = e.scalar(0, "zero", e.dtype(a))
    inexact = e.op("Not", e.op("Equal", rest, zero))
    signs_differ = e.op("Xor", e.op("Less", rest, zero), e.op("Less", b, zero))
    return e.op("Sub", quotient, e.op("Cast", e.op("And", inexact, signs_differ), to=e.dtype(a).value))


class IUnaryLayer(ILayer):
    """An operation of one tensor."""

    __slots__ = ()

    _layer_type = LayerType.UNARY
    _kind = "Unary"

    op = Property(choice(UnaryOperation), "The operation.")

    def __init__(self, network: NetworkCore, tensor: ITensor, op: Any) -> None:
        super().__init__(network, [tensor])
        self.op = op

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        is_bool = e.dtype(x) == ir.DataType.BOOL
        fits = is_bool if self.op == UnaryOperation.NOT else not is_bool
        if self.op not in (*_ANY_NUMBER, UnaryOperation.NOT):
            fits = e.dtype(x).is_floating_point()
        if not fits:
            expected = "BOOL" if self.op == UnaryOperation.NOT else "a floating-point type"
            raise e.error(
                f"{self.op.name} does not take this type", expected=expected, got=e.dtype(x).name, fix="add_cast it"
            )
        return [e.op(_UNARY[self.op], x)]


class ISelectLayer(ILayer):
    """Takes each element from one tensor where the condition holds, else from the other."""

    __slots__ = ()

    _layer_type = LayerType.SELECT
    _kind = "Select"
    _input_names = ("condition", "then_input", "else_input")
    _required_inputs = 3

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        condition, then, other = e.input(0), e.input(1), e.input(2)
        e.require_type(condition, [ir.DataType.BOOL], "condition")
        e.require_same_type(then, other)
        for name, value in (("then_input", then), ("else_input", other)):
            e.require_rank(value, e.rank(condition), name)
        for first, second in ((condition, then), (condition, other), (then, other)):
            _check_broadcast(e, first, second)
        return [e.op("Where", condition, then, other)]


class IScaleLayer(ILayer):
    """Computes (x * scale + shift) ** power with coefficients for the tensor, for each channel or for each element."""

    __slots__ = ()

    _layer_type = LayerType.SCALE
    _kind = "Scale"

    mode = Property(choice(ScaleMode), "How many coefficients there are.")
    shift = WeightsProperty("What is added; None adds nothing.")
    scale = WeightsProperty("What is multiplied with; None multiplies with one.")
    power = WeightsProperty("The exponent; None means one.")
    channel_axis = Property(integer(minimum=0), "The axis of the channels.")

    def __init__(
        self, network: NetworkCore, tensor: ITensor, mode: Any, shift: Any, scale: Any, power: Any, axis: int
    ) -> None:
        super().__init__(network, [tensor])
        self.mode = mode
        self.shift, self.scale, self.power = shift, scale, power
        self.channel_axis = axis

    def _weights(self) -> dict[str, Weights]:
        given = {role: self._stored_weights(role) for role in ("shift", "scale", "power")}
        return {role: value for role, value in given.items() if value is not None}

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        for role, op in (("scale", "Mul"), ("shift", "Add"), ("power", "Pow")):
            given = self._stored_weights(role)
            if given is not None:
                value = e.weights(role, given.numpy().reshape(self._shape(e, x, role, given)))
                e.require_same_type(x, value)
                x = e.op(op, x, value)
        return [x if x is not e.input(0) else e.op("Identity", x)]

    def _shape(self, e: Emitter, x: ir.Value, role: str, given: Weights) -> tuple[int, ...]:
        if self.mode == ScaleMode.UNIFORM:
            wanted: tuple[int, ...] = ()
        else:
            axis = e.axis(self.channel_axis, e.rank(x), "channel_axis")
            wanted = self._channel_shape(e, x, axis) if self.mode == ScaleMode.CHANNEL else self._full_shape(e, x, axis)
        if len(given) != math.prod(wanted):
            raise e.error(
                f"'{role}' has the wrong count of weights for {self.mode.name}",
                expected=math.prod(wanted),
                got=len(given),
            )
        return wanted

    def _channel_shape(self, e: Emitter, x: ir.Value, axis: int) -> tuple[int, ...]:
        channels = e.dims(x)[axis]
        if channels is None:
            raise e.error("the number of channels is not a constant", got=e.describe(x))
        return (channels, *([1] * (e.rank(x) - axis - 1)))

    def _full_shape(self, e: Emitter, x: ir.Value, axis: int) -> tuple[int, ...]:
        sizes = e.dims(x)[axis:]
        if any(size is None for size in sizes):
            raise e.error(
                "ELEMENTWISE needs constant dimensions from the channels on",
                got=e.describe(x),
                fix="use add_constant and add_elementwise",
            )
        return tuple(size for size in sizes if size is not None)


class ElementWiseLayers(NetworkCore):
    """The methods that add element-wise layers."""

    __slots__ = ()

    def add_elementwise(self, input1: ITensor, input2: ITensor, op: ElementWiseOperation) -> IElementWiseLayer:
        """Add an operation of two tensors."""
        return self._add_layer(
            IElementWiseLayer(self, self._check_named("add_elementwise", input1=input1, input2=input2), op)
        )

    def add_unary(self, input: ITensor, op: UnaryOperation) -> IUnaryLayer:
        """Add an operation of one tensor."""
        return self._add_layer(IUnaryLayer(self, self._check_tensor(input, where="add_unary", argument="input"), op))

    def add_select(self, condition: ITensor, then_input: ITensor, else_input: ITensor) -> ISelectLayer:
        """Add a choice, element by element."""
        tensors = self._check_named("add_select", condition=condition, then_input=then_input, else_input=else_input)
        return self._add_layer(ISelectLayer(self, tensors))

    def add_scale(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: Any = None,
        scale: Any = None,
        power: Any = None,
    ) -> IScaleLayer:
        """Add a scale layer with the channels at axis 1."""
        tensor = self._check_tensor(input, where="add_scale", argument="input")
        return self._add_layer(IScaleLayer(self, tensor, mode, shift, scale, power, 1))

    def add_scale_nd(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: npt.ArrayLike | Weights | None = None,
        scale: npt.ArrayLike | Weights | None = None,
        power: npt.ArrayLike | Weights | None = None,
        channel_axis: int = 1,
    ) -> IScaleLayer:
        """Add a scale layer with the channels at ``channel_axis``."""
        tensor = self._check_tensor(input, where="add_scale_nd", argument="input")
        return self._add_layer(IScaleLayer(self, tensor, mode, shift, scale, power, channel_axis))
