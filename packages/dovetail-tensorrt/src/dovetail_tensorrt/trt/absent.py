"""Names of layers that no network here has: what adds one answers None, so that no object of these is ever made."""

from __future__ import annotations

from typing import Any, NoReturn

import dovetail

__all__ = [
    "FallbackString",
    "IAttentionInputLayer",
    "IAttentionOutputLayer",
    "IDistCollectiveLayer",
    "IMoELayer",
]


class FallbackString(str):
    """A text from a plan that is no valid UTF-8; there are none."""

    __slots__ = ()


class IAttentionInputLayer(dovetail.IAttentionBoundaryLayer):
    """Where tensors enter an attention; an attention is one layer here."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        _refuse(self)


class IAttentionOutputLayer(dovetail.IAttentionBoundaryLayer):
    """Where tensors leave an attention; an attention is one layer here."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        _refuse(self)


class IDistCollectiveLayer(dovetail.ILayer):
    """A collective over several devices; a network runs on one."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        _refuse(self)


def _refuse(instance: object) -> NoReturn:
    raise TypeError(f"{type(instance).__name__} cannot be made: there is no such layer here")


class _AbsentProperty:
    """A property that no object ever has."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        _refuse(instance)


class IMoELayer(dovetail.ILayer):
    """A mixture of experts; compose it of ``add_topk``, ``add_gather`` and ``add_matrix_multiply``."""

    __slots__ = ()

    activation_type = _AbsentProperty()
    quantization_to_type = _AbsentProperty()
    quantization_block_shape = _AbsentProperty()
    dyn_q_output_scale_type = _AbsentProperty()
    swiglu_param_limit = _AbsentProperty()
    swiglu_param_alpha = _AbsentProperty()
    swiglu_param_beta = _AbsentProperty()

    def __init__(self, *arguments: Any) -> None:
        _refuse(self)

    def set_gated_weights(self, *arguments: Any) -> None:
        """Weights of the gated experts."""
        _refuse(self)

    def set_gated_biases(self, *arguments: Any) -> None:
        """Biases of the gated experts."""
        _refuse(self)

    def set_quantization_static(self, *arguments: Any) -> None:
        """Quantize with a scale that is known."""
        _refuse(self)

    def set_quantization_dynamic_dbl_q(self, *arguments: Any) -> None:
        """Quantize with scales that are found in the run."""
        _refuse(self)

    def set_swiglu_params(self, *arguments: Any) -> None:
        """Parameters of the activation."""
        _refuse(self)
