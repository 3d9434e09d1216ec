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
from dovetail_cuda.run.convolutions import Convolution, ConvPlan
from dovetail_cuda.run.payload import (
    VERSION,
    WORKSPACE_BYTES,
    BufferRecord,
    ConvLaunch,
    KernelLaunch,
    KernelRecord,
    LaunchList,
    Product,
    ProductLaunch,
)
from dovetail_cuda.run.variants import (
    BufferTemplate,
    KernelTemplate,
    LaunchTemplate,
    Payload,
    SymbolRecord,
    Variant,
    read_payload,
    read_symbols,
    resolve,
    write_payload,
)

SIZE = 16 * 64 * 4
PRODUCT = Product(m=16, n=64, k=64, dtype="float32", left_line=64, right_line=64, result_line=64, has_bias=True)
GOOD = LaunchList(
    kernels=[KernelRecord(code="k", name="elements", num_warps=4, num_parameters=2, num_addresses=2)],
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
    "fewer addresses than buffers": _kernel(num_addresses=1),
    "more addresses than parameters": _kernel(num_addresses=3),
    "a size in the place of a buffer": _launch(0, buffers=[0], sizes=[0x7FFFDEADBEEF]),
    "code that is not there": _kernel(code="other"),
    "warps without end": _kernel(num_warps=64),
    "shared memory without end": _kernel(shared_bytes=1 << 30),
    "offset behind a buffer": _launch(0, offsets=[SIZE + 16, 0]),
    "offset at the end of a buffer": _launch(0, offsets=[SIZE, 0]),
    "empty buffer at the end of the arena": _buffer(1, offset=4096, size_bytes=0),
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
    "product with an unknown activation": _product(activation="sigmoid"),
    "product with a factor of NaN": _product(alpha=float("nan")),
    "product that writes to a weight": _buffer(4, kind="weight", size_bytes=64 * 64 * 4, name="w"),
    "product that writes to an input": _buffer(4, kind="input"),
    "product that writes to its operand": _launch(1, buffers=[1, 2, 3, 2]),
    "other outputs": lambda: _change(output_shapes=[]),
    "output of a negative shape": lambda: _change(output_shapes=[[-1]]),
}


CONVOLUTION = Convolution(
    dtype="float32",
    image=(1, 16, 8, 8),
    image_strides=(1024, 1, 128, 16),
    filters=16,
    kernel=(1, 1),
    strides=(1, 1),
    dilations=(1, 1),
    before=(0, 0),
    after=(0, 0),
    outputs=(8, 8),
    result_line=16,
    has_bias=True,
)
CONVOLVED = _change(
    launches=[
        ConvLaunch(
            convolution=CONVOLUTION,
            buffers=[1, 2, 3, 4],
            plan=ConvPlan(tag="eng", engine=1, knobs=((1, 2),)),
            library_version=91901,
            code="k",
            workspace_bytes=4096,
        )
    ]
)


def _conv(**fields: Any) -> Callable[[], LaunchList]:
    return _conv_launch(convolution=msgspec.structs.replace(CONVOLUTION, **fields))


def _conv_launch(**fields: Any) -> Callable[[], LaunchList]:
    launch = msgspec.structs.replace(CONVOLVED.launches[0], **fields)
    return lambda: msgspec.structs.replace(CONVOLVED, launches=[launch])


ATTACKS |= {
    "convolution without its code": _conv_launch(code="other"),
    "convolution with a workspace beyond the plan's": _conv_launch(workspace_bytes=WORKSPACE_BYTES + 1),
    "convolution with a negative workspace": _conv_launch(workspace_bytes=-1),
    "convolution with fewer buffers": _conv_launch(buffers=[1, 2, 4]),
    "convolution beyond its offset": _conv_launch(offsets=[16, 0, 0, 0]),
    "engine of a front end": _conv_launch(plan=ConvPlan(tag="eng", engine=20_000)),
    "engine before the first": _conv_launch(plan=ConvPlan(tag="eng", engine=-1)),
    "name without end": _conv_launch(plan=ConvPlan(tag="e" * 1001, engine=1)),
    "knobs without end": _conv_launch(plan=ConvPlan(tag="eng", engine=1, knobs=((1, 1),) * 65)),
    "knob without end": _conv_launch(plan=ConvPlan(tag="eng", engine=1, knobs=((1, 1 << 40),))),
    "convolution of another type": _conv(dtype="int8"),
    "convolution with an activation that is not there": _conv(activation="other"),
    "convolution that gives other sizes": _conv(outputs=(8, 7)),
    "convolution of more images": _conv(image=(2, 16, 8, 8)),
    "convolution of a larger image": _conv(image=(1, 16, 9, 8), outputs=(9, 8)),
    "convolution without a channel": _conv(image=(1, 0, 8, 8)),
    "convolution with a stride beyond its image": _conv(image_strides=(1024, 1, 144, 16)),
    "convolution with a negative stride": _conv(image_strides=(1024, 1, -128, 16)),
    "convolution with more filters": _conv(filters=32, result_line=32),
    "convolution with groups that do not fit": _conv(group=3),
    "convolution with lines that overlap": _conv(result_line=8),
    "convolution with lines beyond its result": _conv(result_line=17),
    "convolution with negative padding": _conv(before=(-1, 0), image=(1, 16, 9, 8)),
    "convolution that does not move": _conv(strides=(0, 1)),
    "convolution without its residual": _conv(has_residual=True),
    "convolution that writes to an input": _conv_launch(buffers=[1, 2, 3, 0]),
    "convolution that writes to a weight": _conv_launch(buffers=[1, 2, 3, 2]),
}


