"""The inputs and outputs of an engine as the protocol has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dovetail import Engine
from dovetail.errors import DovetailError
from dovetail_serve.protocol.documents import TensorMetadata
from dovetail_serve.tensors.datatypes import DATATYPES

__all__ = ["ModelPorts", "Port", "UnservableError"]

_DATATYPES: Final = {each.dtype.name: each.name for each in DATATYPES.values()}
"""NumPy's name of a type -> the protocol's."""


class UnservableError(DovetailError):
    """The engine runs, and the protocol or the config has no way to serve it."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output."""

    name: str
    dtype: np.dtype[Any]
    """``object`` for strings, which the protocol has as bytes."""
    datatype: str
    sizes: tuple[int, ...] | None
    """-1 where a size varies; None where only the run tells how many there are."""

    @property
    def metadata(self) -> TensorMetadata:
        """The same for clients."""
        return TensorMetadata(self.name, self.datatype, (-1,) if self.sizes is None else self.sizes)

    @property
    def has_samples(self) -> bool:
        """Whether the first dimension varies."""
        return bool(self.sizes) and self.sizes is not None and self.sizes[0] == -1


@dataclass(frozen=True, slots=True)
class ModelPorts:
    """All inputs and outputs, in the order of the engine."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    updated: frozenset[str] = frozenset()
    """Inputs that a run writes over."""

    @classmethod
    def of(cls, engine: Engine) -> ModelPorts:
        """The ports of an engine.

        Raises:
            UnservableError: An input or output has a type that the protocol lacks.
        """
        manifest = engine.manifest
        inputs = tuple(_read_port(tensor, "input") for tensor in manifest.inputs)
        outputs = tuple(_read_port(tensor, "output") for tensor in manifest.outputs)
        return cls(inputs, outputs, engine.updated_inputs)

    def require_samples(self) -> None:
        """Check that requests can be put together by samples.

        Raises:
            UnservableError: The first dimension of an input or output does not vary.
        """
        if not self.inputs:
            raise UnservableError("it has no inputs to count samples of", where="config.toml, 'max_batch_size'")
        for kind, ports in (("input", self.inputs), ("output", self.outputs)):
            for port in ports:
                if not port.has_samples:
                    raise UnservableError(
                        "requests cannot be put together",
                        where=f"config.toml, 'max_batch_size', {kind} '{port.name}'",
                        expected="a first dimension that varies, in all inputs and outputs",
                        got="an unknown shape" if port.sizes is None else list(port.sizes),
                        fix="leave max_batch_size out, or export the model with a dynamic first dimension",
                    )


def _read_port(tensor: Any, kind: str) -> Port:
    is_string = tensor.type == "tensor(string)"
    datatype = _DATATYPES.get(tensor.dtype) if is_string or not tensor.type else None
    if datatype is None:
        raise UnservableError(
            "the protocol has no such type",
            where=f"{kind} '{tensor.name}'",
            expected="a tensor of " + ", ".join(_DATATYPES.values()),
            got=tensor.type or tensor.dtype,
            fix="have the network convert it",
        )
    sizes = None if tensor.sizes is None else tuple(-1 if size is None else size for size in tensor.sizes)
    return Port(tensor.name, np.dtype(object if is_string else tensor.dtype), datatype, sizes)
