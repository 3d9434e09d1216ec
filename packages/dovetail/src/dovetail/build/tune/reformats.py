"""What a reformat costs: measured once for each shape and pair of layouts, and cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from dovetail.build.tune.candidates import TimedCandidate
from dovetail.build.tune.clocks import Lane
from dovetail.build.tune.combinations import layout_text
from dovetail.build.tune.keys import make_reformat_key
from dovetail.build.tune.memory import PlacedArray, place_array
from dovetail.build.tune.session import identify
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.formats import pack
from dovetail.provider.calls import call
from dovetail.provider.interfaces import BindContext, CompiledKernel, Provider, TensorSpec
from dovetail.runtime.steps.reformat import apply_reformat

__all__ = ["ReformatTimer"]


class ReformatTimer:
    """Times reformats on demand where they run; zero for a tensor that is already as it is wanted.

    Args:
        tuner: Who measures and remembers.
        host: The provider that changes formats where a device cannot.
    """

    def __init__(self, tuner: CandidateTuner, host: Provider) -> None:
        self._tuner, self._host = tuner, host

    def time_us(self, dims: Sequence[int], source: TensorSpec, target: TensorSpec, provider: Provider) -> float:
        """Microseconds to turn one layout into the other; infinite where that cannot be done.

        Args:
            dims: The shape of the tensor.
            source: How it lies.
            target: How it is wanted.
            provider: Who has it.
        """
        if source == target:
            return 0.0
        lane = self._tuner.find_lane(self._find_reformatter(source, target, provider))
        candidate = self._make_candidate(dims, source, target, lane)
        outcome = self._tuner.time(f"reformat of {tuple(dims)}", [candidate], lane)[candidate.id]
        return outcome.time_us if outcome.time_us is not None else float("inf")

    def _find_reformatter(self, source: TensorSpec, target: TensorSpec, provider: Provider) -> Provider:
        if provider.memory.is_host:
            return self._host
        specs = _place(source, provider), _place(target, provider)
        return provider if call(provider.id, "can_reformat", provider.can_reformat, *specs) else self._host

    def _make_candidate(
        self, dims: Sequence[int], source: TensorSpec, target: TensorSpec, lane: Lane
    ) -> TimedCandidate:
        trial: _HostReformat | _DeviceReformat = _HostReformat(dims, source, target)
        if not lane.provider.memory.is_host:
            trial = _DeviceReformat(dims, source, target, lane)
        return TimedCandidate(
            id=0,
            label=f"{layout_text(source)} -> {layout_text(target)}",
            prepare=trial.prepare,
            run=trial.run,
            key=_make_key(dims, source, target, lane.provider),
        )


class _HostReformat:
    """A reformat by the host."""

    def __init__(self, dims: Sequence[int], source: TensorSpec, target: TensorSpec) -> None:
        self._dims, self._source, self._target = dims, source, target
        self._array: Any = None

    def prepare(self) -> None:
        """Make the tensor."""
        if self._array is None:
            self._array = _make_zeros(self._dims, self._source)

    def run(self) -> None:
        """Change its format."""
        apply_reformat(self._array, self._source, self._target, self._dims)


class _DeviceReformat:
    """A reformat by a device, in its memory and on its stream."""

    def __init__(self, dims: Sequence[int], source: TensorSpec, target: TensorSpec, lane: Lane) -> None:
        self._dims, self._layouts, self._lane = tuple(dims), (source, target), lane
        self._kernel: CompiledKernel | None = None
        self._arrays: list[PlacedArray] = []

    def prepare(self) -> None:
        """Make the tensors, and the kernel for them."""
        if self._kernel is not None:
            return
        provider, shape = self._lane.provider, self._dims
        specs = [_place(layout, provider) for layout in self._layouts]
        loaded = call(provider.id, "load_reformat", provider.load_reformat, *specs)
        context = BindContext(stream=self._lane.stream, input_shapes=(shape,), output_shapes=(shape,))
        empty = [_make_zeros(shape, layout) for layout in self._layouts]
        self._arrays = [place_array(self._lane, array) for array in empty]
        self._kernel = call(provider.id, "bind", loaded.bind, context)

    def run(self) -> None:
        """Put the change on the stream."""
        assert self._kernel is not None  # noqa: S101 - prepared before every burst
        source, target = (placed.array for placed in self._arrays)
        if self._kernel.write is not None:
            self._kernel.write(source, target)
        else:
            self._kernel.compute(source)


def _make_zeros(dims: Sequence[int], layout: TensorSpec) -> Any:
    return pack(np.zeros(dims, layout.data_type.numpy), layout.tensor_format)


def _make_key(dims: Sequence[int], source: TensorSpec, target: TensorSpec, provider: Provider) -> str:
    device, version = identify(provider)
    return make_reformat_key(
        device=device,
        provider_version=version,
        shape=tuple(dims),
        source=(source.data_type.name, f"{source.format}/{source.scale:.9g}"),
        target=(target.data_type.name, f"{target.format}/{target.scale:.9g}"),
    )


def _place(layout: TensorSpec, provider: Provider) -> TensorSpec:
    return msgspec.structs.replace(layout, memory=provider.memory_name)
