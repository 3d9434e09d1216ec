"""Parameters of stored kernels on a device, verified with the driver and the cubin."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DovetailError
from tests.support.attack_plans import make_target

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
X = np.ones((4, 8), np.float32)


def _build() -> Any:
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    model = onnx.parser.parse_model(
        HEAD + "(float[n,8] x) => (float[n,8] y) { a = Relu(x) b = Softmax<axis=0>(a) y = Add(b, x) }"
    )
    target = make_target("varying", bytes(dovetail.compile(model, config=config).serialize()), X)
    names = [name for name, blob in target.manifest["blobs"].items() if blob["kind"] == "payload"]
    return target, names[0]


def _run(raw: bytes) -> Any:
    return dovetail.Runtime().deserialize_cuda_engine(raw).create_execution_context().run([X])[0]


def test_a_stored_plan_passes_the_parameters_of_its_kernels(cuda: Any) -> None:
    target, _ = _build()
    assert np.isfinite(_run(target.raw)).all()


@pytest.mark.parametrize("change", ["fewer", "more", "number for an address"])
def test_other_parameters_are_refused(cuda: Any, change: str) -> None:
    target, name = _build()
    payload = msgspec.msgpack.decode(target.payload(name))
    template = payload["template"]
    for launch in template["launches"]:
        kernel = template["kernels"][launch["kernel"]]
        launch.pop("offsets", None)
        if change == "more":
            launch["buffers"].append(launch["buffers"][0])
        else:
            launch["buffers"].pop()
        if change.startswith("number"):
            launch["sizes"] = [0x7FFFDEADBEEF, *launch.get("sizes", [])]
        kernel["num_addresses"] = len(launch["buffers"])
        kernel["num_parameters"] = len(launch["buffers"]) + len(launch.get("sizes", []))
        break
    payload["variants"] = []
    with pytest.raises(DovetailError, match="other parameters"):
        _run(target.with_payload(name, msgspec.msgpack.encode(payload)))
