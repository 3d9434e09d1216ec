"""Operators that go element by element: a line each, with Triton's text for one element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from dovetail_cuda.lower.expr import Expr, Literal, apply, convert, literal, select
from dovetail_cuda.lower.registry import registry
from dovetail_cuda.lower.tensors import Tensor, broadcast_shapes, broadcast_to, make_constant, refuse
from dovetail_cuda.lower.types import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    TYPES,
    WIDE,
    is_float,
    is_signed,
    size_of,
    triton_name,
)

__all__ = [
    "ELEMENTWISE",
    "GELU",
    "GELU_HALF",
    "GELU_TANH",
    "MAXIMUM",
    "MINIMUM",
    "ONNX_TYPES",
    "RELU",
    "SIGMOID",
    "SWISH",
    "TANH",
    "map_elements",
]

_NAN: Final = "propagate_nan=tl.PropagateNan.ALL"
RELU: Final = f"tl.maximum({{0}}, 0.0, {_NAN})"
GELU_TANH: Final = "f.gelu_tanh({0})"
GELU: Final = "f.gelu({0})"
GELU_HALF: Final = "f.gelu_half({0})"
SIGMOID: Final = "1 / (1 + tl.exp(-{0}))"
SWISH: Final = "{0} / (1 + tl.exp(-{1} * {0}))"
TANH: Final = "f.tanh({0})"
"""Texts that others look for."""
MAXIMUM: Final = f"tl.maximum({{0}}, {{1}}, {_NAN})"
MINIMUM: Final = f"tl.minimum({{0}}, {{1}}, {_NAN})"

_UNARY: Final = {
    # op: (since, text for floats, text for integers or None)
    "Acos": (7, "f.acos({0})", None),
    "Acosh": (9, "f.acosh({0})", None),
    "Asin": (7, "f.asin({0})", None),
    "Asinh": (9, "f.asinh({0})", None),
    "Atan": (7, "f.atan({0})", None),
    "Atanh": (9, "f.atanh({0})", None),
    "Abs": (6, "tl.abs({0})", "tl.abs({0})"),
    "Ceil": (6, "tl.ceil({0})", None),
    "Cos": (7, "tl.cos({0})", None),
    "Cosh": (9, "f.cosh({0})", None),
    "Erf": (9, "tl.erf({0})", None),
    "Exp": (6, "tl.exp({0})", None),
    "Floor": (6, "tl.floor({0})", None),
    "HardSwish": (14, "{0} * tl.clamp({0} / 6 + 0.5, 0.0, 1.0)", None),
    "Log": (6, "tl.log({0})", None),
    "Mish": (18, "{0} * f.tanh(f.softplus({0}))", None),
    "Neg": (6, "-{0}", "-{0}"),
    "Reciprocal": (6, "1 / {0}", None),
    "Relu": (6, RELU, "tl.maximum({0}, 0)"),
    "Round": (11, "f.round({0})", None),
    "Sigmoid": (6, SIGMOID, None),
    "Sign": (9, "f.sign({0})", "f.sign({0})"),
    "Sin": (7, "tl.sin({0})", None),
    "Sinh": (9, "f.sinh({0})", None),
    "Softplus": (1, "f.softplus({0})", None),
    "Softsign": (1, "{0} / (1 + tl.abs({0}))", None),
    "Sqrt": (6, "tl.sqrt_rn({0})", None),
    "Tan": (7, "f.tan({0})", None),
    "Tanh": (6, TANH, None),
}
_HALVES: Final = ("float16", "bfloat16")
_HALF_TEXTS: Final = {"Erf": "f.erf_half({0})"}
"""Texts for numbers of half precision, of which fewer digits are stored."""
_BINARY: Final = {
    # op: (since, text for floats, text for integers)
    "Add": (7, "{0} + {1}", "{0} + {1}"),
    "Div": (7, "{0} / {1}", "{0} // {1}"),
    "Mul": (7, "{0} * {1}", "{0} * {1}"),
    "Sub": (7, "{0} - {1}", "{0} - {1}"),
    "PRelu": (7, "tl.where({0} < 0, {0} * {1}, {0})", "tl.where({0} < 0, {0} * {1}, {0})"),
}
_VARIADIC: Final = {
    # op: (since, text for floats, text for integers or None)
    "Max": (8, MAXIMUM, "tl.maximum({0}, {1})"),
    "Min": (8, MINIMUM, "tl.minimum({0}, {1})"),
    "Sum": (8, "{0} + {1}", None),
}
_COMPARED: Final = {
    "Equal": (7, "{0} == {1}"),
    "Greater": (7, "{0} > {1}"),
    "GreaterOrEqual": (12, "{0} >= {1}"),
    "Less": (7, "{0} < {1}"),
    "LessOrEqual": (12, "{0} <= {1}"),
}
_LOGICAL: Final = {"And": (7, "{0} & {1}"), "Or": (7, "{0} | {1}"), "Xor": (7, "{0} ^ {1}")}
_BITWISE: Final = {"BitwiseAnd": (18, "{0} & {1}"), "BitwiseOr": (18, "{0} | {1}"), "BitwiseXor": (18, "{0} ^ {1}")}


ELEMENTWISE: Final = frozenset(
    (
        *(*_UNARY, *_BINARY, *_VARIADIC, *_COMPARED, *_LOGICAL, *_BITWISE),
        *(
            "BitCast",
            "BitShift",
            "BitwiseNot",
            "Cast",
            "CastLike",
            "Celu",
            "Clip",
            "Elu",
            "Gelu",
            "HardSigmoid",
            "Identity",
        ),
        *(
            "IsInf",
            "IsNaN",
            "LeakyRelu",
            "Mean",
            "Mod",
            "Not",
            "Pow",
            "Selu",
            "Shrink",
            "SwiGLU",
            "Swish",
            "ThresholdedRelu",
            "Where",
        ),
    )
)
"""Operators of which an element of the result needs one element of each input."""


def map_elements(function: Callable[..., Expr], *tensors: Tensor, dtype: str) -> Tensor:
    """A function of the elements of tensors that are stretched to one shape."""
    shape = broadcast_shapes(*(tensor.shape for tensor in tensors))
    stretched = [broadcast_to(tensor, shape) for tensor in tensors]

    def pull(coordinates: Sequence[Any], guard: Expr | None) -> Expr:
        return function(*(tensor.at(coordinates, guard) for tensor in stretched))

    return Tensor(shape=shape, dtype=dtype, pull=pull)


def _choose(floats: str, integers: str | None, dtype: str) -> str:
    return floats if is_float(dtype) or integers is None else integers


def _register_unary(op: str, since: int, floats: str, integers: str | None) -> None:
    types = FLOATS if integers is None else SIGNED if op in ("Neg", "Relu") else NUMBERS

    @registry.register(op, since=since, types={"T": types})
    def lower(x: Tensor) -> Tensor:
        text = _HALF_TEXTS.get(op, floats) if x.dtype in _HALVES else _choose(floats, integers, x.dtype)
        return map_elements(lambda a: apply(text, a, dtype=x.dtype), x, dtype=x.dtype)


def _register_binary(op: str, since: int, floats: str, integers: str) -> None:
    @registry.register(op, since=since, types={"T": WIDE if op == "PRelu" else NUMBERS})
    def lower(a: Tensor, b: Tensor) -> Tensor:
        text = _choose(floats, integers, a.dtype)
        return map_elements(lambda x, y: apply(text, x, y, dtype=a.dtype), a, b, dtype=a.dtype)


def _register_variadic(op: str, since: int, floats: str, integers: str | None) -> None:
    @registry.register(op, since=since, types={"T": FLOATS if integers is None else NUMBERS})
    def lower(*tensors: Tensor) -> Tensor:
        dtype, text = tensors[0].dtype, _choose(floats, integers, tensors[0].dtype)

        def combine(*values: Expr) -> Expr:
            result = values[0]
            for value in values[1:]:
                result = apply(text, result, value, dtype=dtype)
            return result

        return map_elements(combine, *tensors, dtype=dtype)


def _register_typed(op: str, since: int, text: str, types: Sequence[str], result: str | None) -> None:
    @registry.register(op, since=since, types={"T": types})
    def lower(a: Tensor, b: Tensor) -> Tensor:
        dtype = result or a.dtype
        return map_elements(lambda x, y: apply(text, x, y, dtype=dtype), a, b, dtype=dtype)


for _op, (_since, _floats, _integers) in _UNARY.items():
    _register_unary(_op, _since, _floats, _integers)
for _op, (_since, _floats, _exact) in _BINARY.items():
    _register_binary(_op, _since, _floats, _exact)
for _op, (_since, _floats, _integers) in _VARIADIC.items():
    _register_variadic(_op, _since, _floats, _integers)
for _op, (_since, _text) in _COMPARED.items():
    _register_typed(_op, _since, _text, TYPES if _op == "Equal" else NUMBERS, "bool")
for _op, (_since, _text) in _LOGICAL.items():
    _register_typed(_op, _since, _text, ("bool",), "bool")
for _op, (_since, _text) in _BITWISE.items():
    _register_typed(_op, _since, _text, INTEGERS, None)


def _map(text: str, x: Tensor, *numbers: float) -> Tensor:
    """An operation with numbers for ``{1}`` and those that follow."""
    given = [literal(number, x.dtype) for number in numbers]
    return map_elements(lambda a: apply(text, a, *given, dtype=x.dtype), x, dtype=x.dtype)


@registry.register("Identity", since=1, until=13, types={"T": TYPES})
@registry.register("Identity", since=14, types={"V": TYPES})
def identity(x: Tensor) -> Tensor:
    """The same tensor."""
    return x


@registry.register("Not", since=1, types={"T": ("bool",)})
def logical_not(x: Tensor) -> Tensor:
    """The opposite."""
    return map_elements(lambda a: apply("{0} == 0", a, dtype="bool"), x, dtype="bool")


@registry.register("BitwiseNot", since=18, types={"T": INTEGERS})
def bitwise_not(x: Tensor) -> Tensor:
    """Every bit turned round."""
    return map_elements(lambda a: apply("~{0}", a, dtype=x.dtype), x, dtype=x.dtype)


@registry.register("BitShift", since=11, until=27, types={"T": ("uint8", "uint16", "uint32", "uint64")})
@registry.register("BitShift", since=28, types={"T": INTEGERS})
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """Bits moved to one side; by more than there are, what is left is the sign."""
    bits = 8 * size_of(x.dtype)
    inside = f"(({{1}} >= 0) & ({{1}} < {bits}))"
    beyond = "0" if direction == "LEFT" or not is_signed((x.dtype,)) else f"{{0}} >> {bits - 1}"
    moved = "{0} << tl.where(" if direction == "LEFT" else "{0} >> tl.where("
    text = f"tl.where({inside}, {moved}{inside}, {{1}}, 0), {beyond})"
    return map_elements(lambda a, b: apply(text, a, b, dtype=x.dtype), x, y, dtype=x.dtype)


@registry.register("IsNaN", since=9, types={"T1": FLOATS})
def is_nan(x: Tensor) -> Tensor:
    """Whether an element is no number."""
    return map_elements(lambda a: apply("{0} != {0}", a, dtype="bool"), x, dtype="bool")


@registry.register("IsInf", since=10, types={"T1": FLOATS})
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether an element is infinite, on the sides that are asked for."""
    tests = [f'({{0}} == float("{sign}inf"))' for sign, on in (("", detect_positive), ("-", detect_negative)) if on]
    text = " | ".join(tests) or "{0} != {0} + 0 * {0}"
    if not tests:
        return make_constant(value=False, shape=x.shape, dtype="bool")
    return map_elements(lambda a: apply(text, a, dtype="bool"), x, dtype="bool")


