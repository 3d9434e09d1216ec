"""How an image becomes an input, as it is written after ``--image``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from dovetail.errors import UsageError

__all__ = ["COLORS", "ImageOptions", "parse_image_options"]

COLORS: Final = ("rgb", "bgr", "gray")
_LAYOUTS: Final = ("nchw", "nhwc", "chw", "hwc", "hw")
_FILTERS: Final = ("bilinear", "bicubic", "lanczos", "nearest")
_FORM: Final = "resize=320,mean=0.485,0.456,0.406,std=0.229,0.224,0.225,layout=nchw"


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How an image becomes an input; None is decided by the input."""

    resize: tuple[int, int] | None = None
    """Height and width; the ratio is not kept."""
    short: int | None = None
    """The shorter side; the ratio is kept."""
    letterbox: tuple[int, int] | None = None
    """Height and width into which the image fits; the ratio is kept, the rest is gray."""
    crop: tuple[int, int] | None = None
    """Height and width of the middle that is kept."""
    scale: float | None = None
    """What numbers are divided by; 255 for floats and 1 for integers where it is None."""
    mean: tuple[float, ...] = ()
    """What is subtracted from each channel, after the scale."""
    std: tuple[float, ...] = ()
    """What each channel is divided by, after the mean."""
    layout: str | None = None
    color: str | None = None
    filter: str = "bilinear"


def parse_image_options(text: str, *, where: str) -> ImageOptions:
    """The options of a text such as ``resize=320,mean=0.5,0.5,0.5,layout=nchw``.

    >>> parse_image_options("resize=320,mean=0.5,0.4,0.3", where="--image").mean
    (0.5, 0.4, 0.3)

    Raises:
        UsageError: It cannot be read.
    """
    known = [field.name for field in fields(ImageOptions)]
    words: dict[str, list[str]] = {}
    last: str | None = None
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if equals and (name not in known or name in words):
            what = f"'{name}' is given twice" if name in words else f"there is no option '{name}'"
            raise UsageError(what, where=where, expected=", ".join(known))
        last = name if equals else last
        if last is None:
            raise UsageError("options of an image cannot be read", where=where, expected=_FORM, got=repr(text[:80]))
        words.setdefault(last, []).append(value if equals else name)
    options = ImageOptions(**{name: _read_option(name, values, where) for name, values in words.items()})
    if sum(each is not None for each in (options.resize, options.short, options.letterbox)) > 1:
        raise UsageError("an image is resized in one way", where=where, expected="resize, short or letterbox")
    return options


def _read_option(name: str, values: Sequence[str], where: str) -> Any:
    where = f"{where}, {name}={','.join(values)[:60]}"
    if name in ("mean", "std"):
        return tuple(_read_number(value, where, is_positive=name == "std") for value in values)
    if len(values) != 1:
        raise UsageError("this takes one value", where=where, expected=_FORM)
    if name in ("layout", "color", "filter"):
        choices: Sequence[str] = {"layout": _LAYOUTS, "color": COLORS, "filter": _FILTERS}[name]
        if values[0] not in choices:
            raise UsageError("this is none of the choices", where=where, expected=", ".join(choices))
        return values[0]
    if name == "scale":
        return _read_number(values[0], where, is_positive=True)
    sizes = _read_sizes(values[0], where)
    if name == "short":
        if len(sizes) != 1:
            raise UsageError("the shorter side is one size", where=where, expected="short=256")
        return sizes[0]
    return (sizes[0], sizes[-1])


def _read_sizes(text: str, where: str) -> list[int]:
    words = text.lower().split("x")
    if len(words) > 2 or not all(word.isdecimal() and len(word) <= 5 and int(word) for word in words):
        raise UsageError("a size cannot be read", where=where, expected="320, or 240x320 for height and width")
    return [int(word) for word in words]


def _read_number(text: str, where: str, *, is_positive: bool) -> float:
    try:
        number = float(text[:40])
    except ValueError:
        number = float("nan")
    if not abs(number) < 1e15 or (is_positive and number <= 0):
        raise UsageError("a number cannot be read", where=where, expected="a number" + " above 0" * is_positive)
    return number
