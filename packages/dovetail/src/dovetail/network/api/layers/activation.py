"""Activations, softmax and their relatives."""

# ruff: noqa: A002 - the contract names arguments after builtins

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.network.api.core import NetworkCore
from dovetail.network.api.enums import ActivationType, LayerType
from dovetail.network.api.layers.base import ILayer
from dovetail.network.api.properties import Property, choice, mask, real

if TYPE_CHECKING:
    from dovetail.network.api.emission import Emitter
    from dovetail.network.api.tensor import ITensor

__all__ = ["ActivationLayers", "IActivationLayer", "IParametricReLULayer", "IRaggedSoftMaxLayer", "ISoftMaxLayer"]

_LARGEST: Final = float(np.finfo(np.float32).max)
_DEFAULTS: Final[dict[ActivationType, tuple[float, float]]] = {
    ActivationType.LEAKY_RELU: (0.01, 0.0),
    ActivationType.ELU: (1.0, 0.0),
    ActivationType.SELU: (1.6732631921768188, 1.0507010221481323),
    ActivationType.SOFTPLUS: (1.0, 1.0),
    ActivationType.CLIP: (-_LARGEST, _LARGEST),
    ActivationType.HARD_SIGMOID: (0.2, 0.5),
    ActivationType.SCALED_TANH: (1.0, 1.0),
    ActivationType.THRESHOLDED_RELU: (1.0, 0.0),
}
"""alpha and beta until they are set."""
_PLAIN: Final = {
    ActivationType.RELU: "Relu",
    ActivationType.SIGMOID: "Sigmoid",
    ActivationType.TANH: "Tanh",
    ActivationType.SOFTSIGN: "Softsign",
}


def _times(e: Emitter, x: ir.Value, factor: float, role: str) -> ir.Value:
    return x if factor == 1.0 else e.op("Mul", x, e.scalar(factor, role, e.dtype(x)))


def _clip(e: Emitter, x: ir.Value, alpha: float, beta: float) -> ir.Value:
    if e.dtype(x).is_integer():
        limits = np.iinfo(e.dtype(x).numpy())
        alpha, beta = max(alpha, float(limits.min)), min(beta, float(limits.max))
    elif e.dtype(x) == ir.DataType.FLOAT16:
        alpha, beta = max(alpha, -65504.0), min(beta, 65504.0)
    low, high = e.scalar(alpha, "alpha", e.dtype(x)), e.scalar(beta, "beta", e.dtype(x))
    return e.op("Clip", x, low, high)


