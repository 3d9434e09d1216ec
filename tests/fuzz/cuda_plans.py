"""CUDA plans on the fake driver: partitions and whole plans are changed, loaded and run.

The fake driver checks every launch: the parameters against the signature of the kernel, and each address against the
memory that is allocated. GEMMs and convolutions compute through views that must lie inside one allocation. Kernels are
not interpreted, so that a case takes milliseconds. An ``AssertionError`` of the fake driver is a launch that memory
safety forbids.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from dovetail.errors import DovetailError, ProviderError
from dovetail.provider.interfaces import BindContext, StoredPartition, TensorSpec
from tests.support.attack_plans import Target, make_target
from tests.support.plan_fuzz import mutate_json

__all__ = ["list_seeds", "mutate_case", "run_case"]

_HEAD: Final = '<ir_version: 10, opset_import: ["" : 21]> g '
_MODELS: Final = {
    "plan fixed": "(float[4,8] x) => (float[4,8] y) { a = Relu(x) b = Softmax<axis=0>(a) y = Add(b, x) }",
    "plan varying": "(float[n,8] x) => (float[n,8] y) { a = Relu(x) b = Softmax<axis=0>(a) y = Add(b, x) }",
    "plan two outputs": "(float[n,8] x) => (float[n,8] y, float[n] z) { y = Exp(x) z = ReduceSum<keepdims=0>(x, s) }",
    "plan weights": "(float[4,8] x) => (float[4,8] y) { a = MatMul(x, w) b = Relu(a) y = Add(b, x) }",
}
_PARTITIONS: Final = ("product", "convolution", "template", "kernels")
_DEVICE_BYTES: Final = 64 << 20
_SHAPE: Final = (16, 64)
_SIZE: Final = 16 * 64 * 4
_COLLECT_EVERY: Final = 200


@dataclass(frozen=True)
class _Device:
    """The provider over the fake driver."""

    provider: Any
    driver: Any
    stream: Any
    registration: ExitStack
    """Keeps the provider registered."""


@cache
def _device() -> _Device:
    """Return the provider 'cuda' over a fake driver that checks launches and computes nothing."""
    from tests.cuda.host.fake_cudnn import FakeConvolutions
    from tests.cuda.host.fake_provider import FakeToolbox, fake_cuda

    class Convolutions(FakeConvolutions):
        """Rejects code of another plan with the error of cuDNN, and not with an assertion."""

        def prepare(self, conv: Any, plan: Any, code: bytes) -> Any:
            if code != msgspec.msgpack.encode((self.version, plan, conv)):
                raise ProviderError("the plan cannot be read", where="cuDNN")
            return super().prepare(conv, plan, code)

    folder = tempfile.mkdtemp(prefix="dovetail-fuzz-")
    registration = ExitStack()
    provider, driver = registration.enter_context(fake_cuda(folder, memory_bytes=_DEVICE_BYTES))
    driver.run_kernel = lambda code, values, grid: None  # type: ignore[method-assign]
    driver.check_wait = lambda code, launch: None  # type: ignore[method-assign] # an order of launches, and no address
    toolbox = provider._toolbox
    assert isinstance(toolbox, FakeToolbox)
    toolbox.has_cudnn = True
    toolbox.open_convolutions = lambda gpu: Convolutions(driver)  # type: ignore[method-assign]
    return _Device(provider, driver, provider.create_stream(), registration)


# whole plans


@cache
def _plan(name: str) -> Target:
    import onnx

    import dovetail

    _device()
    config = dovetail.BuilderConfig()
    config.providers = ["cuda", "cpu"]
    model = onnx.parser.parse_model(_HEAD + _MODELS[name])
    if "w)" in _MODELS[name]:
        weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
        model.graph.initializer.append(weight)
    if "s)" in _MODELS[name]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "s"))
    raw = dovetail.compile(model, config=config).serialize()
    return make_target(name, bytes(raw), np.ones((4, 8), np.float32))


def _run_plan(name: str, rng: random.Random) -> str:
    target = _plan(name)
    payloads = [key for key, blob in target.manifest["blobs"].items() if blob["kind"] == "payload"]
    raw = target.raw
    choice = rng.random()
    if choice < 0.6:
        blob = rng.choice(payloads)
        raw = target.with_payload(blob, _change_payload(target.payload(blob), rng), _edit(rng, choice < 0.2))
    else:
        raw = target.changed(_edit(rng, is_changed=True))
    import dovetail

    with dovetail.Runtime().deserialize_cuda_engine(raw) as engine:
        outcome = "ran"
        try:
            context = engine.create_execution_context()
            for rows in (4, 1, 4):
                context.run([np.ones((rows, 8), np.float32)])
        except DovetailError as error:
            outcome = f"ran into {type(error).__name__}"
        return outcome


def _edit(rng: random.Random, is_changed: bool) -> Callable[[Any], object]:
    def edit(manifest: Any) -> None:
        for _ in range(rng.choice((1, 1, 2)) if is_changed else 0):
            mutate_json(manifest, rng)

    return edit


# payloads


def _change_payload(payload: bytes, rng: random.Random) -> bytes:
    """Change a payload by its structure mostly, and its bytes sometimes."""
    if rng.random() < 0.15:
        changed = bytearray(payload)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed[: rng.randrange(len(changed))] if rng.random() < 0.1 else changed)
    document = msgspec.msgpack.decode(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _swap_buffers(document, rng) if rng.random() < 0.2 else mutate_json(document, rng)
    try:
        return msgspec.msgpack.encode(document)
    except (OverflowError, TypeError):  # an integer of more than 64 bits has no form
        return payload[: rng.randrange(len(payload))]


def _swap_buffers(document: Any, rng: random.Random) -> None:
    """Change launches consistently, so that more than one rule has to see it."""
    try:
        lists = [variant["launches"] for variant in document.get("variants", ())] + [document.get("template")]
        launches = [(each, launch) for each in lists if each for launch in each["launches"]]
        owner, launch = rng.choice(launches)
        buffers = list(launch["buffers"])
        kernel = owner["kernels"][launch["kernel"]] if "kernel" in launch else None
        _change_launch(launch, kernel, buffers, len(owner["buffers"]), rng)
    except (TypeError, KeyError, IndexError, AttributeError, ValueError):
        return  # an earlier change has left nothing of this form


def _change_launch(launch: Any, kernel: Any, buffers: list[Any], num_buffers: int, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        change = rng.randrange(5)
        if change == 0 and buffers:
            buffers[rng.randrange(len(buffers))] = rng.randrange(num_buffers)
        elif change == 1 and buffers:
            buffers.pop(rng.randrange(len(buffers)))
        elif change == 2:
            buffers.append(rng.randrange(num_buffers))
        elif change == 3:
            launch["sizes"] = [*launch.get("sizes", []), rng.choice((0, 1, -1, 2**31, 0x7FFFDEADBEEF))]
        else:
            launch["offsets"] = [rng.choice((0, 16, 256, 4096)) for _ in buffers]
    launch["buffers"] = buffers
    if kernel is not None:
        kernel["num_addresses"] = len(buffers)
        kernel["num_parameters"] = len(buffers) + len(launch.get("sizes", []))


# partitions


@cache
def _partition(name: str) -> StoredPartition:
    """Return a partition with launches of every kind, whose kernels the fake driver knows."""
    from dovetail_cuda.compile.request import KernelRequest
    from dovetail_cuda.run.variants import Payload, write_payload
    from tests.cuda.host.fake_cudnn import PLANS
    from tests.cuda.host.interpreter import compile_fake
    from tests.cuda.host.test_hostile import ANY, CONVOLUTION, CONVOLVED, GOOD, _store, _store_any, _wrap

    num_sizes = 1 if name == "template" else 0
    types = {"x": "*fp32", "y": "*fp32", **{f"n{number}": "i32" for number in range(num_sizes)}}
    kernel = compile_fake(KernelRequest(function="elements", text="", signature=types, capability=90)).code
    code = {"k": memoryview(kernel)}
    if name == "template":
        return replace(_store_any(ANY), code=code)
    launches = GOOD if name == "product" else CONVOLVED
    if name == "kernels":
        launches = msgspec.structs.replace(GOOD, launches=[*GOOD.launches[:1]] * 3)
    if name == "convolution":
        blob = msgspec.msgpack.encode((91901, PLANS[0], CONVOLUTION))
        conv = msgspec.structs.replace(CONVOLVED.launches[0], plan=PLANS[0], code="c", workspace_bytes=2 << 20)
        launches, code = (
            msgspec.structs.replace(CONVOLVED, launches=[*GOOD.launches[:1], conv]),
            {
                **code,
                "c": memoryview(blob),
            },
        )
    elif name == "product":
        products = [
            msgspec.structs.replace(each, library_version=130100) if hasattr(each, "product") else each
            for each in GOOD.launches
        ]
        launches = msgspec.structs.replace(GOOD, launches=products)
    payload: Payload = _wrap(launches)
    return replace(_store(write_payload(payload)), code=code)


def _run_partition(name: str, rng: random.Random) -> str:
    stored = _partition(name)
    payload = memoryview(_change_payload(bytes(stored.payload), rng))
    changed = (
        _change_stored(replace(stored, payload=payload), rng)
        if rng.random() < 0.2
        else replace(stored, payload=payload)
    )
    device = _device()
    partition = device.provider.load_partition(changed)
    try:
        return _run_bound(partition, changed, device)
    finally:
        partition.close()


def _change_stored(stored: StoredPartition, rng: random.Random) -> StoredPartition:
    """Change the tensors, weights or code that the plan stores beside a payload."""
    choice = rng.randrange(4)
    shape = tuple(rng.choice((0, 1, 8, 16, 64, 128)) for _ in range(rng.choice((1, 2, 2, 3))))
    spec = TensorSpec.of(rng.choice(("float32", "float16", "int64", "int8")), shape)
    if choice == 0:
        return replace(stored, input_specs=[spec])
    if choice == 1:
        return replace(stored, output_specs=[spec])
    if choice == 2:
        weights: Mapping[str, Any] = {
            key: np.zeros(rng.choice(((64, 64), (64,), (1,), (0,))), np.float32) for key in stored.weights
        }
        return replace(stored, weights=weights)
    names = list(stored.code)
    return replace(stored, code={name: stored.code[rng.choice(names)] for name in names})


def _run_bound(partition: Any, stored: StoredPartition, device: _Device) -> str:
    memory, blocks = device.provider.allocator, list[int]()

    def allocate(size_bytes: int) -> int:
        address = int(memory.allocate(max(size_bytes, 1), 256, 0))
        if not address:
            raise ProviderError("no memory", where="fuzz")
        blocks.append(address)
        return address

    try:
        shapes = [tuple(spec.fixed_shape or _SHAPE) for spec in stored.input_specs]
        size_bytes = partition.workspace_bytes(shapes)
        context = BindContext(
            stream=device.stream, workspace=allocate(size_bytes), workspace_bytes=size_bytes, input_shapes=shapes
        )
        bound = partition.bind(context)
        inputs = [_make_array(allocate, spec, shape) for spec, shape in zip(stored.input_specs, shapes, strict=True)]
        outputs: list[Any] = [None] * len(stored.output_specs)
        for _ in range(2):
            bound.run(inputs, outputs)
        return "ran"
    except DovetailError as error:
        return f"ran into {type(error).__name__}"
    finally:
        device.stream.synchronize()
        for block in blocks:
            memory.deallocate(block)


def _make_array(allocate: Callable[[int], int], spec: TensorSpec, shape: Sequence[int]) -> Any:
    from dovetail_cuda.run.arrays import CudaArray

    size_bytes = int(np.prod(shape)) * np.dtype(spec.dtype).itemsize
    return CudaArray(allocate(size_bytes), shape, np.dtype(spec.dtype))


# cases


_numbers = iter(range(1 << 62))


def list_seeds() -> list[bytes]:
    """Return the names of the plans and partitions that cases start from; they are built now, and not in a case."""
    for name in _MODELS:
        with suppress(DovetailError):
            _run_plan(name, random.Random(0))
    for name in _PARTITIONS:
        _partition(name)
    return [name.encode() for name in (*_PARTITIONS, *_PARTITIONS, *_MODELS)]


def mutate_case(data: bytes, rng: random.Random) -> bytes:
    """Return a case: the name of a plan, and the number that its changes follow from."""
    return data.split(b"/")[0] + b"/%d" % rng.randrange(2**63)


def run_case(data: bytes) -> str:
    """Change a plan, load it and run it.

    Returns:
        The outcome.

    Raises:
        DovetailError: The plan is refused.
        AssertionError: Memory outside of an allocation was used.
    """
    name, _, number = data.decode().partition("/")
    rng = random.Random(number)
    device = _device()
    if not next(_numbers) % _COLLECT_EVERY:
        gc.collect()
        device.provider._gpu.release_now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _run_plan(name, rng) if name in _MODELS else _run_partition(name, rng)
        finally:
            device.driver.synchronize()
            device.driver.launched.clear()


def main(num_cases: int, seed: int) -> Counter[str]:
    """Run cases, and return how often each outcome was seen."""
    from tests.fuzz.targets import TARGETS

    target, rng, outcomes = TARGETS["cuda"], random.Random(seed), Counter[str]()
    seeds = target.seeds()
    for number in range(num_cases):
        case = target.mutate(seeds[number % len(seeds)], rng)
        outcomes[target.run(case, rng).partition(":")[0]] += 1
    return outcomes


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
