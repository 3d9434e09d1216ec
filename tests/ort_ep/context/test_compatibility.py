"""Whether a compiled model runs here: the answers, with reasons, in Python and through ONNX Runtime."""

from __future__ import annotations

import json
from typing import Any

import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

import dovetail
from dovetail.plan.manifest import FORMAT_VERSION
from dovetail.provider.loader import get_factory
from onnxruntime_ep_dovetail._version import __version__
from onnxruntime_ep_dovetail.compiled.compatibility import Compatibility, judge_info
from tests.support import ort_ep

pytestmark = pytest.mark.versions


def info(**changes: Any) -> str:
    """What a model compiled right here says, with changes; those of ``device`` go to its one device."""
    factory = get_factory("cpu")
    here = factory.devices()[0]
    device = {"provider": "cpu", "name": here.name, "fingerprint": here.fingerprint, "version": factory.version}
    device |= changes.pop("device", {})
    said = {
        "package": __version__,
        "dovetail": dovetail.__version__,
        "plan_format": FORMAT_VERSION,
        "devices": [device],
    }
    return json.dumps(said | changes)


CASES = [
    (info(), Compatibility.OPTIMAL, "tuned for this device"),
    ("", Compatibility.NOT_APPLICABLE, "nothing"),
    (info(dovetail="0.0.1"), Compatibility.PREFER_RECOMPILATION, "compiled with dovetail 0.0.1"),
    (info(package="0.0.1"), Compatibility.PREFER_RECOMPILATION, "compiled with onnxruntime-ep-dovetail 0.0.1"),
    (info(device={"fingerprint": "x"}), Compatibility.PREFER_RECOMPILATION, "tuned on another device"),
    (info(plan_format=[1, 1]), Compatibility.UNSUPPORTED, "format 1.1"),
    (info(plan_format=[2, 99]), Compatibility.UNSUPPORTED, "format 2.99"),
    (info(device={"provider": "abacus"}), Compatibility.UNSUPPORTED, "abacus"),
    (info(device={"version": "99.0"}), Compatibility.UNSUPPORTED, "another major version"),
    ("{", Compatibility.UNSUPPORTED, "damaged"),
    ("[" * 100_000, Compatibility.UNSUPPORTED, "damaged"),
    ("[]", Compatibility.UNSUPPORTED, "damaged"),
    (info(devices="all"), Compatibility.UNSUPPORTED, "damaged"),
]


@pytest.mark.parametrize(("text", "value", "reason"), CASES)
def test_an_answer_has_a_reason(text: str, value: Compatibility, reason: str) -> None:
    answer = judge_info(text)
    assert answer.value is value
    assert reason in answer.reason


@pytest.mark.parametrize(("text", "value"), [case[:2] for case in CASES])
def test_onnx_runtime_gets_the_same_answer(registration: str, text: str, value: Compatibility) -> None:
    answer = state.get_model_compatibility_for_ep_devices(ort_ep.devices(), text)
    assert int(answer) == int(value)
