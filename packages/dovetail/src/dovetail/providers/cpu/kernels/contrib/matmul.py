"""The matrix products of com.microsoft in floating point: transposed, scaled, and fused with an activation."""

from __future__ import annotations

from typing import Final

import numpy as np

from dovetail.providers.cpu._numeric import FLOATS, Array
from dovetail.providers.cpu.kernels._checks import require
from dovetail.providers.cpu.kernels._fused import activate, parameter_names
from dovetail.providers.cpu.kernels._support import float_reference
from dovetail.providers.cpu.kernels.onnx.activation import gelu
from dovetail.providers.cpu.kernels.onnx.matmul import gemm, matmul
from dovetail.providers.cpu.registry import kernel

__all__ = ["fused_gemm", "fused_matmul", "gemm_fast_gelu", "transpose_matmul"]

_DOMAIN = "com.microsoft"
_GEMM_ACTIVATIONS: Final = frozenset(
    (
        *("Celu", "Elu", "HardSigmoid", "LeakyRelu", "ParametricSoftplus", "Relu", "ScaledTanh", "Selu", "Sigmoid"),
        *("Softplus", "Softsign", "Tanh", "ThresholdedRelu"),
    )
)


@kernel("FusedMatMul", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema names it so
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Array:
    """``alpha`` times the product of the factors, each transposed as asked."""
    op = "FusedMatMul"
    left = _transpose(op, a, bool(transA), bool(transBatchA))
    right = _transpose(op, b, bool(transB), bool(transBatchB))
    product = np.asarray(matmul(left, right))
    return product if alpha == 1.0 else product * product.dtype.type(alpha)


def _transpose(op: str, x: Array, matrices: bool, batch: bool) -> Array:
    """The first axis behind the batch axes, then the last two exchanged; a vector has nothing to exchange."""
    require(not batch or x.ndim >= 3, op, "a batch transpose needs three axes or more", got=x.shape)
    turned = np.moveaxis(x, 0, -2) if batch else x
    return turned.swapaxes(-1, -2) if matrices and x.ndim > 1 else turned


@kernel("TransposeMatMul", domain=_DOMAIN, since=1, types={"T": FLOATS})
@float_reference
def transpose_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema names it so
    transB: int = 0,  # noqa: N803
) -> Array:
    """The older form of FusedMatMul."""
    return np.asarray(fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB))


@kernel("FusedGemm", domain=_DOMAIN, since=1, types={"T": ("float32", "float64", "float16")})
@float_reference
def fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803 - the schema names it so
    transB: int = 0,  # noqa: N803
) -> Array:
    """Gemm, and an activation of the result."""
    y = np.asarray(gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB))
    parameter_names("FusedGemm", activation or "", _GEMM_ACTIVATIONS)
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return activate("FusedGemm", y, activation or "", parameters)


@kernel("GemmFastGelu", domain=_DOMAIN, since=1, types={"T": ("float32", "float16", "bfloat16")})
@float_reference
def gemm_fast_gelu(x: Array, w: Array, bias: Array | None = None) -> Array:
    """The product plus an optional bias, through GELU by its tanh approximation."""
    product = np.asarray(matmul(x, w))
    if bias is not None:
        wanted = product.shape[-1:]
        require(bias.shape == wanted, "GemmFastGelu", "'bias' has the wrong shape", expected=wanted, got=bias.shape)
        product = product + bias
    return np.asarray(gelu(product, approximate="tanh"))
