"""What of a convolution and its followers cuDNN computes: act(sums + residual + bias), with the channels last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail_cuda.graph.regions import ConvRegion
from dovetail_cuda.lower.expr import Apply, Expr, Literal
from dovetail_cuda.lower.pointwise import GELU, GELU_HALF, GELU_TANH, MAXIMUM, MINIMUM, RELU, SIGMOID, SWISH, TANH
from dovetail_cuda.lower.types import size_of
from dovetail_cuda.run.convolutions import CONV_TYPES, Convolution
from dovetail_cuda.tune.library_form import LibraryForm, find_line, match_sum

__all__ = ["ConvForm", "match_convolution"]

_ACTIVATIONS: Final = {
    RELU: "relu",
    SIGMOID: "sigmoid",
    TANH: "tanh",
    GELU: "gelu",
    GELU_HALF: "gelu",
    GELU_TANH: "gelu_tanh",
}
_TIMES: Final = "{0} * {1}"
_ALIGNMENT: Final = 16
"""Bytes of which the place of an image must be a multiple."""


@dataclass(frozen=True, kw_only=True)
class ConvForm:
    """What the library is asked to do, and the buffers of what it adds."""

    convolution: Convolution
    image_offset: int
    """Bytes of the image's buffer before the image."""
    bias: str | None
    residual: str | None


def match_convolution(region: ConvRegion, *, allows_tf32: bool) -> ConvForm | None:
    """The form of a convolution; None where the library has none."""
    conv, stored, columns = region.conv, region.stored, region.conv.weight.shape[0]
    line, offset = find_line(stored.place, columns), region.image.offset * size_of(conv.dtype)
    is_plain = conv.dtype == stored.dtype and conv.padded is None and not conv.is_depthwise
    if line is None or not is_plain or conv.dtype not in CONV_TYPES or offset % _ALIGNMENT:
        return None
    strides = _settle_strides(conv.image.shape, region.image.strides)
    activation, value = _split_activation(stored.value)
    natural = LibraryForm(line=line, stride=0, activation=activation)
    form = match_sum(natural, value, conv.dtype, columns, stored.place)
    if form is None or form.alpha != 1.0 or strides is None:
        return None
    made = _make_convolution(region, form, strides, allows_tf32=allows_tf32)
    return ConvForm(convolution=made, image_offset=offset, bias=form.bias, residual=form.residual)


def _make_convolution(
    region: ConvRegion, form: LibraryForm, strides: tuple[int, int, int, int], *, allows_tf32: bool
) -> Convolution:
    conv, sliding = region.conv, region.conv.sliding
    batch, channels, high, wide = conv.image.shape
    return Convolution(
        dtype=conv.dtype,
        image=(batch, channels, high, wide),
        image_strides=strides,
        filters=conv.weight.shape[0],
        group=conv.group,
        kernel=_pair(sliding.kernel),
        strides=_pair(sliding.strides),
        dilations=_pair(sliding.dilations),
        before=_pair(sliding.before),
        after=_pair(sliding.after),
        outputs=_pair(sliding.outputs),
        result_line=form.line,
        has_bias=form.bias is not None,
        has_residual=form.residual is not None,
        activation=form.activation,
        allows_tf32=allows_tf32,
    )


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    first, second = sizes
    return first, second


def _settle_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """Strides that are sensible for dimensions of size 1 too; None where channels are apart or pixels overlap."""
    (batch, channels, high, wide), (image, channel, line, pixel) = shape, strides
    if channels > 1 and channel != 1:
        return None
    pixel = pixel if wide > 1 else channels
    line = line if high > 1 else wide * pixel
    image = image if batch > 1 else high * line
    is_apart = pixel >= channels and line >= wide * pixel and image >= high * line
    return (image, 1, line, pixel) if is_apart else None


def _split_activation(value: Expr) -> tuple[str, Expr]:
    """The name of an activation that the library has, and what it is of; no name where there is none."""
    match value:
        case Apply(text=text, args=(inner,)) if text in _ACTIVATIONS:
            return _ACTIVATIONS[text], inner
        case Apply(text=text, args=(inner, Literal(value=1.0))) if text == SWISH:
            return "swish", inner
        case Apply(text=text, args=(inner, Apply(text=gate, args=(again,)))) if text == _TIMES and gate == SIGMOID:
            return ("swish", inner) if inner is again else ("", value)
        case Apply(text=text, args=(Apply() as low, Literal(value=6.0))) if text == MINIMUM:
            return ("relu6", low.args[0]) if _is_relu(low) else ("", value)
        case _:
            return "", value


def _is_relu(value: Apply) -> bool:
    """Whether it is the larger of something and zero."""
    if value.text == RELU:
        return True
    last = value.args[-1]
    return value.text == MAXIMUM and isinstance(last, Literal) and last.value == 0.0
