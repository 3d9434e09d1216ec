"""Parameters of stored kernels: a plan that passes others than a kernel has is refused before anything is launched."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DovetailError, PlanCorruptError, ProviderError
from dovetail_cuda.run.kernel_parameters import KernelParameter, read_cubin
from dovetail_cuda.run.payload import KernelRecord
from tests.support.attack_plans import Target, make_target

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
MODELS = {
    "fixed": "(float[4,8] x) => (float[4,8] y) { a = Relu(x) b = Softmax<axis=0>(a) y = Add(b, x) }",
    "varying": "(float[n,8] x) => (float[n,8] y) { a = Relu(x) b = Softmax<axis=0>(a) y = Add(b, x) }",
}
NUM_CHANGES = 40


@pytest.fixture(params=list(MODELS))
def plan(request: pytest.FixtureRequest, paper: Any) -> tuple[Target, str]:
    """A plan of kernels for the fake driver, and the name of the blob with its launches."""
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    model = onnx.parser.parse_model(HEAD + MODELS[request.param])
    raw = dovetail.compile(model, config=config).serialize()
    found = make_target(request.param, bytes(raw), np.ones((4, 8), np.float32))
    names = [name for name, blob in found.manifest["blobs"].items() if blob["kind"] == "payload"]
    return found, names[0]


def _load(raw: bytes) -> Any:
    return dovetail.Runtime().deserialize_cuda_engine(raw)


def _refuses(raw: bytes, paper: Any, x: Any) -> str:
    """Return the error of a plan that launches nothing, whether it is refused when it is loaded or bound."""
    launched = len(paper[1].launched)
    with pytest.raises(DovetailError) as caught:
        _load(raw).create_execution_context().run([x])
    assert len(paper[1].launched) == launched
    return type(caught.value).__name__


def _kernels(payload: Any) -> list[Any]:
    lists = [variant["launches"]["kernels"] for variant in payload.get("variants", [])]
    template = payload.get("template")
    return [kernel for each in [*lists, *([template["kernels"]] if template else [])] for kernel in each]


def _launches(payload: Any) -> list[Any]:
    lists = [variant["launches"]["launches"] for variant in payload.get("variants", [])]
    template = payload.get("template")
    return [launch for each in [*lists, *([template["launches"]] if template else [])] for launch in each]


def _drop_buffer(launch: Any, kernel: Any, rng: random.Random) -> None:
    launch["buffers"].pop(rng.randrange(len(launch["buffers"])))
    kernel["num_parameters"] -= 1
    kernel["num_addresses"] -= 1


def _add_buffer(launch: Any, kernel: Any, rng: random.Random) -> None:
    launch["buffers"].append(launch["buffers"][0])
    kernel["num_parameters"] += 1
    kernel["num_addresses"] += 1


def _replace_buffer(launch: Any, kernel: Any, rng: random.Random) -> None:
    """Pass a number in the place of an address."""
    launch["buffers"].pop()
    launch["sizes"] = [0x7FFFDEADBEEF, *launch.get("sizes", [])]
    kernel["num_addresses"] -= 1


def _add_size(launch: Any, kernel: Any, rng: random.Random) -> None:
    launch["sizes"] = [*launch.get("sizes", []), rng.choice((0, 1, 0x7FFFDEADBEEF))]
    kernel["num_parameters"] += 1


def _replace_size(launch: Any, kernel: Any, rng: random.Random) -> None:
    """Pass an address in the place of a number, or a number that does not fit."""
    if launch.get("sizes"):
        launch["buffers"].append(launch["buffers"][0])
        launch["sizes"].pop(0)
        kernel["num_addresses"] += 1
    else:
        _add_size(launch, kernel, rng)


CHANGES = (_drop_buffer, _add_buffer, _replace_buffer, _add_size, _replace_size)


@pytest.mark.parametrize("number", range(NUM_CHANGES))
def test_a_launch_with_other_parameters_than_the_kernel_has_is_refused(plan: Any, paper: Any, number: int) -> None:
    target, name = plan
    rng, payload = random.Random(number), msgspec.msgpack.decode(target.payload(name))
    change = CHANGES[number % len(CHANGES)]
    kernels = _kernels(payload)
    for launch in _launches(payload):
        launch.pop("offsets", None)
        own = copy.deepcopy(kernels[launch["kernel"]])
        change(launch, own, rng)
        kernels[launch["kernel"]].update(own)
        break
    raw = target.with_payload(name, msgspec.msgpack.encode(payload))
    assert _refuses(raw, paper, target.inputs[0]) == "PlanCorruptError"


def test_the_same_kernel_with_two_records_is_compared_with_both(plan: Any, paper: Any) -> None:
    target, name = plan
    payload = msgspec.msgpack.decode(target.payload(name))
    lists = [v["launches"] for v in payload.get("variants", [])] or [payload["template"]]
    wrong = {**lists[0]["kernels"][0]}
    launch = next(each for each in lists[0]["launches"] if each["kernel"] == 0)
    launch.pop("offsets", None)
    _drop_buffer(launch, wrong, random.Random(0))
    lists[0]["kernels"].insert(0, wrong)
    for other in lists[0]["launches"]:
        other["kernel"] += other is not launch
    raw = target.with_payload(name, msgspec.msgpack.encode(payload))
    assert _refuses(raw, paper, target.inputs[0]) == "PlanCorruptError"


def test_a_launch_with_more_threads_than_the_kernel_has_is_refused(plan: Any, paper: Any) -> None:
    target, name = plan
    payload = msgspec.msgpack.decode(target.payload(name))
    for kernel in _kernels(payload):
        kernel["num_warps"] = 32
    raw = target.with_payload(name, msgspec.msgpack.encode(payload))
    assert _refuses(raw, paper, target.inputs[0]) == "PlanCorruptError"


def test_an_unchanged_plan_runs(plan: Any, paper: Any) -> None:
    target, name = plan
    raw = target.with_payload(name, target.payload(name))
    context = _load(raw).create_execution_context()
    assert np.isfinite(context.run([target.inputs[0]])[0]).all()


def test_a_size_that_does_not_fit_32_bits_is_refused(paper: Any) -> None:
    from dovetail_cuda.run.payload import KernelLaunch
    from dovetail_cuda.run.steps import LoadedFunction, Resources, prepare_launch

    kernel = KernelRecord(code="k", name="f", num_warps=1, num_parameters=2, num_addresses=1)
    loaded = LoadedFunction(handle=1, parameters=[KernelParameter(8, True), KernelParameter(4, False)])
    resources = Resources(
        gpu=paper[0]._gpu, kernels=[kernel], functions=[loaded], streams=paper[0]._streams, code={"k": b""}
    )
    launch = KernelLaunch(kernel=0, grid=(1, 1, 1), buffers=[0], sizes=[2**31])
    with pytest.raises(PlanCorruptError, match="does not fit"):
        prepare_launch(launch, resources)


def test_a_kernel_whose_parameters_are_unknown_is_refused(
    plan: Any, paper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = plan
    monkeypatch.setattr(paper[1], "list_parameters", lambda function: None)
    with pytest.raises(ProviderError, match=r"(?s)cannot be verified.*CUDA 12.4.*update the NVIDIA driver"):
        _load(target.raw)


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_a_cubin_that_is_cut_short_describes_no_parameters(length: int) -> None:
    head = bytearray(b"\x7fELF" + bytes(range(256)) * 2)[:length]
    assert read_cubin(bytes(head), "f") is None


def test_ptx_describes_no_parameters() -> None:
    assert read_cubin(b".version 8.0\0", "f") is None
