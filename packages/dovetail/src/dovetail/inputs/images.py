"""Images as inputs: decoded by Pillow, brought to the size, the layout and the numbers that a model was trained with.

The steps have one order: orientation, colours, ``short`` or ``resize`` or ``letterbox``, ``crop``, ``scale``, ``mean``
and ``std``, ``layout``. Nothing is resized unless it is asked for.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from dovetail.decoding import judging
from dovetail.errors import InputError, ResourceError, UsageError
from dovetail.expr import constant_of
from dovetail.files import read_bytes
from dovetail.inputs.image_options import ImageOptions
from dovetail.inputs.specs import InputSpec

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["IMAGE_SUFFIXES", "read_image"]

Array = npt.NDArray[Any]

IMAGE_SUFFIXES: Final = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_FORMATS: Final = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded: formats that are pixels, and none that is a program, such as EPS."""
_MOST_FILE_BYTES: Final = 256 << 20
_MOST_PIXELS: Final = 1 << 26
_MODES: Final = {"rgb": "RGB", "bgr": "RGB", "gray": "L"}
_PAD: Final = 114
"""The gray that letterboxes are padded with, as detectors are trained."""


def read_image(path: Path, spec: InputSpec, options: ImageOptions | None = None) -> Array:
    """The array of an image for an input.

    Raises:
        InputError: The file is no image, is too large, or does not fit the input.
        ResourceError: Pillow is not installed.
    """
    options, where = options or ImageOptions(), f"'{path}', for {spec.where}"
    layout = options.layout or _find_layout(spec, where)
    if spec.dims is not None and len(spec.dims) != len(layout):
        expected = f"a layout of {len(spec.dims)} dimensions, for {_dims_text(spec)}"
        raise InputError("the layout does not fit the input", where=where, expected=expected, got=layout)
    channels = _find_channels(spec, layout)
    color = options.color or ("gray" if channels == 1 else "rgb")
    array = _normalize(_decode(path, color, options, where), spec, options, where)
    array = _lay_out(array[..., ::-1] if color == "bgr" else array, layout)
    _require_fit(array, spec, layout, where)
    return np.ascontiguousarray(array)


def _decode(path: Path, color: str, options: ImageOptions, where: str) -> Array:
    """The pixels, as (height, width, channels) of bytes."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        from dovetail._extras import install_line

        what = "reading images needs the package 'pillow', which is not installed"
        raise ResourceError(what, where=where, fix=install_line("images")) from error
    content = _read_file(path, where)

    def fail(reason: str) -> InputError:
        shown = reason.partition(" <_io.BytesIO")[0]  # Pillow names the object that it reads from
        return InputError(f"this is no image that can be read: {shown}", where=where, expected=", ".join(_FORMATS))

    with judging(fail), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            _require_modest_size(image.size, where)
            return _resize(_orient(image).convert(_MODES[color]), options, where)


def _read_file(path: Path, where: str) -> bytes:
    try:
        content = read_bytes(path, _MOST_FILE_BYTES, follow=True)
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=where) from error
    if len(content) > _MOST_FILE_BYTES:
        raise InputError("the file is too large", where=where, expected=f"at most {_MOST_FILE_BYTES} bytes")
    return content


def _require_modest_size(size: tuple[int, int], where: str) -> None:
    """Refuse a small file that says it becomes a large image, before anything is taken for it."""
    if size[0] * size[1] > _MOST_PIXELS:
        got = f"{size[0]}x{size[1]}"
        raise InputError("the image has too many pixels", where=where, expected=f"at most {_MOST_PIXELS}", got=got)


def _orient(image: Image) -> Image:
    """The image as it is meant to be seen; cameras store how they were held."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _resize(image: Image, options: ImageOptions, where: str) -> Array:
    from PIL import Image, ImageOps

    resample = Image.Resampling[options.filter.upper()]
    if options.resize is not None:
        image = image.resize(options.resize[::-1], resample)
    if options.short is not None:
        ratio = options.short / min(image.size)
        size = (max(1, round(image.width * ratio)), max(1, round(image.height * ratio)))
        _require_modest_size(size, where)
        image = image.resize(size, resample)
    if options.letterbox is not None:
        color = (_PAD,) * len(image.getbands())
        image = ImageOps.pad(image, options.letterbox[::-1], resample, color=color if len(color) > 1 else _PAD)
    if options.crop is not None:
        image = _crop(image, options.crop, where)
    array = np.asarray(image)
    return array if array.ndim == 3 else array[..., np.newaxis]


