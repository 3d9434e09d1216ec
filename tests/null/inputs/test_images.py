"""Images become inputs as a model was trained: sizes, channels, numbers, layout; or one message says why not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dovetail.errors import InputError, UsageError
from dovetail.inputs.image_options import ImageOptions, parse_image_options
from dovetail.inputs.images import read_image
from dovetail.inputs.specs import InputSpec
from tests.support.dims import read_dims

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)


def spec_of(dims: list[Any] | None, dtype: str = "float32") -> InputSpec:
    return InputSpec(name="x", dtype=dtype, dims=None if dims is None else read_dims(dims))


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


def options_of(text: str) -> ImageOptions:
    return parse_image_options(text, where="--image")


@pytest.mark.parametrize(
    ("dims", "layout"),
    [(["n", 3, "h", "w"], "nchw"), (["n", "h", "w", 3], "nhwc"), ([3, None, None], "chw"), ([6, 8, 3], "hwc")],
)
def test_the_layout_follows_from_the_channels(photo: Path, dims: list[Any], layout: str) -> None:
    array = read_image(photo, spec_of(dims))
    plain = (PIXELS / np.float32(255)).astype(np.float32)
    expected = plain.transpose(2, 0, 1) if "chw" in layout else plain
    np.testing.assert_allclose(array, expected[np.newaxis] if layout.startswith("n") else expected, rtol=1e-6)
    assert array.flags.c_contiguous


def test_bytes_stay_bytes(photo: Path) -> None:
    np.testing.assert_array_equal(read_image(photo, spec_of([1, 6, 8, 3], "uint8"))[0], PIXELS)


def test_mean_std_and_scale(photo: Path) -> None:
    spec = spec_of(["n", 3, "h", "w"])
    array = read_image(photo, spec, options_of("mean=0.5,0.4,0.3,std=0.2,0.2,0.1"))
    expected = (PIXELS / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.2, 0.1]
    np.testing.assert_allclose(array[0].transpose(1, 2, 0), expected, rtol=1e-4, atol=1e-5)
    plain = read_image(photo, spec, options_of("scale=1,mean=127.5,std=127.5"))
    np.testing.assert_allclose(plain[0].transpose(1, 2, 0), (PIXELS - 127.5) / 127.5, rtol=1e-4, atol=1e-6)
    assert read_image(photo, spec_of(["n", 3, "h", "w"], "float16")).dtype == np.float16


def test_colours(photo: Path) -> None:
    bgr = read_image(photo, spec_of(["n", "h", "w", 3], "uint8"), options_of("color=bgr"))
    np.testing.assert_array_equal(bgr[0], PIXELS[..., ::-1])
    gray = np.asarray(Image.fromarray(PIXELS).convert("L"))
    np.testing.assert_array_equal(read_image(photo, spec_of([1, 1, 6, 8], "uint8"))[0, 0], gray)
    np.testing.assert_array_equal(read_image(photo, spec_of([6, 8], "uint8")), gray)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("resize=4", (4, 4)),
        ("resize=5x7", (5, 7)),
        ("short=3", (3, 4)),
        ("short=12,crop=10", (10, 10)),
        ("crop=2x4", (2, 4)),
        ("letterbox=16", (16, 16)),
        ("resize=4,filter=nearest", (4, 4)),
    ],
)
def test_sizes(photo: Path, text: str, size: tuple[int, int]) -> None:
    assert read_image(photo, spec_of(["n", 3, "h", "w"]), options_of(text)).shape == (1, 3, *size)


def test_a_crop_is_the_middle_and_a_letterbox_is_gray(photo: Path) -> None:
    spec = spec_of(["n", "h", "w", 3], "uint8")
    np.testing.assert_array_equal(read_image(photo, spec, options_of("crop=2x4"))[0], PIXELS[2:4, 2:6])
    boxed = read_image(photo, spec, options_of("letterbox=8"))[0]
    assert (boxed[0] == 114).all()
    np.testing.assert_array_equal(boxed[1:7], PIXELS)


def test_how_the_camera_was_held_counts(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(PIXELS).save(tmp_path / "turned.png", exif=exif)
    array = read_image(tmp_path / "turned.png", spec_of(["h", "w", 3], "uint8"))
    np.testing.assert_array_equal(array, np.rot90(PIXELS, -1))


@pytest.mark.parametrize(
    ("dims", "dtype", "text", "message"),
    [
        ([1, 3, 5, 5], "float32", "", "expected 1x3x5x5, got 1x3x6x8\n  fix: resize it: --image x:resize=5x5"),
        (["n", "c", "h", "w"], "float32", "", "the layout cannot be told"),
        ([1, 3, 3, 3, 3], "float32", "", "the layout cannot be told"),
        (None, "float32", "", "the layout cannot be told"),
        ([3, 6, 8], "float32", "layout=nchw", "a layout of 3 dimensions, for 3x6x8, got nchw"),
        ([1, 3, 6, 8], "float32", "color=gray", "choose its colours"),
        ([1, 3, 6, 8], "uint8", "mean=1", "scale, mean and std are for inputs of floats"),
        ([1, 3, 6, 8], "int8", "", "pixels do not fit the type"),
        ([1, 3, 6, 8], "object", "", "an image is no value for it"),
        ([1, 3, 6, 8], "float32", "mean=1,2", "mean has another number of channels"),
        ([1, 3, "h", "w"], "float32", "crop=9", "the image is smaller than its crop; expected 9x9, got 6x8"),
    ],
)
def test_what_does_not_fit(photo: Path, dims: Any, dtype: str, text: str, message: str) -> None:
    with pytest.raises((InputError, UsageError)) as caught:
        read_image(photo, spec_of(dims, dtype), options_of(text) if text else None)
    assert message in str(caught.value)
    assert "photo.png" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "320",
        "size=3",
        "resize=0",
        "resize=1x2x3",
        "resize=abc",
        "resize=4,resize=5",
        "resize=4,short=4",
        "short=4x4",
        "mean=a",
        "std=0",
        "scale=0",
        "scale=1,2",
        "layout=abc",
        "color=cmyk",
        "filter=none",
        "mean=inf",
    ],
)
def test_options_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--image"):
        options_of(text)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_kinds(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image.jpg"  # what it is counts, and not what it is called
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, kind)
    path.write_bytes(buffer.getvalue())
    assert read_image(path, spec_of(["n", 3, "h", "w"])).shape == (1, 3, 6, 8)
