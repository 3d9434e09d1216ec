"""Payloads from strangers: whatever is changed in one, loading says so and nothing is launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dovetail.errors import DovetailError, PlanCorruptError
from dovetail.provider.interfaces import StoredPartition, TensorSpec
from dovetail_cuda.run.payload import (
    VERSION,
    WORKSPACE_BYTES,
    BufferRecord,
    KernelLaunch,
    KernelRecord,
    LaunchList,
    Product,
    ProductLaunch,
)
from dovetail_cuda.run.variants import Payload, Variant, read_payload, write_payload

SIZE = 16 * 64 * 4
PRODUCT = Product(m=16, n=64, k=64, dtype="float32", left_line=64, right_line=64, result_line=64, has_bias=True)
GOOD = LaunchList(
    kernels=[KernelRecord(code="k", name="elements", num_warps=4, num_parameters=2)],
    buffers=[
        BufferRecord(kind="input", size_bytes=SIZE),
        BufferRecord(kind="arena", size_bytes=SIZE, offset=0),
        BufferRecord(kind="weight", size_bytes=64 * 64 * 4, name="w"),
        BufferRecord(kind="weight", size_bytes=64 * 4, name="b"),
        BufferRecord(kind="output", size_bytes=SIZE),
    ],
    launches=[
        KernelLaunch(kernel=0, grid=(4, 1, 1), buffers=[0, 1]),
        ProductLaunch(product=PRODUCT, buffers=[1, 2, 3, 4], algorithm=bytes(64), library_version=1),
    ],
    output_shapes=[[16, 64]],
    arena_bytes=4096,
    workspace_bytes=4096 + WORKSPACE_BYTES,
)


def _wrap(launches: LaunchList) -> Payload:
    return Payload(variants=[Variant(launches=launches)])


def _store(launches: LaunchList | bytes) -> StoredPartition:
    payload = launches if isinstance(launches, bytes) else write_payload(_wrap(launches))
    spec = TensorSpec.of("float32", (16, 64))
    return StoredPartition(
        name="step",
        payload=memoryview(payload),
        version=VERSION,
        inputs=["x"],
        outputs=["y"],
        weights={"w": np.zeros((64, 64), np.float32), "b": np.zeros(64, np.float32)},
        places={},
        input_specs=[spec],
        output_specs=[spec],
        code={"k": memoryview(b"cubin")},
    )


def _change(**fields: Any) -> LaunchList:
    return msgspec.structs.replace(GOOD, **fields)


def _buffer(at: int, **fields: Any) -> Callable[[], LaunchList]:
    buffers = list(GOOD.buffers)
    buffers[at] = msgspec.structs.replace(buffers[at], **fields)
    return lambda: _change(buffers=buffers)


def _launch(number: int, **fields: Any) -> Callable[[], LaunchList]:
    launches = list(GOOD.launches)
    launches[number] = msgspec.structs.replace(launches[number], **fields)
    return lambda: _change(launches=launches)


def _product(**fields: Any) -> Callable[[], LaunchList]:
    return _launch(1, product=msgspec.structs.replace(PRODUCT, **fields))


def _kernel(**fields: Any) -> Callable[[], LaunchList]:
    return lambda: _change(kernels=[msgspec.structs.replace(GOOD.kernels[0], **fields)])


ATTACKS = {
    "arena too small": lambda: _change(arena_bytes=100),
    "arena larger than the workspace": lambda: _change(workspace_bytes=64),
    "negative arena": lambda: _change(arena_bytes=-1),
    "buffer behind the arena": _buffer(1, offset=1024),
    "buffer before the arena": _buffer(1, offset=-256),
    "input of another size": _buffer(0, size_bytes=SIZE * 2),
    "input that is not there": _buffer(0, number=1),
    "weight of another size": _buffer(2, size_bytes=8),
    "weight that is not there": _buffer(2, name="v"),
    "zeros without end": _buffer(1, kind="zeroed", size_bytes=1 << 40),
    "kind that is not there": _buffer(0, kind="host"),
    "kernel that is not there": _launch(0, kernel=1),
    "kernel before the first": _launch(0, kernel=-1),
    "grid of nothing": _launch(0, grid=(0, 1, 1)),
    "grid too large": _launch(0, grid=(1, 70000, 1)),
    "buffer that is not there": _launch(0, buffers=[0, 9]),
    "other parameters": _launch(0, buffers=[0]),
    "code that is not there": _kernel(code="other"),
    "warps without end": _kernel(num_warps=64),
    "shared memory without end": _kernel(shared_bytes=1 << 30),
    "offset behind a buffer": _launch(0, offsets=[SIZE + 16, 0]),
    "offset before a buffer": _launch(0, offsets=[0, -16]),
    "offset that is not aligned": _launch(0, offsets=[4, 0]),
    "offsets too few": _launch(0, offsets=[0]),
    "product beyond its offset": _launch(1, offsets=[16, 0, 0, 0]),
    "algorithm cut short": _launch(1, algorithm=b"12"),
    "product beyond its buffers": _product(m=17),
    "product with a stride": _product(batch=2, left_stride=1 << 20),
    "product with a negative stride": _product(batch=2, left_stride=-1024),
    "product with lines beyond its buffers": _product(left_line=65),
    "product with lines that overlap": _product(right_line=63),
    "product whose result is larger than its buffer": _product(result_line=65),
    "product whose results lie on each other": _product(batch=2, m=8),
    "product without its residual": _product(has_residual=True),
    "product without a type": _product(dtype="int8"),
    "product without its bias": _product(has_bias=False),
    "other outputs": lambda: _change(output_shapes=[]),
    "output of a negative shape": lambda: _change(output_shapes=[[-1]]),
}


def test_a_payload_that_is_good_is_read() -> None:
    assert read_payload(_store(GOOD)) == _wrap(GOOD)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(PlanCorruptError, match="a partition cannot be read"):
        read_payload(_store(ATTACKS[name]()))


def test_what_is_cut_short_or_changed_at_random_is_refused_or_read() -> None:
    whole, rng = write_payload(_wrap(GOOD)), np.random.default_rng(3)
    for end in range(0, len(whole), 7):
        with pytest.raises(PlanCorruptError):
            read_payload(_store(whole[:end]))
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        try:
            read_payload(_store(bytes(changed)))
        except DovetailError as error:
            assert isinstance(error, PlanCorruptError)  # noqa: PT017 - most changes are seen, some do no harm


def test_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(PlanCorruptError, match="build the plan again"):
        read_payload(replace(_store(GOOD), version="cuda launches 0"))
