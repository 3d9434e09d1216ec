"""Replacement of weights in a loaded engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.loggers import ILogger, Logger
from dovetail.provider.interfaces import RefitMode
from dovetail.runtime.devices.tensors import DeviceTensor
from dovetail.runtime.engine import Engine
from dovetail.runtime.packing import pack_again
from dovetail.runtime.steps.base import Array
from dovetail.strict_attributes import StrictAttributes
from dovetail.types import TensorLocation, Weights

__all__ = ["Refitter"]


@dataclass(frozen=True)
class _NewWeights:
    """Weights set for the next refits, with the source that each refit reads."""

    source: Any
    location: TensorLocation

    def read(self) -> Array:
        """Return the values that the source holds now."""
        is_array = isinstance(self.source, Weights | DeviceTensor)
        return self.source.numpy() if is_array else np.asarray(self.source)


class Refitter(StrictAttributes):
    """Collects new weights for an engine and applies them together.

    Nothing changes until ``refit_cuda_engine``; then every context uses the new weights from its next run. Weights stay
    set after a refit, as in the contract: the caller may write other values into the same memory and refit again, and
    calls ``unset_named_weights`` before it frees that memory. Do not refit during a run.
    """

    __slots__ = ("_engine", "_pending", "_record", "logger", "weights_validation")

    def __init__(self, engine: Engine, logger: ILogger | None = None) -> None:
        if engine.manifest.refit is None:
            raise UsageError(
                "the engine was not built for refit", fix="set BuilderFlag.REFIT (--refit) and build again"
            )
        self.logger: ILogger = logger or Logger()
        self.weights_validation = True
        self._engine = engine
        self._record = engine.manifest.refit
        self._pending: dict[str, _NewWeights] = {}

    def get_all_weights(self) -> list[str]:
        """The names of all weights that can be replaced."""
        return sorted(self._record.weights)

    def get_missing_weights(self) -> list[str]:
        """The names of weights that the engine still needs before it can run."""
        missing = {name for name, blob in self._record.weights.items() if blob in self._engine.blobs.missing}
        return sorted(missing - self._pending.keys())

    @property
    def weight_layers(self) -> Mapping[str, tuple[str, str]]:
        """The layer that each weight belongs to, by name, and its role there: ``kernel``, ``bias``, ``constant``."""
        return dict(self._record.layers)

    @property
    def excluded_weights(self) -> Mapping[str, str]:
        """Weights that cannot be replaced, each with the reason."""
        return dict(self._record.excluded)

    def get_weights_prototype(self, name: str) -> Weights:
        """Type and count that a weight must have."""
        record = self._engine.manifest.blobs[self._blob(name)]
        return Weights(np.empty(record.shape, np.dtype(record.dtype)))

    def set_named_weights(
        self, name: str, weights: Weights | Any, location: TensorLocation = TensorLocation.HOST
    ) -> bool:
        """Set new values for a weight; each refit reads them, until they are unset.

        Args:
            name: The weight.
            weights: Its values.
            location: Memory of the values. It is ignored for an engine that runs on the host; otherwise values on a
                device are a ``DeviceTensor``, because an address does not identify its device.

        Returns:
            True.

        Raises:
            UsageError: The engine has no such weight, or the values do not fit it.
        """
        given = _NewWeights(weights, TensorLocation(location))
        self._check_location(name, given)
        self._read_weights(name, given)
        self._pending[name] = given
        return True

    def _read_weights(self, name: str, given: _NewWeights) -> Array:
        record = self._engine.manifest.blobs[self._blob(name)]
        array = given.read()
        expected = np.dtype(record.dtype)
        if array.dtype != expected or array.size != int(np.prod(record.shape, dtype=np.int64)):
            raise UsageError(
                "the new weights do not fit",
                where=f"weight '{name}'",
                expected=f"{record.dtype} {tuple(record.shape)}",
                got=f"{array.dtype.name} {array.shape}",
            )
        if self.weights_validation and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError(
                "the new weights hold NaN or infinity",
                where=f"weight '{name}'",
                fix="mend them, or set refitter.weights_validation = False",
            )
        return array.reshape(record.shape)

    def _check_location(self, name: str, given: _NewWeights) -> None:
        is_on_device = given.location is TensorLocation.DEVICE and isinstance(given.source, Weights)
        if is_on_device and self._has_devices():
            raise UsageError(
                "weights on a device are given as an array of it",
                where=f"weight '{name}'",
                expected="a DeviceTensor, or an array of the host with TensorLocation.HOST",
                got="Weights, which have an address and no device",
            )

    def _has_devices(self) -> bool:
        names = {device.provider for device in self._engine.manifest.devices}
        return any(not self._engine.providers[name].memory.is_host for name in names)

    def get_weights_location(self, name: str) -> TensorLocation:
        """Return the location of the values that are set; HOST for a weight without any."""
        self._blob(name)
        given = self._pending.get(name)
        return TensorLocation.HOST if given is None else given.location

    def unset_named_weights(self, name: str) -> bool:
        """Drop the values that are set; the engine keeps those of its last refit. False if there were none."""
        return self._pending.pop(name, None) is not None

    def get_named_weights(self, name: str) -> Weights:
        """Return the values that are set, or else those in use."""
        blob, given = self._blob(name), self._pending.get(name)
        return Weights(self._engine.blobs.array(blob) if given is None else self._read_weights(name, given))

    def refit_cuda_engine(self) -> bool:
        """Apply all weights that are set, with the values that their memory holds now.

        Returns:
            True.

        Raises:
            UsageError: The engine still misses weights, or values do not fit; nothing has changed then.
        """
        missing = self.get_missing_weights()
        if missing:
            raise UsageError(f"{len(missing)} weight(s) are missing: {', '.join(missing[:5])}", fix="set them all")
        was_incomplete = bool(self._engine.blobs.missing)
        replaced = {self._blob(name): self._read_weights(name, given).copy() for name, given in self._pending.items()}
        replaced |= pack_again(self._engine, replaced)
        for blob, array in replaced.items():
            self._engine.blobs.replace(blob, array)
            self._engine.replace_constant(blob, array)
        if was_incomplete or self._recreates_steps():
            self._engine.recompile()
        else:
            self._engine.refit_partitions(replaced)
        return True

    def _recreates_steps(self) -> bool:
        """Whether a provider of the plan takes new weights only by making its steps again."""
        names = {device.provider for device in self._engine.manifest.devices}
        return any(self._engine.providers[name].refit_mode == RefitMode.RECREATE for name in names)

    def _blob(self, name: str) -> str:
        blob = self._record.weights.get(name)
        if blob is None:
            reason = self._record.excluded.get(name, "the engine has no such weight")
            raise UsageError(
                f"it cannot be replaced: {reason}", where=f"weight '{name}'", expected=self.get_all_weights()
            )
        return blob
