"""Signals: windows, DFT, STFT and MelWeightMatrix, and Col2Im, which lays columns back into images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, NUMBERS, Array
from dovetail.providers.cpu.kernels._checks import normalize_axis, read_scalar, require, require_room
from dovetail.providers.cpu.kernels._conversion import convert, dtype_of
from dovetail.providers.cpu.kernels._support import COMPLEX, float_reference, reference
from dovetail.providers.cpu.kernels._windows import accumulate_taps, make_window
from dovetail.providers.cpu.registry import kernel

__all__ = ["col2im", "dft", "dft_17", "mel_weight_matrix", "stft"]


def _make_window_kernel(op: str, coefficients: tuple[float, ...]) -> Callable[..., Array]:
    """A kernel for a window that is a sum of cosines with these coefficients, signs alternating."""

    @reference
    def window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        count = int(read_scalar(op, "size", size))
        require(count >= 0, op, "'size' must not be negative", got=count)
        require_room(op, [count], np.dtype(np.float64))
        period = count if periodic else count - 1
        angles = np.arange(count) * (2 * math.pi / max(period, 1))
        terms = (a * (-1) ** i * np.cos(i * angles) for i, a in enumerate(coefficients))
        values = sum(terms, np.zeros(count))
        # A symmetric window of one element is its own middle.
        shape = np.ones(1) if period == 0 and count == 1 else values
        return convert(shape.astype(np.float64), dtype_of(output_datatype))

    return window


for _op, _coefficients in {
    "BlackmanWindow": (0.42, 0.5, 0.08),
    "HammingWindow": (25 / 46, 21 / 46),
    "HannWindow": (0.5, 0.5),
}.items():
    kernel(_op, since=17, types={"T1": ("int32", "int64")})(_make_window_kernel(_op, _coefficients))


@kernel("DFT", since=17, until=19, types={"T1": FLOATS})
@float_reference
def dft_17(x: Array, dft_length: Array | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Array:
    """DFT with the axis as an attribute."""
    return _transform(x, dft_length, axis, inverse=bool(inverse), onesided=bool(onesided))


@kernel("DFT", since=20, types={"T1": FLOATS})
@float_reference
def dft(
    x: Array, dft_length: Array | None = None, axis: Array | None = None, *, inverse: int = 0, onesided: int = 0
) -> Array:
    """The discrete Fourier transform along an axis; the last axis holds real and imaginary parts."""
    where = -2 if axis is None else int(read_scalar("DFT", "axis", axis))
    return _transform(x, dft_length, where, inverse=bool(inverse), onesided=bool(onesided))


def _transform(x: Array, dft_length: Array | None, axis: int, *, inverse: bool, onesided: bool) -> Array:
    op = "DFT"
    require(x.ndim >= 2 and x.shape[-1] in (1, 2), op, "the last axis must hold one or two parts", got=x.shape)
    where = normalize_axis(op, axis, x.ndim)
    require(where != x.ndim - 1, op, "the last axis holds the parts of a number and has no transform")
    halved = onesided and inverse
    default = 2 * (x.shape[where] - 1) if halved else x.shape[where]
    length = default if dft_length is None else int(read_scalar(op, "dft_length", dft_length))
    require(length > 0, op, "'dft_length' must be positive", got=length)
    require_room(op, (*x.shape[:where], length, *x.shape[where + 1 :]), x.dtype)
    if halved:
        require(x.shape[-1] == 2, op, "a one-sided inverse needs complex input", got=x.shape)
        return np.fft.irfft(_as_complex(x), n=length, axis=where)[..., None].astype(x.dtype)
    if onesided:
        require(x.shape[-1] == 1, op, "a one-sided transform needs real input", got=x.shape)
        return _as_parts(np.fft.rfft(x[..., 0], n=length, axis=where), x.dtype)
    compute = np.fft.ifft if inverse else np.fft.fft
    return _as_parts(compute(_as_complex(x), n=length, axis=where), x.dtype)


def _as_complex(x: Array) -> Array:
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _as_parts(x: Array, dtype: np.dtype[Any]) -> Array:
    return np.stack((x.real, x.imag), axis=-1).astype(dtype)


@kernel("STFT", since=17, types={"T1": FLOATS})
@float_reference
def stft(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """The Fourier transform of each frame of a signal, weighted by the window."""
    op = "STFT"
    if signal.ndim == 2:
        signal = signal[..., None]  # exporters leave the parts of a real signal out, and every runtime takes it so
    require(
        signal.ndim == 3 and signal.shape[2] in (1, 2), op, "the signal must be (batch, time, parts)", got=signal.shape
    )
    step = int(read_scalar(op, "frame_step", frame_step))
    require(step > 0, op, "'frame_step' must be positive", got=step)
    samples = signal.shape[1]
    length = samples if window is None else window.shape[0]
    if frame_length is not None:
        length = int(read_scalar(op, "frame_length", frame_length))
    require(0 < length <= samples, op, "a frame does not fit the signal", expected=f"1..{samples}", got=length)
    weights = np.ones(length, dtype=signal.dtype) if window is None else window
    require(weights.shape == (length,), op, "'window' has the wrong shape", expected=(length,), got=weights.shape)
    real = signal.shape[2] == 1
    require(real or not onesided, op, "a one-sided transform needs a real signal", got=signal.shape)
    frames = np.lib.stride_tricks.sliding_window_view(_as_complex(signal), length, axis=1)[:, ::step] * weights
    return _as_parts(np.fft.rfft(frames) if onesided else np.fft.fft(frames), signal.dtype)


@kernel("MelWeightMatrix", since=17, types={"T1": ("int32", "int64"), "T2": FLOATS})
@reference
def mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int = 1,
) -> Array:
    """Triangles, evenly spaced in mel, that gather the bins of a spectrum: (spectrum bins, mel bins)."""
    op = "MelWeightMatrix"
    bands = int(read_scalar(op, "num_mel_bins", num_mel_bins))
    length, rate = int(read_scalar(op, "dft_length", dft_length)), int(read_scalar(op, "sample_rate", sample_rate))
    require(bands >= 0 and length > 0 and rate > 0, op, "counts must be positive", got=(bands, length, rate))
    require_room(op, (length // 2 + 1, bands), np.dtype(np.float64))
    low, high = (
        _to_mel(op, float(read_scalar(op, name, edge)))
        for name, edge in (("lower_edge_hertz", lower_edge_hertz), ("upper_edge_hertz", upper_edge_hertz))
    )
    mels = low + np.arange(bands + 2) * ((high - low) / (bands + 2))
    edges = ((length + 1) * 700 * (10 ** (mels / 2595) - 1)) // rate
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    spectrum = np.arange(length // 2 + 1)[:, None]
    rising = np.where(middle > left, (spectrum - left) / np.maximum(middle - left, 1), 1)
    falling = (right - spectrum) / np.maximum(right - middle, 1)
    on_left = (spectrum >= left) & (spectrum <= middle)
    on_right = (spectrum >= middle) & (spectrum < right)
    matrix = np.where(on_right, falling, np.where(on_left, rising, 0))
    return convert(matrix, dtype_of(output_datatype))


def _to_mel(op: str, hertz: float) -> float:
    require(0 <= hertz < math.inf, op, "an edge is no frequency", expected=">= 0", got=hertz)
    return 2595 * math.log10(1 + hertz / 700)


@kernel("Col2Im", since=18, types={"T": NUMBERS + COMPLEX})
@float_reference
def col2im(
    x: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Add columns of blocks back into the images they would be cut from."""
    op = "Col2Im"
    sizes, block = (tuple(int(n) for n in shape.reshape(-1)) for shape in (image_shape, block_shape))
    require(min(sizes, default=0) >= 0, op, "'image_shape' must not be negative", got=sizes)
    window = make_window(op, sizes, block, strides=strides, dilations=dilations, pads=pads)
    taps, positions = math.prod(block), math.prod(window.outputs)
    require(x.ndim == 3 and x.shape[1] % taps == 0, op, f"columns do not divide into blocks of {taps}", got=x.shape)
    require(x.shape[2] == positions, op, "the count of blocks is wrong", expected=positions, got=x.shape[2])
    columns = x.reshape(x.shape[0], x.shape[1] // taps, *block, *window.outputs)
    padded = tuple(n + b + e for n, b, e in zip(sizes, window.begins, window.ends, strict=True))
    require_room(op, (*columns.shape[:2], *padded), x.dtype)
    y = accumulate_taps(columns, window.strides, window.dilations, padded)
    inner = tuple(slice(b, b + n) for n, b in zip(sizes, window.begins, strict=True))
    return y[:, :, *inner].copy()