def test_a_convolution_that_is_good_is_read() -> None:
    assert read_payload(_store(CONVOLVED)) == _wrap(CONVOLVED)


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


# launches for any shape

TEMPLATE = LaunchTemplate(
    kernels=[KernelRecord(code="k", name="elements", num_warps=4, num_parameters=3, num_addresses=2)],
    buffers=[
        BufferTemplate(kind="input", size_bytes=["prod", "n", 256]),
        BufferTemplate(kind="arena", size_bytes=["prod", "n", 256], offset=0),
        BufferTemplate(kind="output", size_bytes=["prod", "n", 256]),
    ],
    launches=[
        KernelTemplate(kernel=0, grid=(["ceil_div", "n", 4], 1, 1), buffers=[0, 1], sizes=["n"]),
        KernelTemplate(kernel=0, grid=("n", 1, 1), buffers=[1, 2], sizes=[["sum", "n", 1]]),
    ],
    output_shapes=[["n", 64]],
    arena_bytes=64 * 256,
)
ANY = Payload(symbols=[SymbolRecord(name="n", input=0, axis=0, low=0, high=64)], template=TEMPLATE)


def _store_any(payload: Payload) -> StoredPartition:
    spec = TensorSpec.of("float32", (None, 64))
    return replace(_store(write_payload(payload)), input_specs=[spec], output_specs=[spec])


def _resolve(payload: Payload, size: int) -> LaunchList:
    stored = _store_any(payload)
    read = read_payload(stored)
    return resolve(read, read_symbols(read.symbols, [(size, 64)], "step"), stored)


def test_a_template_is_worked_out_for_each_shape() -> None:
    found = _resolve(ANY, 9)
    assert [launch.grid for launch in found.launches] == [(3, 1, 1), (9, 1, 1)]
    assert [launch.sizes for launch in found.launches if isinstance(launch, KernelLaunch)] == [[9], [10]]
    assert (found.buffers[1].size_bytes, found.output_shapes) == (9 * 256, [[9, 64]])
    assert _resolve(ANY, 0).launches == []


def test_memory_without_bounds_is_planned_for_each_shape() -> None:
    template = msgspec.structs.replace(TEMPLATE, arena_bytes=None)
    found = _resolve(msgspec.structs.replace(ANY, template=template), 32)
    assert found.arena_bytes == found.workspace_bytes == 32 * 256


def _template(**fields: Any) -> Payload:
    return msgspec.structs.replace(ANY, template=msgspec.structs.replace(TEMPLATE, **fields))


def _first_launch(**fields: Any) -> Payload:
    return _template(launches=[msgspec.structs.replace(TEMPLATE.launches[0], **fields)])


def _middle(**fields: Any) -> Payload:
    buffers = list(TEMPLATE.buffers)
    buffers[1] = msgspec.structs.replace(buffers[1], **fields)
    return _template(buffers=buffers)


@pytest.mark.parametrize(
    "payload",
    [
        _template(arena_bytes=-1),
        _template(arena_bytes=256),
        _template(kernels=[msgspec.structs.replace(TEMPLATE.kernels[0], code="other")]),
        _middle(offset=-256),
        _middle(size_bytes=["prod", "n", 1 << 50]),
        _middle(size_bytes=["sub", 0, "n"]),
        _first_launch(kernel=1),
        _first_launch(buffers=[0, 9]),
        _first_launch(sizes=[]),
        _first_launch(sizes=["m"]),
        _first_launch(sizes=[["floor_div", "n", 0]]),
        _first_launch(sizes=[["power", "n", 2]]),
        _first_launch(sizes=[["prod", "n", 1 << 62]]),
        _first_launch(grid=(["sub", 0, "n"], 1, 1)),
        _first_launch(grid=(1, ["prod", "n", 1 << 20], 1)),
        msgspec.structs.replace(ANY, symbols=[]),
        msgspec.structs.replace(ANY, symbols=[SymbolRecord(name="n", input=3, axis=0, low=0, high=9)]),
        msgspec.structs.replace(ANY, template=None),
    ],
)
def test_a_template_that_cannot_be_is_refused(payload: Payload) -> None:
    with pytest.raises(PlanCorruptError):
        _resolve(payload, 8)


def test_a_shape_that_nothing_was_built_for_is_refused() -> None:
    with pytest.raises(DovetailError, match=r"dimension 'n' is not one .* expected 0 to 64, got 65"):
        _resolve(ANY, 65)
