"""Replacing weights of an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import dovetail
from dovetail_tensorrt.trt.answers import LoggedObject
from dovetail_tensorrt.trt.execution.engine import ICudaEngine

__all__ = ["Refitter"]

T = TypeVar("T")
F = TypeVar("F")

_CONSTANT: Final = ".constant"
"""Suffix of the name of a constant layer's weight."""
_ROLES: Final = {role.name.lower(): role for role in dovetail.WeightsRole}


class Refitter(LoggedObject):
    """Collects new weights for an engine and applies them together.

    Args:
        engine: Built with ``BuilderFlag.REFIT`` or one like it.
        logger: Where messages go.

    Raises:
        RuntimeError: The engine was not built for it.
    """

    __slots__ = ("_core", "max_threads")

    def __init__(self, engine: ICudaEngine, logger: dovetail.ILogger) -> None:
        super().__init__(logger)
        core = self._reporter.attempt("Refitter", lambda: dovetail.Refitter(engine.engine, self._reporter.logger), None)
        if core is None:
            raise RuntimeError("Refitter: the engine was not built for refit")
        self._core = core
        self.max_threads = 1

    @property
    def weights_validation(self) -> bool:
        """Whether weights with NaN or infinity are refused."""
        return self._core.weights_validation

    @weights_validation.setter
    def weights_validation(self, value: bool) -> None:
        self._core.weights_validation = bool(value)

    def _ask(self, call: str, action: Callable[[], T], failure: F) -> T | F:
        return self._reporter.attempt(f"Refitter.{call}", action, failure)

    # by name

    def get_all_weights(self) -> list[str]:
        """The names of all weights that can be replaced."""
        return self._core.get_all_weights()

    def get_missing_weights(self) -> list[str]:
        """The names of weights that the engine still needs."""
        return self._core.get_missing_weights()

    def set_named_weights(self, name: str, weights: Any, location: Any = dovetail.TensorLocation.HOST) -> bool:
        """Give new values for a weight; False when they do not fit."""
        return self._ask(
            "set_named_weights", lambda: self._core.set_named_weights(name, weights, location), failure=False
        )

    def unset_named_weights(self, weights_name: str) -> bool:
        """Forget values that were set and not applied yet."""
        return self._core.unset_named_weights(weights_name)

    def get_named_weights(self, weights_name: str) -> dovetail.Weights | None:
        """The values that are set, or in use; None when there are none of the name."""
        return self._ask("get_named_weights", lambda: self._core.get_named_weights(weights_name), None)

    def get_weights_location(self, weights_name: str) -> dovetail.TensorLocation | None:
        """Where the values that are set lie."""
        return self._ask("get_weights_location", lambda: self._core.get_weights_location(weights_name), None)

    def get_weights_prototype(self, weights_name: str) -> dovetail.Weights | None:
        """Type and count that a weight must have; None when there is none of the name."""
        return self._ask("get_weights_prototype", lambda: self._core.get_weights_prototype(weights_name), None)

    # by layer and role

    def set_weights(self, layer_name: str, role: dovetail.WeightsRole, weights: Any) -> bool:
        """Give new values for a weight of a layer."""
        return self.set_named_weights(self._name_of(layer_name, dovetail.WeightsRole(role)), weights)

    def _name_of(self, layer_name: str, role: dovetail.WeightsRole) -> str:
        wanted = (layer_name, role.name.lower())
        named = [name for name, found in self._core.weight_layers.items() if found == wanted]
        if role is dovetail.WeightsRole.CONSTANT:
            known = self._core.get_all_weights()
            named += [name for name in (layer_name, layer_name + _CONSTANT) if name in known]
        return named[0] if named else f"{layer_name} ({role.name})"

    def get_all(self) -> tuple[list[str], list[dovetail.WeightsRole]]:
        """Layers and roles of all weights that can be replaced."""
        return self._find_layers(self._core.get_all_weights())

    def get_missing(self) -> tuple[list[str], list[dovetail.WeightsRole]]:
        """Layers and roles of weights that the engine still needs."""
        return self._find_layers(self._core.get_missing_weights())

    def _find_layers(self, names: list[str]) -> tuple[list[str], list[dovetail.WeightsRole]]:
        layers = self._core.weight_layers
        found = [layers.get(name, (name, "constant")) for name in names]
        found = [(layer.removesuffix(_CONSTANT) if role == "constant" else layer, role) for layer, role in found]
        # The API has no role for the exponent of a scale layer.
        return [layer for layer, _ in found], [_ROLES.get(role, dovetail.WeightsRole.ANY) for _, role in found]

    # ranges of version 10, which plans keep in their layers and no refit replaces

    def set_dynamic_range(self, tensor_name: str, range: Any) -> bool:  # noqa: A002 - the contract's name
        """False: ranges are no weights."""
        self._reporter.refuse("Refitter.set_dynamic_range", f"the range of '{tensor_name}' is no weight: build again")
        return False

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float]:
        """No range: see ``set_dynamic_range``."""
        return 0.0, 0.0

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """None: see ``set_dynamic_range``."""
        return []

    # applying

    def refit_cuda_engine(self) -> bool:
        """Put all new weights in; False when the engine still misses some."""
        return self._ask("refit_cuda_engine", self._core.refit_cuda_engine, failure=False)

    def refit_cuda_engine_async(self, stream_handle: Any) -> bool:
        """The same; it is done when this returns."""
        return self.refit_cuda_engine()