def _softplus(e: Emitter, x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return _times(e, e.op("Softplus", _times(e, x, beta, "beta")), alpha, "alpha")


def _scaled_tanh(e: Emitter, x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return _times(e, e.op("Tanh", _times(e, x, beta, "beta")), alpha, "alpha")


_WRITERS: Final[dict[ActivationType, Callable[[Any, ir.Value, float, float], ir.Value]]] = {
    ActivationType.LEAKY_RELU: lambda e, x, a, b: e.op("LeakyRelu", x, alpha=a),
    ActivationType.ELU: lambda e, x, a, b: e.op("Elu", x, alpha=a),
    ActivationType.SELU: lambda e, x, a, b: e.op("Selu", x, alpha=a, gamma=b),
    ActivationType.SOFTPLUS: _softplus,
    ActivationType.CLIP: _clip,
    ActivationType.HARD_SIGMOID: lambda e, x, a, b: e.op("HardSigmoid", x, alpha=a, beta=b),
    ActivationType.SCALED_TANH: _scaled_tanh,
    ActivationType.THRESHOLDED_RELU: lambda e, x, a, b: e.op("ThresholdedRelu", x, alpha=a),
    ActivationType.GELU_ERF: lambda e, x, a, b: e.op("Gelu", x),
    ActivationType.GELU_TANH: lambda e, x, a, b: e.op("Gelu", x, approximate="tanh"),
}


class IActivationLayer(ILayer):
    """Applies a function to each element."""

    __slots__ = ()

    _layer_type = LayerType.ACTIVATION
    _kind = "Activation"

    type = Property(choice(ActivationType), "The function.")
    alpha = Property(real, "The first parameter of the functions that have one.")
    beta = Property(real, "The second parameter of the functions that have one.")

    def __init__(self, network: NetworkCore, tensor: ITensor, type: Any) -> None:
        super().__init__(network, [tensor])
        self.type = type
        self.alpha, self.beta = _DEFAULTS.get(self.type, (0.0, 0.0))

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        if self.type in _PLAIN:
            return [e.op(_PLAIN[self.type], x)]
        return [_WRITERS[self.type](e, x, self.alpha, self.beta)]


class IParametricReLULayer(ILayer):
    """Multiplies what is negative by a slope."""

    __slots__ = ()

    _layer_type = LayerType.PARAMETRIC_RELU
    _kind = "ParametricReLU"
    _input_names = ("input", "slopes")
    _required_inputs = 2

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, slopes = e.input(0), e.input(1)
        e.require_same_type(x, slopes)
        e.require_rank(slopes, e.rank(x), "slopes")
        return [e.op("PRelu", x, slopes)]


class ISoftMaxLayer(ILayer):
    """Softmax over one axis."""

    __slots__ = ()

    _layer_type = LayerType.SOFTMAX
    _kind = "SoftMax"

    def __init__(self, network: NetworkCore, tensor: ITensor) -> None:
        super().__init__(network, [tensor])
        self._values["axes"] = None

    @property
    def axes(self) -> int:
        """The axis as a bit mask; until it is set the third from last, or the first of fewer than three."""
        given: int | None = self._values["axes"]
        tensor = self.get_input(0)
        rank = len(tensor.shape) if tensor is not None else 0
        return 1 << max(0, rank - 3) if given is None else given

    @axes.setter
    def axes(self, value: int) -> None:
        self._values["axes"] = mask(value, self._where, "axes")
        self._changed()

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x = e.input(0)
        given: int | None = self._values["axes"]
        axis = max(0, e.rank(x) - 3) if given is None else e.one_axis(given, e.rank(x))
        return [e.op("Softmax", x, axis=axis)]


class IRaggedSoftMaxLayer(ILayer):
    """Softmax over the last axis of sequences of different lengths; what is beyond a length becomes zero."""

    __slots__ = ()

    _layer_type = LayerType.RAGGED_SOFTMAX
    _kind = "RaggedSoftMax"
    _input_names = ("input", "bounds")
    _required_inputs = 2

    def _emit(self, e: Emitter) -> Sequence[ir.Value]:
        x, bounds = e.input(0), e.input(1)
        e.require_rank(bounds, e.rank(x), "bounds")
        if e.dims(bounds)[-1] not in (1, None):
            raise e.error("'bounds' must hold one length for each sequence", expected=1, got=e.describe(bounds))
        size = e.to_scalar(e.dim(x, e.rank(x) - 1), "size")
        positions = e.op("Range", e.scalar(0, "zero"), size, e.scalar(1, "one"))
        inside = e.op("Less", positions, e.int64(bounds))
        lowest = e.scalar(-np.inf, "lowest", e.dtype(x))
        weights = e.op("Softmax", e.op("Where", inside, x, lowest), axis=-1)
        return [e.op("Where", inside, weights, e.scalar(0.0, "outside", e.dtype(x)))]


class ActivationLayers(NetworkCore):
    """The methods that add activations."""

    __slots__ = ()

    def add_activation(self, input: ITensor, type: ActivationType) -> IActivationLayer:
        """Add a function of each element."""
        tensor = self._check_tensor(input, where="add_activation", argument="input")
        return self._add_layer(IActivationLayer(self, tensor, type))

    def add_parametric_relu(self, input: ITensor, slopes: ITensor) -> IParametricReLULayer:
        """Add a ReLU with slopes that broadcast to the input."""
        tensors = self._check_named("add_parametric_relu", input=input, slopes=slopes)
        return self._add_layer(IParametricReLULayer(self, tensors))

    def add_softmax(self, input: ITensor) -> ISoftMaxLayer:
        """Add a softmax; set ``axes`` for another axis than the default."""
        return self._add_layer(ISoftMaxLayer(self, self._check_tensor(input, where="add_softmax", argument="input")))

    def add_ragged_softmax(self, input: ITensor, bounds: ITensor) -> IRaggedSoftMaxLayer:
        """Add a softmax over the first ``bounds`` elements of the last axis; bounds is (..., 1)."""
        tensors = self._check_named("add_ragged_softmax", input=input, bounds=bounds)
        return self._add_layer(IRaggedSoftMaxLayer(self, tensors))
