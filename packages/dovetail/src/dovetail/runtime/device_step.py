"""A kernel of a device: work that its function puts on the context's stream and that ends some time later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.errors import DovetailError, InternalError
from dovetail.plan.manifest import StepRecord, ValueRecord
from dovetail.provider.calls import call, provider_failure
from dovetail.provider.devices import Stream
from dovetail.provider.interfaces import Provider
from dovetail.runtime.steps import Frame, argument_getter, is_placed, too_few_results

__all__ = ["DeviceStep"]


class DeviceStep:
    """Calls the function of one step; outputs with planned memory are written there, others are what it returns."""

    def __init__(
        self,
        record: StepRecord,
        values: Sequence[ValueRecord],
        provider: Provider,
        function: Callable[..., Any],
        stream: Stream | None,
    ) -> None:
        self.name = record.name
        self.provider = provider
        self._stream = stream
        bind = getattr(function, "bind", None)
        self._function = function if bind is None else call(provider.name, "bind", bind, stream)
        self._inputs = record.inputs
        self._outputs = [(index, is_placed(values, index)) for index in record.outputs]
        self._fetch = argument_getter((*record.inputs, *record.outputs))
        self._fetch_inputs = argument_getter(record.inputs)
        into = getattr(self._function, "into", None)
        is_planned = all(placed or index < 0 for index, placed in self._outputs)
        self._into: Callable[..., Any] | None = into if is_planned else None

    @property
    def writes_in_place(self) -> bool:
        """Whether all it writes lies where the plan says, so that the same work can be done again."""
        return self._into is not None

    def __call__(self, frame: Frame) -> None:
        """Put the work on the stream."""
        try:
            if self._into is not None:
                self._into(*self._fetch(frame))
            else:
                args = self._fetch_inputs(frame)
                self._store(frame, args, self._function(*args))
        except DovetailError:
            raise
        except Exception as error:
            raise provider_failure(self.provider.name, "its kernel", error, self.name) from error

    def _store(self, frame: Frame, args: tuple[Any, ...], result: Any) -> None:
        parts = result if isinstance(result, tuple) else (result,)
        if len(parts) < len(self._outputs):
            raise too_few_results(self.name, len(self._outputs), len(parts))
        for (index, placed), part in zip(self._outputs, parts, strict=False):
            if index < 0:
                continue
            if placed:
                self._copy(part, frame[index])
            elif any(part is arg for arg in args):
                raise InternalError(
                    f"step '{self.name}' gave an input as its output",
                    where=f"provider '{self.provider.name}'",
                    expected="an array of its own, for the memory of inputs is used again",
                )
            else:
                frame[index] = part

    def _copy(self, part: Any, target: Any) -> None:
        if tuple(part.shape) != tuple(target.shape) or part.dtype != target.dtype:
            raise InternalError(
                f"step '{self.name}' gave another shape or type than the plan says",
                where=f"provider '{self.provider.name}'",
                expected=f"{target.dtype} {target.shape}",
                got=f"{part.dtype} {part.shape}",
            )
        self.provider.copy(part, target, self._stream)
