"""Signals against NumPy's own transforms and windows, and blocks that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.provider.kernels import KernelFunction
from dovetail.providers.cpu._numeric import Array
from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.kernels.onnx.sampling import col2im, dft, dft_17, mel_weight_matrix, stft
from dovetail.providers.cpu.registry import registry

load_kernels()


def _kernel(op: str) -> KernelFunction:
    found = registry.find(op, "", 17)
    assert found is not None
    return found.function


@pytest.mark.parametrize(
    ("op", "expected"), [("HannWindow", np.hanning), ("HammingWindow", np.hamming), ("BlackmanWindow", np.blackman)]
)
def test_windows_are_those_of_numpy(op: str, expected: Any) -> None:
    for size in (0, 1, 2, 7):
        symmetric = _kernel(op)(np.array(size), periodic=0)
        assert symmetric.dtype == np.float32
        # NumPy rounds the Hamming coefficients to 0.54 and 0.46.
        np.testing.assert_allclose(symmetric, expected(size), atol=1e-2 if op == "HammingWindow" else 1e-6)
        periodic = _kernel(op)(np.array(size), output_datatype=11)
        np.testing.assert_allclose(periodic, _kernel(op)(np.array(size + 1), periodic=0, output_datatype=11)[:size])
    with pytest.raises(InputError, match=f"op {op}: 'size' must not be negative"):
        _kernel(op)(np.array(-1))


@given(st.integers(1, 6), st.integers(1, 8), st.booleans())
def test_inverse_gives_the_signal_back(size: int, length: int, onesided: bool) -> None:
    x = np.random.default_rng(size).standard_normal((2, size, 1))
    spectrum = dft(x, np.array(length), onesided=int(onesided))
    back = dft(spectrum, np.array(length), inverse=1, onesided=int(onesided))
    expected = np.zeros((2, length))
    expected[:, : min(size, length)] = x[:, :length, 0]
    np.testing.assert_allclose(back[..., 0], expected, atol=1e-12)
    assert back.shape == (2, length, 1 if onesided else 2)


def test_axis_is_a_choice() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 1)).astype(np.float32)
    assert np.array_equal(dft(x, None, np.array(0)), dft_17(x, axis=0))
    assert np.array_equal(dft(x), dft_17(x))
    assert dft(np.zeros((0, 4, 1), np.float32)).shape == (0, 4, 2)


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ((2, 3, 3), {}, "the last axis must hold one or two parts"),
        ((2, 3, 2), {"onesided": 1}, "a one-sided transform needs real input"),
        ((2, 3, 1), {"onesided": 1, "inverse": 1}, "a one-sided inverse needs complex input"),
        ((2, 3, 1), {"axis": -1}, "the last axis holds the parts of a number"),
        ((2, 0, 1), {}, "'dft_length' must be positive"),
    ],
)
def test_transforms_that_cannot_be_are_refused(
    shape: tuple[int, ...], attributes: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=f"op DFT: {message}"):
        dft_17(np.zeros(shape, np.float32), **attributes)


def test_frames_are_windowed_and_transformed() -> None:
    signal = np.random.default_rng(0).standard_normal((2, 10, 1))
    window = np.hanning(4)
    y = stft(signal, np.array(3), window)
    for frame, start in enumerate((0, 3, 6)):
        expected = np.fft.rfft(signal[:, start : start + 4, 0] * window)
        np.testing.assert_allclose(y[:, frame, :, 0] + 1j * y[:, frame, :, 1], expected, atol=1e-12)
    assert stft(signal, np.array(1)).shape == (2, 1, 6, 2)
    both = stft(np.repeat(signal, 2, axis=2), np.array(5), None, np.array(5), onesided=0)
    assert both.shape == (2, 2, 5, 2)
    for arguments, message in (
        ((np.array(0),), "'frame_step' must be positive"),
        ((np.array(1), None, np.array(11)), r"a frame does not fit the signal; expected 1\.\.10"),
        ((np.array(1), window, np.array(5)), "'window' has the wrong shape"),
    ):
        with pytest.raises(InputError, match=f"op STFT: {message}"):
            stft(signal, *arguments)


def test_mel_triangles_peak_at_one() -> None:
    matrix = mel_weight_matrix(*(np.array(n) for n in (8, 512, 16000)), np.float32(0), np.float32(8000))
    assert matrix.shape == (257, 8)
    assert matrix.max(axis=0).tolist() == [1.0] * 8
    assert matrix.min() == 0.0
    # A band above what the spectrum holds stays inside the matrix.
    high = mel_weight_matrix(*(np.array(n) for n in (4, 8, 8000)), np.float32(0), np.float32(20000))
    assert high.shape == (5, 4)


def test_columns_add_up_to_how_often_an_element_is_covered() -> None:
    ones = np.ones((1, 4, 4), np.float32)
    image = col2im(ones, np.array([3, 3]), np.array([2, 2]))
    assert image[0, 0].tolist() == [[1, 2, 1], [2, 4, 2], [1, 2, 1]]
    assert col2im(ones[:0], np.array([3, 3]), np.array([2, 2])).shape == (0, 1, 3, 3)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 4), "columns do not divide into blocks of 4"),
        ((1, 4, 5), "the count of blocks is wrong; expected 4, got 5"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(shape: tuple[int, ...], message: str) -> None:
    columns: Array = np.ones(shape, np.float32)
    with pytest.raises(InputError, match=f"op Col2Im: {message}"):
        col2im(columns, np.array([3, 3]), np.array([2, 2]))