@registry.register("Pow", since=7, until=11, types={"T": ("float16", "float32", "float64")})
@registry.register("Pow", since=12, types={"T": FLOATS, "T1": NUMBERS})
def power(x: Tensor, y: Tensor) -> Tensor:
    """One to the power of the other; a small number that is known is a product."""

    def raise_to(a: Expr, b: Expr) -> Expr:
        text = _POWERS.get(b.value) if isinstance(b, Literal) else None
        if text is not None:
            return apply(text, a, dtype=x.dtype)
        return apply("f.pow({0}, {1})", a, convert(b, x.dtype), dtype=x.dtype)

    return map_elements(raise_to, x, y, dtype=x.dtype)


_POWERS: Final[dict[float, str]] = {1: "{0}", 2: "{0} * {0}", 3: "{0} * {0} * {0}"}


@registry.register("BitCast", since=26)
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    """The same bits as another type; not of half precision, which is single in registers."""
    dtype = ONNX_TYPES.get(to, "")
    kept = {x.dtype, dtype}
    if dtype not in TYPES or size_of(dtype) != size_of(x.dtype) or kept & {"bool", *_HALVES}:
        raise refuse(f"it does not read the bits of {x.dtype} as {dtype or 'that type'}")
    text = f"{{0}}.to(tl.{triton_name(dtype)}, bitcast=True)"
    return map_elements(lambda a: apply(text, a, dtype=dtype), x, dtype=dtype)


