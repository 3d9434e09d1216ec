"""The inspector of engines."""

from __future__ import annotations

from typing import Any

import dovetail
from dovetail import StrictAttributes
from dovetail_tensorrt.trt.answers import Reporter

__all__ = ["EngineInspector"]


class _AtProfile:
    """A profile of an engine in place of a context that uses it: no shape is decided."""

    def __init__(self, engine: dovetail.Engine, profile: int) -> None:
        self.active_optimization_profile = profile
        self.get_tensor_shape = engine.get_tensor_shape


class EngineInspector(StrictAttributes):
    """Shows the layers of an engine; made by ``ICudaEngine.create_engine_inspector``.

    Layers are numbered through all profiles, those of the first profile first.
    """

    __slots__ = ("_context", "_core", "_engine", "_reporter")

    def __init__(self, engine: dovetail.Engine, reporter: Reporter) -> None:
        self._engine = engine
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

    @property
    def error_recorder(self) -> dovetail.IErrorRecorder | None:
        """Where errors are recorded too."""
        return self._reporter.recorder

    @error_recorder.setter
    def error_recorder(self, recorder: dovetail.IErrorRecorder | None) -> None:
        self._reporter.recorder = recorder

    def get_layer_information(self, layer_index: int, format: dovetail.LayerInformationFormat) -> str:  # noqa: A002
        """One layer by number; empty when there is none."""

        def describe() -> str:
            profile, index = self._place(layer_index)
            return str(self._at(profile).get_layer_information(index, format))

        return self._reporter.attempt("EngineInspector.get_layer_information", describe, "")

    def get_engine_information(self, format: dovetail.LayerInformationFormat) -> str:  # noqa: A002
        """All layers of the context's profile, or of the first, and the names of inputs and outputs."""
        profile = 0 if self._context is None else self._context.active_optimization_profile
        return str(self._at(profile).get_engine_information(format))

    def _place(self, layer_index: int) -> tuple[int, int]:
        """The profile that a layer belongs to, and its number there."""
        counts = [len(program.steps) for program in self._engine.manifest.programs]
        profile, index = 0, layer_index
        while profile < len(counts) - 1 and index >= counts[profile]:
            index -= counts[profile]
            profile += 1
        return profile, index

    def _at(self, profile: int) -> Any:
        """The engine's own inspector, looking at a profile."""
        is_used = self._context is not None and self._context.active_optimization_profile == profile
        self._core.execution_context = self._context.context if is_used else _AtProfile(self._engine, profile)
        return self._core
