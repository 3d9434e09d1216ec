"""The inspector of engines."""

from __future__ import annotations

from typing import Any

import dovetail
from dovetail_tensorrt.trt.answers import Reporter

__all__ = ["EngineInspector"]


class EngineInspector:
    """Shows the layers of an engine; made by ``ICudaEngine.create_engine_inspector``."""

    def __init__(self, engine: dovetail.Engine, reporter: Reporter) -> None:
        self._core: Any = engine.create_engine_inspector()
        self._reporter = reporter
        self._context: Any = None

    @property
    def execution_context(self) -> Any:
        """Set one to see the shapes that its inputs have now."""
        return self._context

    @execution_context.setter
    def execution_context(self, context: Any) -> None:
        self._context = context
        self._core.execution_context = None if context is None else context.context

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder | None:
        """Where errors are recorded too."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder

    def get_layer_information(self, layer_index: int, format: dovetail.LayerInformationFormat) -> str:  # noqa: A002
        """One layer by number; empty when there is none."""
        return self._reporter.attempt(
            "EngineInspector.get_layer_information",
            lambda: str(self._core.get_layer_information(layer_index, format)),
            "",
        )

    def get_engine_information(self, format: dovetail.LayerInformationFormat) -> str:  # noqa: A002
        """All layers and the names of inputs and outputs."""
        return str(self._core.get_engine_information(format))
