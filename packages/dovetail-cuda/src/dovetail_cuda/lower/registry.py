"""The operators this back end has: each is a function from tensors to tensors, over what ``lower.tensors`` describes.

Attributes are keyword-only parameters, named as ONNX names them. Inputs that must be known when a plan is built, such
as the shape of a Reshape, are registered as ``host_inputs`` and come as NumPy arrays.
"""

from __future__ import annotations

from functools import cache

from dovetail.provider.interfaces import KernelRegistry

__all__ = ["load_registry", "registry"]

registry = KernelRegistry("cuda")


@cache
def load_registry() -> KernelRegistry:
    """The registry with every family in it."""
    from dovetail_cuda.lower import (  # noqa: F401 - they register
        contents,
        convolution,
        gemm,
        indexing,
        packed,
        pointwise,
        pooling,
        reduce,
    )
    from dovetail_cuda.lower.operators import (  # noqa: F401
        attention_operators,
        channels_last,
        contrib,
        contrib_attention,
        contrib_fused,
        einsum,
        gather,
        integer,
        losses,
        norm,
        quantize,
        resize,
        rotary,
        sampling,
        scan,
        scatter,
        sort,
    )
    from dovetail_cuda.lower.operators.sequences import causal, linear_attention, recurrent  # noqa: F401

    channels_last.register_channels_last()  # of what is registered by now

    return registry
