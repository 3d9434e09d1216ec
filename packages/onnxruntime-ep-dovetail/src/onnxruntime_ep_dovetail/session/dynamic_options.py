"""What may change while a session lives; everything else is fixed when it is made, and saying otherwise is an error."""

from __future__ import annotations

from typing import Final

from dovetail import UsageError
from onnxruntime_ep_dovetail.abi import read_texts
from onnxruntime_ep_dovetail.session.options import PREFIX, is_option
from onnxruntime_ep_dovetail.session.profiling import ProfilingRoute

__all__ = ["DynamicOptions"]

_LAYERS: Final = "profile_layers"
_WORKLOAD: Final = "ep.dynamic.workload_type"
_SWITCHES: Final = {"0": False, "1": True}
_WORKLOADS: Final = ("Default", "Efficient")


class DynamicOptions(ProfilingRoute):
    """The part of the execution provider that takes options while a session lives; it can profile."""

    def set_dynamic_options(self, keys: int, values: int, count: int) -> None:
        """Take options; all of them or, when one is wrong, none."""
        texts = (read_texts(place, count) for place in (keys, values))
        given = [(_strip(key), value) for key, value in zip(*texts, strict=True)]
        for key, value in given:
            _check(key, value)
        for key, value in given:
            if key == _LAYERS:
                self.profiling.has_layers = _SWITCHES[value]
                self.profiling.refresh()


def _strip(key: str) -> str:
    return key[len(PREFIX) :] if key.lower().startswith(PREFIX) else key


def _check(key: str, value: str) -> None:
    if key == _WORKLOAD:
        # ONNX Runtime sends this to every execution provider. Kernels of the host have one way to run.
        _check_choice(key, value, _WORKLOADS)
    elif key == _LAYERS:
        _check_choice(key, value, tuple(_SWITCHES))
    else:
        known = is_option(key)
        raise UsageError(
            f"option {key} is fixed when the session is made" if known else f"unknown option {key}",
            where="dynamic options",
            expected=f"{_LAYERS} or {_WORKLOAD}",
            fix="make a new session with it" if known else None,
        )


def _check_choice(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError("not a choice", where=f"dynamic option {key}", expected=" or ".join(allowed), got=value)