@registry.register("Mean", since=8, until=12, types={"T": ("float16", "float32", "float64")})
@registry.register("Mean", since=13, types={"T": FLOATS})
def mean(*tensors: Tensor) -> Tensor:
    """The mean of tensors, element by element."""
    count, dtype = len(tensors), tensors[0].dtype
    text = " + ".join(f"{{{number}}}" for number in range(count))
    return map_elements(lambda *values: apply(f"({text}) / {count}", *values, dtype=dtype), *tensors, dtype=dtype)


@registry.register("Mod", since=10, types={"T": NUMBERS})
def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """What a division leaves, with the sign of the dividend or of the divisor."""
    if is_float(a.dtype):
        text = "f.fmod({0}, {1})" if fmod else "f.floor_mod({0}, {1})"
    else:
        text = "{0} % {1}" if fmod or a.dtype.startswith("u") else "f.sign_of_divisor({0} % {1}, {1})"
    return map_elements(lambda x, y: apply(text, x, y, dtype=a.dtype), a, b, dtype=a.dtype)


@registry.register("Where", since=9, types={"T": TYPES})
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The one or the other."""
    return map_elements(select, condition, x, y, dtype=x.dtype)


@registry.register("Clip", since=11, types={"T": NUMBERS})
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Elements kept between two bounds."""
    nan = f", {_NAN}" if is_float(x.dtype) else ""
    clipped = x if low is None else _combine(f"tl.maximum({{0}}, {{1}}{nan})", x, low)
    return clipped if high is None else _combine(f"tl.minimum({{0}}, {{1}}{nan})", clipped, high)


