"""Ways of a host device to run a partition: they differ in their time and in the device code that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import (
    BuildContext,
    BuildReport,
    Candidate,
    CarriedCandidates,
    NodeReport,
    StoredPartition,
    TuneContext,
    TunedPartition,
    Tuner,
)

if TYPE_CHECKING:
    from dovetail.testing.host_device import HostDevice

__all__ = ["carry_ways", "check_way", "choose_way", "make_way_code", "tune_ways"]

_STEP_S: Final = 2e-4
"""How much longer each way takes than the next."""
_PREFIX: Final = "way "


def choose_way(device: HostDevice, tuner: Tuner, name: str, ways: Sequence[str]) -> str:
    """The name of the way that the tuner prefers."""

    def start(delay_s: float) -> Callable[[], None]:
        return lambda: device.submit(tuner.stream, "Way", partial(time.sleep, delay_s))

    delays = [_STEP_S * (len(ways) - number) for number in range(len(ways))]
    candidates = [Candidate(name=way, start=partial(start, delay_s)) for way, delay_s in zip(ways, delays, strict=True)]
    return tuner.choose(f"partition {name}", candidates).name


def make_way_code(device: HostDevice, name: str, way: str) -> dict[str, bytes]:
    """The device code of a way."""
    return {f"{_PREFIX}{way}": f"host device code of {device.name} for {name} by {way}".encode()}


def carry_ways(device: HostDevice, name: str, chosen: str, context: BuildContext) -> CarriedCandidates | None:
    """All ways, where the build asks for them."""
    if not context.candidate_bytes:
        return None
    code: dict[str, bytes] = {}
    for way in device.options.ways:
        code |= {} if way == chosen else make_way_code(device, name, way)
    return CarriedCandidates(payload="\n".join(device.options.ways).encode(), code=code)


def check_way(device: HostDevice, name: str, code: Mapping[str, memoryview]) -> dict[str, memoryview]:
    """Refuse a partition without the code of just one way, and give its other code."""
    ways = {key.removeprefix(_PREFIX): bytes(blob) for key, blob in code.items() if key.startswith(_PREFIX)}
    is_right = all(make_way_code(device, name, way)[f"{_PREFIX}{way}"] == blob for way, blob in ways.items())
    if len(ways) != bool(device.options.ways) or not is_right:
        raise ProviderError("a step without the code of its way", where=f"provider '{device.name}', step '{name}'")
    return {key: blob for key, blob in code.items() if not key.startswith(_PREFIX)}


def tune_ways(device: HostDevice, stored: StoredPartition, context: TuneContext) -> TunedPartition:
    """The partition by the way that the tuner prefers."""
    if stored.candidates is None:
        raise ProviderError("nothing to choose between", where=f"provider '{device.name}', step '{stored.name}'")
    ways = bytes(stored.candidates.payload).decode().split("\n")
    chosen = choose_way(device, context.tuner, stored.name, ways)
    others = [name for name in stored.code if not name.startswith(_PREFIX)]
    return TunedPartition(
        payload=bytes(stored.payload),
        code=[*others, f"{_PREFIX}{chosen}"],
        workspace_bytes=device.options.workspace_bytes,
        report=BuildReport(nodes=[NodeReport(name=stored.name, op="Partition", tactic=chosen)]),
    )
