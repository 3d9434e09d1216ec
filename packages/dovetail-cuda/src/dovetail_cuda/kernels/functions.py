"""Functions of one element that kernels call."""
# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, libdevice

__all__ = ["multiply"]

acos = libdevice.acos
acosh = libdevice.acosh
asin = libdevice.asin
asinh = libdevice.asinh
atan = libdevice.atan
atanh = libdevice.atanh
cosh = libdevice.cosh
expm1 = libdevice.expm1
fmod = libdevice.fmod
log1p = libdevice.log1p
pow = libdevice.pow  # noqa: A001 - the function of the language
round = libdevice.rint  # noqa: A001 - to the nearest even number
sinh = libdevice.sinh
tan = libdevice.tan
tanh = libdevice.tanh


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Let the kernel behind this one be launched; it waits for the end of this one before it reads anything."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Wait for the end of the kernel in front of this one: before, nothing but weights may be touched."""
    if EARLY:
        gdc_wait()


@triton.jit
def begin(EARLY: tl.constexpr):
    """Do both, where there is nothing to do before."""
    let_next_start(EARLY)
    wait(EARLY)


@triton.jit
def prefetch(places):
    """Have the cache read lines of memory that are needed soon."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [places.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def multiply(a, b):
    """What products over a row are made of."""
    return a * b


@triton.jit
def sign(x):
    """-1, 0 or 1, and what is no number as it is."""
    return tl.where(x == x, (x > 0).to(x.dtype) - (x < 0).to(x.dtype), x)


@triton.jit
def softplus(x):
    """log(1 + exp(x)) without overflow."""
    return tl.maximum(x, 0.0) + log1p(tl.exp(-tl.abs(x)))


@triton.jit
def gelu(x):
    """The Gaussian error linear unit."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def erf_half(x):
    """The error function to seven digits, for numbers that are stored with four: without branches."""
    size = tl.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    found = 1 - series * tl.exp(-size * size)
    return tl.where(x < 0, -found, found)


@triton.jit
def gelu_half(x):
    """The Gaussian error linear unit of such numbers."""
    return 0.5 * x * (1 + erf_half(x * 0.7071067811865476))


@triton.jit
def gelu_tanh(x):
    """Its approximation by the hyperbolic tangent."""
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def floor_mod(a, b):
    """What a division leaves, with the sign of the divisor."""
    left = fmod(a, b)
    return tl.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


@triton.jit
def sign_of_divisor(left, b):
    """What an integer division left, with the sign of the divisor."""
    return tl.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)
