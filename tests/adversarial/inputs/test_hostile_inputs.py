"""Files for inputs from strangers: bombs, other kinds, cut and random bytes end in one error, and take no memory."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from dovetail.errors import DovetailError, InputError, InternalError
from dovetail.inputs.reader import open_inputs
from dovetail.inputs.specs import InputSpec
from tests.support.dims import read_dims

X = InputSpec(name="x", dtype="float32", dims=read_dims(["n", 3, "h", "w"]))
SUFFIXES = ("npy", "npz", "json", "bin", "png", "jpg", "webp", "tif", "gif")
MOST_BYTES = 64 << 20


def read(path: Path) -> None:
    list(open_inputs([f"x:{path}" if path.suffix != ".npz" else str(path)], [X]))


def refuse(path: Path) -> str:
    """The message of a file that is refused, without much memory having been taken for it."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    return str(caught.value)


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG that says it has this size, whatever is in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(100_000, 100_000), (20_000, 20_000), (2**31 - 1, 1), (9_000, 9_000)])
def test_an_image_that_becomes_large_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    (tmp_path / "x.png").write_bytes(png(*size))
    assert "x.png" in refuse(tmp_path / "x.png")


def test_a_resize_that_becomes_large_is_refused(tmp_path: Path) -> None:
    from dovetail.inputs.image_options import parse_image_options

    Image.new("RGB", (10_000, 1)).save(tmp_path / "x.png")
    options = parse_image_options("short=9000", where="--image")
    with pytest.raises(InputError, match="the image has too many pixels"):
        open_inputs([f"x:{tmp_path / 'x.png'}"], [X], images={"x": options})


def test_formats_that_are_programs_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    assert "this is no image that can be read" in refuse(tmp_path / "x.png")


def test_an_image_that_is_cut_off(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "blue").save(buffer, "JPEG")
    (tmp_path / "x.jpg").write_bytes(buffer.getvalue()[:-40])
    assert "this is no image that can be read" in refuse(tmp_path / "x.jpg")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[1e999999]",
        f"[{'9' * 10_000}]",
        "",
        "nul",
        "[1, 2",
        '"\\ud800"',
        "[NaN]",
        json.dumps({"x": {"x": 1}}),
    ],
    ids=["lists", "objects", "exponent", "digits", "empty", "word", "cut", "surrogate", "nan", "nested"],
)
def test_json_that_is_wrong(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert "x.json" in refuse(tmp_path / "x.json")


def test_json_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.inputs.json_files._MOST_BYTES", 100)
    (tmp_path / "x.json").write_text(f"[{'1,' * 100}1]")
    assert "the file is too large" in refuse(tmp_path / "x.json")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pipe_is_not_waited_for(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"x.{suffix}")
    assert "cannot be read" in refuse(tmp_path / f"x.{suffix}")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from(SUFFIXES), content=st.binary(max_size=200), start=st.sampled_from(["", "png", "npy", "zip"])
)
def test_random_bytes_are_refused_or_read(tmp_path: Path, suffix: str, content: bytes, start: str) -> None:
    begins = {"": b"", "png": png(4, 4)[:40], "npy": b"\x93NUMPY\x01\x00", "zip": b"PK\x03\x04"}
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(begins[start] + content)
    try:
        read(path)
    except DovetailError as error:
        assert not isinstance(error, InternalError)  # noqa: PT017 - most bytes are refused, some are not