def _crop(image: Image, crop: tuple[int, int], where: str) -> Image:
    height, width = crop
    if height > image.height or width > image.width:
        fix = f"make it larger first, such as short={max(crop)}"
        got = f"{image.height}x{image.width}"
        raise InputError(
            "the image is smaller than its crop", where=where, expected=f"{height}x{width}", got=got, fix=fix
        )
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _normalize(pixels: Array, spec: InputSpec, options: ImageOptions, where: str) -> Array:
    """The numbers that the model wants, in the type of its input."""
    dtype = np.dtype(spec.dtype)
    if dtype.kind in "iub":
        if options.mean or options.std or options.scale not in (None, 1.0):
            got = f"an input of {dtype.name}"
            raise UsageError("scale, mean and std are for inputs of floats", where=where, got=got)
        if dtype.name in ("bool", "int8"):
            raise InputError("pixels do not fit the type", where=where, expected="floats or uint8", got=dtype.name)
        return pixels.astype(dtype)
    if dtype.kind in "Oc" or not spec.is_tensor:
        raise InputError("an image is no value for it", where=where, expected="an input of numbers")
    numbers = pixels.astype(np.float32) / np.float32(255.0 if options.scale is None else options.scale)
    for name, values in (("mean", options.mean), ("std", options.std)):
        if values and len(values) not in (1, numbers.shape[-1]):
            expected = f"1 or {numbers.shape[-1]} numbers"
            raise UsageError(f"{name} has another number of channels", where=where, expected=expected, got=len(values))
    mean, std = np.array(options.mean or 0.0, np.float32), np.array(options.std or 1.0, np.float32)
    return ((numbers - mean) / std).astype(dtype)


def _lay_out(array: Array, layout: str) -> Array:
    if layout == "hw":
        return array[..., 0]
    array = array.transpose(2, 0, 1) if "chw" in layout else array
    return array[np.newaxis] if layout.startswith("n") else array


def _sizes(spec: InputSpec) -> list[int | None]:
    return [constant_of(dim) for dim in spec.dims or ()]


def _find_layout(spec: InputSpec, where: str) -> str:
    """The layout that the dimensions of an input tell: the one with 1 or 3 channels."""
    sizes = _sizes(spec)
    candidates = {4: ("nchw", "nhwc"), 3: ("chw", "hwc"), 2: ("hw",)}.get(len(sizes), ())
    fits = [layout for layout in candidates if layout == "hw" or sizes[layout.index("c")] in (1, 3)]
    if len(fits) != 1:
        fix = "say it: --image NAME:layout=nchw"
        raise InputError("the layout cannot be told", where=where, got=f"an input of {_dims_text(spec)}", fix=fix)
    return fits[0]


def _find_channels(spec: InputSpec, layout: str) -> int | None:
    return 1 if layout == "hw" else _sizes(spec)[layout.index("c")] if spec.dims is not None else None


def _require_fit(array: Array, spec: InputSpec, layout: str, where: str) -> None:
    """Check the sizes that are fixed, so that the message can say how to resize."""
    sizes = dict(zip(layout, _sizes(spec), strict=True)) if spec.dims is not None else {}
    got = dict(zip(layout, array.shape, strict=True))
    if any(size is not None and got[axis] != size for axis, size in sizes.items()):
        raise InputError(
            "the image does not fit the input",
            where=where,
            expected=_dims_text(spec),
            got="x".join(map(str, array.shape)),
            fix=_advise(sizes, got, spec),
        )


def _advise(sizes: Mapping[str, int | None], got: Mapping[str, int], spec: InputSpec) -> str:
    height, width = (sizes[axis] if sizes.get(axis) is not None else got[axis] for axis in "hw")
    if (height, width) != (got["h"], got["w"]):
        return f"resize it: --image {spec.name}:resize={height}x{width}"
    return f"choose its colours: --image {spec.name}:color=gray or color=rgb"


def _dims_text(spec: InputSpec) -> str:
    return "x".join("?" if size is None else str(size) for size in _sizes(spec)) or "an unknown shape"
