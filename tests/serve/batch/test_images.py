"""Images as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dovetail.errors import InputError
from dovetail.inputs.image_options import ImageOptions
from dovetail_serve.batch import run_batch
from tests.serve.batch.support import make_job, make_plan, read_failures


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_plan(tmp_path_factory.mktemp("images") / "images.plan", ("n", 3, 4, 6))


def test_each_image_is_a_row_under_its_name(plan: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "in", tmp_path / "in" / "more"):
        folder.mkdir()
        for index in range(12):
            Image.new("RGB", (6, 4), (index, 0, 0)).save(folder / f"{index:02}.png")
    (tmp_path / "in" / "05.png").write_bytes(b"no image")
    result = run_batch(make_job(plan, tmp_path / "in", tmp_path / "out"))
    assert (result.num_rows, result.num_failed) == (24, 1)
    (failure,) = read_failures(tmp_path / "out")
    assert (failure.file, failure.row) == ("05.png", 0)
    assert "cannot identify image file; expected BMP" in failure.error
    names: list[str] = []
    for name in result.outputs:
        with np.load(tmp_path / "out" / name) as arrays:
            names += arrays["_file"].tolist()
            assert not arrays["_row"].any(), "each image is the first row of its file"
            first = arrays["_file"].tolist().index(arrays["_file"][0])
            expected = (int(arrays["_file"][0][-6:-4]) / 255) ** 2
            assert arrays["y"][first, 0, 0, 0] == pytest.approx(expected)
    expected_names = [f"{index:02}.png" for index in range(12) if index != 5]
    assert names == [*expected_names, *(f"more/{index:02}.png" for index in range(12))]


def test_images_of_another_size_are_told_before_anything_runs(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Image.new("RGB", (60, 40)).save(tmp_path / "in" / "a.png")
    with pytest.raises(InputError, match="--image x:resize=4x6"):
        run_batch(make_job(plan, tmp_path / "in", tmp_path / "out"))
    images = {"x": ImageOptions(resize=(4, 6))}
    assert run_batch(make_job(plan, tmp_path / "in", tmp_path / "out", images=images)).num_failed == 0