def _combine(text: str, a: Tensor, b: Tensor) -> Tensor:
    return map_elements(lambda x, y: apply(text, x, y, dtype=a.dtype), a, b, dtype=a.dtype)


@registry.register("Cast", since=6, types={"T1": TYPES, "T2": TYPES})
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Convert to another element type."""
    dtype = ONNX_TYPES.get(to)
    if dtype is None:
        raise refuse(f"it casts to no type of number {to}")
    return map_elements(lambda a: _truncate(a, dtype), x, dtype=dtype)


@registry.register("CastLike", since=15, types={"T1": TYPES, "T2": TYPES})
def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """Convert to the element type of another tensor."""
    return map_elements(lambda a: _truncate(a, like.dtype), x, dtype=like.dtype)


def _truncate(value: Expr, dtype: str) -> Expr:
    """Convert a value; a float becomes a small integer through int32, as on the host.

    PTX saturates where it converts a float to a small integer directly. TensorRT truncates towards zero and defines no
    result outside of [0, 256) after truncation:
    https://docs.nvidia.com/deeplearning/tensorrt/api/python_api/infer/FoundationalTypes/DataType.html (UINT8).
    """
    is_narrowed = is_float(value.dtype) and dtype in ("int8", "uint8", "int16", "uint16")
    return convert(convert(value, "int32") if is_narrowed else value, dtype)


ONNX_TYPES: Final = {
    **dict(enumerate(("float32", "uint8", "int8", "uint16", "int16", "int32", "int64"), start=1)),
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
"""Types by their numbers in ONNX."""


@registry.register("Dropout", since=12, types={"T": FLOATS, "T1": FLOATS, "T2": ("bool",)}, host_inputs=(2,))
def dropout(
    x: Tensor, ratio: Tensor | None = None, training: Any = None, *, seed: int = 0, num_outputs: int = 1
) -> tuple[Tensor, ...]:
    """The same tensor: nothing is dropped when a model runs."""
    if training is not None and bool(training):
        raise refuse("it drops nothing at random")
    return (x, make_constant(value=True, shape=x.shape, dtype="bool"))[:num_outputs]


@registry.register("Dropout", since=7, until=9, types={"T": ("float16", "float32", "float64")})
def dropout_7(x: Tensor, *, ratio: float = 0.5, num_outputs: int = 1) -> tuple[Tensor, ...]:
    """Return the tensor and a mask of zeros in its type: older opsets draw no mask, as in ONNX Runtime."""
    return (x, make_constant(value=0, shape=x.shape, dtype=x.dtype))[:num_outputs]


@registry.register("Dropout", since=10, until=11, types={"T": ("float16", "float32", "float64"), "T1": ("bool",)})
def dropout_10(x: Tensor, *, ratio: float = 0.5, num_outputs: int = 1) -> tuple[Tensor, ...]:
    """Return the tensor and a mask of False."""
    return (x, make_constant(value=False, shape=x.shape, dtype="bool"))[:num_outputs]


# activations with attributes


@registry.register("LeakyRelu", since=6, types={"T": FLOATS})
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """Less of what is negative."""
    return _map("tl.where({0} < 0, {0} * {1}, {0})", x, alpha)


@registry.register("Elu", since=6, types={"T": FLOATS})
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """An exponential where it is negative."""
    return _map("tl.where({0} < 0, {1} * f.expm1({0}), {0})", x, alpha)


@registry.register("Celu", since=12, types={"T": FLOATS})
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """An exponential where it is negative, with a continuous slope."""
    return _map(f"tl.maximum({{0}}, 0.0, {_NAN}) + tl.minimum({{1}} * f.expm1({{0}} / {{1}}), 0.0, {_NAN})", x, alpha)


@registry.register("Selu", since=6, types={"T": FLOATS})
def selu(x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Tensor:
    """An exponential where it is negative, scaled."""
    return _map("{2} * tl.where({0} < 0, {1} * f.expm1({0}), {0})", x, alpha, gamma)


@registry.register("HardSigmoid", since=6, types={"T": FLOATS})
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """A line between 0 and 1."""
    return _map(f"tl.clamp({{0}} * {{1}} + {{2}}, 0.0, 1.0, {_NAN})", x, alpha, beta)


@registry.register("ThresholdedRelu", since=10, types={"T": FLOATS})
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """What is above a threshold."""
    return _map("tl.where({0} > {1}, {0}, 0.0)", x, alpha)


@registry.register("Shrink", since=9, types={"T": ("float16", "float32", "float64")})
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Moved towards zero, and zero near it."""
    return _map("tl.where({0} < -{2}, {0} + {1}, tl.where({0} > {2}, {0} - {1}, 0.0))", x, bias, lambd)


@registry.register("Gelu", since=20, types={"T": FLOATS})
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """The Gaussian error linear unit, exact or by the hyperbolic tangent."""
    exact = GELU_HALF if x.dtype in _HALVES else GELU
    return _map(GELU_TANH if approximate == "tanh" else exact, x)


@registry.register("Swish", since=24, types={"T": FLOATS})
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """A number times its own sigmoid."""
    return _map(SWISH, x, alpha)


@registry.register("SwiGLU", since=28, types={"T": FLOATS})
def swiglu(gate: Tensor, value: Tensor, *, alpha: float = 1.0) -> Tensor:
    """The swish of one tensor times another."""
    number = literal(alpha, gate.dtype)
    text = "{0} / (1 + tl.exp(-{2} * {0})) * {1}"
    return map_elements(lambda a, b: apply(text, a, b, number, dtype=gate.dtype), gate, value, dtype=gate.dtype)
