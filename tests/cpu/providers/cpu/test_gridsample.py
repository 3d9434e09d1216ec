"""GridSample and AffineGrid: the identity, wild coordinates, types that are only moved, and empty inputs."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.gridsample import affine_grid, grid_sample
from dovetail.providers.cpu.registry import registry

load_kernels()


def _identity(shape: tuple[int, ...], align_corners: int) -> np.ndarray:
    rank = len(shape) - 2
    theta = np.concatenate([np.eye(rank), np.zeros((rank, 1))], axis=1)
    return affine_grid(np.stack([theta] * shape[0]), np.array(shape), align_corners=align_corners)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_identity_grid_gives_the_image_back(
    shape: tuple[int, ...], align_corners: int, padding_mode: str, mode: str
) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    grid = _identity(shape, align_corners)
    y = grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    np.testing.assert_allclose(y, x, atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_wild_coordinates_stay_inside(value: float, padding_mode: str) -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    grid = np.full((1, 1, 1, 2), value, np.float32)
    for mode in ("nearest", "linear", "cubic"):
        y = grid_sample(x, grid, mode=mode, padding_mode=padding_mode)
        assert np.isfinite(y).all()
        assert (y == 0).all() == (padding_mode == "zeros")


def test_border_and_reflection_follow_the_edge() -> None:
    x = np.array([[[1.0, 2.0, 4.0]]])
    grid = np.array([[[-5 / 3], [5 / 3]]])  # coordinates -1.5 and 3.5, a pixel beyond either edge
    assert grid_sample(x, grid, padding_mode="border").tolist() == [[[1.0, 4.0]]]
    np.testing.assert_allclose(grid_sample(x, grid, padding_mode="reflection"), [[[1.5, 3.0]]])
    assert grid_sample(x, grid, padding_mode="zeros").tolist() == [[[0.0, 0.0]]]


def test_image_of_one_element_reflects_onto_itself() -> None:
    grid = np.array([[[0.7], [-3.0]]], np.float32)
    y = grid_sample(np.full((1, 1, 1), 9, np.float32), grid, padding_mode="reflection", align_corners=1)
    assert y.tolist() == [[[9, 9]]]


def test_nearest_moves_strings_and_integers_are_cut() -> None:
    words = np.array([[["a", "b"]]], dtype=object)
    assert grid_sample(words, np.array([[[0.5], [3.0]]]), mode="nearest").tolist() == [[["b", ""]]]
    numbers = np.array([[[1, 4]]], np.int32)
    assert grid_sample(numbers, np.array([[[0.0]]])).tolist() == [[[2]]]


def test_empty_inputs() -> None:
    assert grid_sample(np.zeros((0, 1, 2, 2), np.float32), np.zeros((0, 3, 3, 2), np.float32)).shape == (0, 1, 3, 3)
    assert grid_sample(np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 0, 3, 2), np.float32)).shape == (1, 1, 0, 3)
    with pytest.raises(InputError, match="op GridSample: the input is empty"):
        grid_sample(np.zeros((1, 1, 0, 2), np.float32), np.zeros((1, 1, 1, 2), np.float32))


def test_older_mode_names() -> None:
    x, grid = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), np.zeros((1, 1, 1, 2), np.float32)
    older = registry.find("GridSample", "", 16)
    assert older is not None
    assert older.function(x, grid, mode="bilinear").item() == 1.5
    assert older.function(x, grid, mode="bicubic", padding_mode="border").item() == 1.5
    with pytest.raises(InputError, match="'mode' is unknown"):
        grid_sample(x, grid, mode="bilinear")


def test_affine_grid_of_one_element_is_its_corner() -> None:
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    assert affine_grid(theta, np.array([1, 1, 1, 1]), align_corners=1).tolist() == [[[[-1, -1]]]]
    assert affine_grid(theta, np.array([1, 1, 1, 1])).tolist() == [[[[0, 0]]]]
    with pytest.raises(InputError, match="'theta' has the wrong shape"):
        affine_grid(theta, np.array([2, 1, 1, 1]))
