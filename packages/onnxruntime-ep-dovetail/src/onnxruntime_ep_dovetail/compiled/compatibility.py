"""Whether a compiled model runs here as well as where it was made: what it says of itself, the answer, and why.

The rules are those of plans (``dovetail.plan.compatibility``). ONNX Runtime asks before it makes a session, when all
that it shows is this text, so the text repeats what the plans say of their format and their devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import msgspec

import dovetail
from dovetail.plan.compatibility import judge_devices
from dovetail.plan.manifest import FORMAT_VERSION, DeviceRecord, Manifest
from onnxruntime_ep_dovetail._version import __version__

__all__ = ["Compatibility", "Judgement", "describe_plans", "judge_info"]

_MAX_CHARS: Final = 1 << 20


class Compatibility(IntEnum):
    """ONNX Runtime's numbers for an answer."""

    NOT_APPLICABLE = 0
    OPTIMAL = 1
    PREFER_RECOMPILATION = 2
    UNSUPPORTED = 3


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How well a compiled model runs here, and why."""

    value: Compatibility
    reason: str


class _Info(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The text, decoded."""

    package: str
    dovetail: str
    plan_format: tuple[int, int]
    devices: list[DeviceRecord]


def describe_plans(manifests: Sequence[Manifest]) -> str:
    """What a compiled model of these plans says of itself; empty when it has none."""
    if not manifests:
        return ""
    devices = {(d.provider, d.name, d.fingerprint, d.version): d for one in manifests for d in one.devices}
    info = _Info(
        package=__version__,
        dovetail=dovetail.__version__,
        plan_format=max(manifest.format_version for manifest in manifests),
        devices=[devices[key] for key in sorted(devices)],
    )
    return msgspec.json.encode(info).decode()


def judge_info(text: str) -> Judgement:
    """Judge what a compiled model says of itself; it is not to be trusted to be well formed.

    >>> judge_info("").value.name, judge_info("{").value.name
    ('NOT_APPLICABLE', 'UNSUPPORTED')
    """
    if not text:
        return Judgement(value=Compatibility.NOT_APPLICABLE, reason="the model holds nothing that Dovetail compiled")
    try:
        info = msgspec.json.decode(text[: _MAX_CHARS + 1], type=_Info)
    except (msgspec.DecodeError, RecursionError) as error:
        return Judgement(value=Compatibility.UNSUPPORTED, reason=f"what the model says of itself is damaged: {error}")
    if info.plan_format[0] != FORMAT_VERSION[0] or info.plan_format[1] > FORMAT_VERSION[1]:
        made, here = (".".join(map(str, version)) for version in (info.plan_format, FORMAT_VERSION))
        reason = f"its plans have format {made}, and this Dovetail ({dovetail.__version__}) reads {here}"
        return Judgement(value=Compatibility.UNSUPPORTED, reason=reason)
    return _judge_devices(info)


def _judge_devices(info: _Info) -> Judgement:
    report = judge_devices(info.devices)
    if report.verdict == "rebuild":
        return Judgement(value=Compatibility.UNSUPPORTED, reason="; ".join(report.reasons))
    differences = [*(report.reasons if report.verdict == "usable" else ()), *_version_differences(info)]
    if differences:
        return Judgement(value=Compatibility.PREFER_RECOMPILATION, reason="; ".join(differences))
    return Judgement(value=Compatibility.OPTIMAL, reason="; ".join(report.reasons))


def _version_differences(info: _Info) -> Iterator[str]:
    for name, made, here in (
        ("onnxruntime-ep-dovetail", info.package, __version__),
        ("dovetail", info.dovetail, dovetail.__version__),
    ):
        if made != here:
            yield f"compiled with {name} {made}, and here is {here}"
