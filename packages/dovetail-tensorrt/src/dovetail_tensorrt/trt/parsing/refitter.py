"""Weights of an ONNX model into an engine that was built from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dovetail
from dovetail import StrictAttributes
from dovetail_tensorrt.trt.answers import Reporter
from dovetail_tensorrt.trt.execution.refitter import Refitter
from dovetail_tensorrt.trt.parsing.errors import ErrorCode, ParserError
from dovetail_tensorrt.trt.parsing.models import ParsedModel, read_contents

__all__ = ["OnnxParserRefitter"]


class OnnxParserRefitter(StrictAttributes):
    """Sets the weights of a refitter by the names that a model gives them.

    Args:
        refitter: Of the engine; its ``refit_cuda_engine`` then puts them in.
        logger: Where messages go.
    """

    __slots__ = ("_errors", "_model", "_refitter", "_reporter")

    def __init__(self, refitter: Refitter, logger: dovetail.ILogger) -> None:
        self._refitter = refitter
        self._reporter = Reporter(logger)
        self._errors: list[ParserError] = []
        self._model: ParsedModel | None = None

    def refit_from_bytes(self, model: Any, path: str | None = None) -> bool:
        """Set the weights of a model given as bytes; False when one does not fit."""
        return self._refit("refit_from_bytes", lambda: ParsedModel(bytes(model), path))

    def refit_from_file(self, model: str) -> bool:
        """Set the weights of the model of a file; False when one does not fit."""
        return self._refit("refit_from_file", lambda: ParsedModel.from_file(model))

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        """Read a model, given as bytes, to which weights are given before ``refit_model_proto``."""
        return self._read("load_model_proto", lambda: ParsedModel(bytes(model), path)) is not None

    def load_initializer(self, name: str, data: Any, size: int) -> bool:
        """Set the contents of a weight of the model that was read."""
        try:
            contents = read_contents(data, size)
        except ValueError as error:
            self._note("load_initializer", f"initializer '{name}': {error}", ErrorCode.INVALID_VALUE)
            return False
        if self._model is not None and self._model.set_initializer(name, contents):
            return True
        self._note("load_initializer", f"the model has no initializer '{name}'", ErrorCode.INVALID_VALUE)
        return False

    def refit_model_proto(self) -> bool:
        """Set the weights of the model that was read."""
        if self._model is None:
            self._note("refit_model_proto", "no model was read; call load_model_proto", ErrorCode.INVALID_VALUE)
            return False
        return self._set_weights(self._model, "refit_model_proto")

    def _refit(self, func: str, read: Callable[[], ParsedModel]) -> bool:
        model = self._read(func, read)
        return model is not None and self._set_weights(model, func)

    def _read(self, func: str, read: Callable[[], ParsedModel]) -> ParsedModel | None:
        try:
            self._model = read()
        except (OSError, ValueError) as error:
            self._note(func, str(error), ErrorCode.MODEL_DESERIALIZE_FAILED)
            return None
        return self._model

    def _set_weights(self, model: ParsedModel, func: str) -> bool:
        wanted = set(self._refitter.get_all_weights())
        arrays = {name: array for name, array in model.weights().items() if name in wanted}
        for name, array in arrays.items():
            prototype = self._refitter.get_weights_prototype(name)
            fits = prototype is not None and self._refitter.set_named_weights(name, array)
            if not fits:
                self._note(func, f"the weights '{name}' of the model do not fit the engine", ErrorCode.REFIT_FAILED)
                return False
        missing = self._refitter.get_missing_weights()
        if missing:
            self._note(func, f"the model has no weights {', '.join(missing[:5])}", ErrorCode.REFIT_FAILED)
        return not missing

    @property
    def num_errors(self) -> int:
        """How many errors were found."""
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        """An error by number."""
        return self._errors[index]

    def clear_errors(self) -> None:
        """Forget all errors."""
        self._errors.clear()

    def _note(self, func: str, desc: str, code: ErrorCode) -> None:
        error = ParserError(code=code, desc=desc, func=func)
        self._errors.append(error)
        self._reporter.logger.log(dovetail.ILogger.ERROR, str(error))
