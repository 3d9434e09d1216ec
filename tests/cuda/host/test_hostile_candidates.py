"""Candidates from strangers: whatever is changed in them, tuning says so and nothing is launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from dovetail.errors import DovetailError, PlanCorruptError, ProviderError, ResourceError
from dovetail.loggers import ILogger
from dovetail.provider.interfaces import (
    Chosen,
    Device,
    StoredCandidates,
    StoredPartition,
    TensorSpec,
    TuneContext,
    Tuner,
)
from dovetail_cuda.choose.carried import CandidatePayload, limit_candidates, pack_candidates, read_candidates
from dovetail_cuda.choose.records import (
    ConvolutionOffer,
    NodeNote,
    OpenBuffer,
    OpenLaunches,
    OperandRecord,
    PlaceRecord,
    QuestionRecord,
    ReferenceRecord,
    TaskRecord,
    TemporaryRecord,
    WayRecord,
)
from dovetail_cuda.choose.tuning import TuningTools, tune_partition
from dovetail_cuda.run.convolutions import Convolution
from dovetail_cuda.run.cudnn import ConvSearch
from dovetail_cuda.run.payload import (
    VERSION,
    WORKSPACE_BYTES,
    ConvLaunch,
    KernelLaunch,
    KernelRecord,
    LaunchList,
    Product,
    ProductLaunch,
)
from dovetail_cuda.run.variants import Payload, Variant, read_payload, write_payload
from tests.cuda.host.fake_cudnn import FakeConvolutions
from tests.cuda.host.fake_driver import FakeDriver
from tests.cuda.host.fake_provider import FakeProducts

SIZE = 16 * 64 * 4
PRODUCT = Product(m=16, n=64, k=64, dtype="float32", left_line=64, right_line=64, result_line=64, has_bias=True)
QUESTION = QuestionRecord(
    text="product",
    num_roles=4,
    operands=[
        OperandRecord(count=16 * 64, dtype="float32", kind="input"),
        OperandRecord(count=64 * 64, dtype="float32", kind="weight"),
        OperandRecord(count=64, dtype="float32", kind="weight"),
        OperandRecord(count=16 * 64, dtype="float32", kind="output"),
    ],
    ways=[
        WayRecord(
            name="cuBLASLt 0",
            launches=[ProductLaunch(product=PRODUCT, buffers=[0, 1, 2, 3], algorithm=b"", library_version=0)],
            scratch_bytes=WORKSPACE_BYTES,
            rank=0,
        ),
        WayRecord(
            name="tile",
            launches=[KernelLaunch(kernel=0, grid=(4, 1, 1), buffers=[0, 1, 2, 3, 4])],
            temporaries=[TemporaryRecord(size_bytes=1024)],
        ),
    ],
    reference=ReferenceRecord(product=PRODUCT, roles=[0, 1, 2, 3]),
)
OPEN = OpenLaunches(
    kernels=[KernelRecord(code="tile", name="product", num_warps=4, num_parameters=5, num_addresses=5)],
    buffers=[
        OpenBuffer(kind="input", size_bytes=SIZE),
        OpenBuffer(kind="weight", size_bytes=64 * 64 * 4, name="w"),
        OpenBuffer(kind="weight", size_bytes=64 * 4, name="b"),
        OpenBuffer(kind="output", size_bytes=SIZE),
    ],
    questions=[QUESTION],
    tasks=[
        TaskRecord(
            question=0,
            places=[PlaceRecord(buffer=n) for n in range(4)],
            note=NodeNote(name="a", op="Gemm", layers=["a"]),
        )
    ],
    output_shapes=[[16, 64]],
)
SEARCH = ConvSearch(count=2, is_thorough=True, workspace_bytes=1 << 20)
GOOD = CandidatePayload(version="cuda candidates 2", capability=90, variants=[OPEN])


class _FirstTuner(Tuner):
    """Chooses by the order, and runs nothing."""

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def stream(self) -> Any:
        return None

    def choose(self, question: str, candidates: Any, *, reference: Any = None) -> Chosen:
        assert reference() is not None  # by NumPy, over operands that were checked
        return Chosen(name=candidates[self.number].name, time_us=1.0)


class _PaperTrial:
    def close(self) -> None:
        """Nothing was placed."""


def _store(payload: CandidatePayload | bytes) -> StoredPartition:
    spec = TensorSpec.of("float32", (16, 64))
    default = LaunchList(
        kernels=[], buffers=[], launches=[], output_shapes=[[16, 64]], arena_bytes=0, workspace_bytes=0
    )
    candidates = payload if isinstance(payload, bytes) else msgspec.msgpack.encode(payload)
    return StoredPartition(
        name="step",
        payload=memoryview(write_payload(Payload(variants=[Variant(launches=default)]))),
        version=VERSION,
        inputs=["x"],
        outputs=["y"],
        weights={"w": np.zeros((64, 64), np.float32), "b": np.zeros(64, np.float32)},
        places={},
        input_specs=[spec],
        output_specs=[spec],
        candidates=StoredCandidates(payload=memoryview(candidates), code={"tile": memoryview(b"cubin")}),
    )


def _tune(payload: CandidatePayload | bytes, *, chosen: int = 0, memory_bytes: int | None = None) -> Any:
    stored, driver = _store(payload), FakeDriver()
    device = Device(name="paper", kind="gpu", fingerprint="paper", memory_bytes=memory_bytes)
    tools = TuningTools(
        capability=90,
        open_products=lambda: FakeProducts(driver),
        find_conv_plans=lambda conv: FakeConvolutions(driver).build_plans(conv, SEARCH),
        make_trial=lambda buffers, is_cold: _PaperTrial(),  # type: ignore[arg-type, return-value]
    )
    context = TuneContext(device=device, tuner=_FirstTuner(chosen), logger=_Silent())
    tuned = tune_partition(stored, context, tools)
    code = {name: memoryview(b"cubin") for name in (*tuned.code, *tuned.added)}
    return read_payload(replace(stored, payload=memoryview(tuned.payload), code=code)).variants[0].launches, tuned


def test_a_library_adds_the_code_that_it_made() -> None:
    launches, tuned = _tune(_offer(), chosen=2)
    (launch,) = launches.launches
    assert isinstance(launch, ConvLaunch)
    assert (list(tuned.code), list(tuned.added)) == ([], [launch.code])


def test_what_is_chosen_becomes_launches_with_memory() -> None:
    launches, tuned = _tune(GOOD, chosen=0)
    assert [type(launch) for launch in launches.launches] == [ProductLaunch]
    assert (tuned.workspace_bytes, list(tuned.code)) == (WORKSPACE_BYTES, [])
    launches, tuned = _tune(GOOD, chosen=1)
    assert launches.launches == [KernelLaunch(kernel=0, grid=(4, 1, 1), buffers=[0, 1, 2, 3, 4], layers=["a"])]
    assert (tuned.workspace_bytes, list(tuned.code)) == (1024, ["tile"])
    assert [(node.tactic, node.time_us) for node in tuned.report.nodes] == [("tile", 1.0)]


def _change(**fields: Any) -> CandidatePayload:
    return msgspec.structs.replace(GOOD, variants=[msgspec.structs.replace(OPEN, **fields)])


def _question(**fields: Any) -> CandidatePayload:
    return _change(questions=[msgspec.structs.replace(QUESTION, **fields)])


def _way(at: int, **fields: Any) -> CandidatePayload:
    ways = list(QUESTION.ways)
    ways[at] = msgspec.structs.replace(ways[at], **fields)
    return _question(ways=ways)


def _launch(at: int, **fields: Any) -> CandidatePayload:
    return _way(at, launches=[msgspec.structs.replace(QUESTION.ways[at].launches[0], **fields)])


def _operand(at: int, **fields: Any) -> CandidatePayload:
    operands = list(QUESTION.operands)
    operands[at] = msgspec.structs.replace(operands[at], **fields)
    return _question(operands=operands)


def _buffer(at: int, **fields: Any) -> CandidatePayload:
    buffers = list(OPEN.buffers)
    buffers[at] = msgspec.structs.replace(buffers[at], **fields)
    return _change(buffers=buffers)


def _task(**fields: Any) -> CandidatePayload:
    return _change(tasks=[msgspec.structs.replace(OPEN.tasks[0], **fields)])


def _product(**fields: Any) -> CandidatePayload:
    return _launch(0, product=msgspec.structs.replace(PRODUCT, **fields))


def _right(**fields: Any) -> CandidatePayload:
    product = msgspec.structs.replace(PRODUCT, **fields)
    return _question(reference=ReferenceRecord(product=product, roles=[0, 1, 2, 3]))


CONVOLUTION = Convolution(
    dtype="float32",
    image=(1, 4, 4, 4),
    image_strides=(64, 1, 16, 4),
    filters=4,
    kernel=(1, 1),
    strides=(1, 1),
    dilations=(1, 1),
    before=(0, 0),
    after=(0, 0),
    outputs=(4, 4),
    result_line=4,
)


def _offer(**fields: Any) -> CandidatePayload:
    offer = ConvolutionOffer(convolution=CONVOLUTION, roles=[0, 1, 3])
    return _question(convolution=msgspec.structs.replace(offer, **fields))


ATTACKS = {
    "another version": msgspec.structs.replace(GOOD, version="cuda candidates 0"),
    "other shapes": msgspec.structs.replace(GOOD, variants=[]),
    "kernel without code": _change(kernels=[msgspec.structs.replace(OPEN.kernels[0], code="other")]),
    "kernel that is not there": _launch(1, kernel=1),
    "kernel before the first": _launch(1, kernel=-1),
    "grid of nothing": _launch(1, grid=(0, 1, 1)),
    "other parameters": _launch(1, buffers=[0]),
    "role that is not there": _launch(1, buffers=[0, 1, 2, 3, 5]),
    "role before the first": _launch(1, buffers=[0, 1, 2, 3, -1]),
    "offset behind a buffer": _launch(1, offsets=[SIZE + 16, 0, 0, 0, 0]),
    "offset before a buffer": _launch(1, offsets=[-16, 0, 0, 0, 0]),
    "offsets too few": _launch(1, offsets=[0]),
    "two ways of one name": _way(1, name="cuBLASLt 0"),
    "way without a name": _way(1, name=""),
    "name without end": _way(1, name="x" * 10000),
    "no ways": _question(ways=[]),
    "tolerance without end": _way(1, tolerance=float("inf")),
    "temporary without end": _way(1, temporaries=[TemporaryRecord(size_bytes=1 << 60)]),
    "temporary of a negative size": _way(1, temporaries=[TemporaryRecord(size_bytes=-1)]),
    "scratch without end": _way(1, scratch_bytes=1 << 60),
    "library without scratch": _way(0, scratch_bytes=0),
    "rank without end": _way(0, rank=1 << 40),
    "rank before the first": _way(0, rank=-1),
    "algorithm that nobody asked for": _way(0, rank=None),
    "product beyond its buffers": _product(m=17),
    "product with lines that overlap": _product(right_line=63),
    "product without a type": _product(dtype="int8"),
    "reference beyond its operands": _right(m=17),
    "reference with a stride": _right(batch=2, left_stride=1 << 20, result_stride=1024),
    "reference of another type": _right(dtype="float64"),
    "reference without its residual": _right(has_residual=True),
    "reference with another role": _question(reference=ReferenceRecord(product=PRODUCT, roles=[0, 1, 2, 9])),
    "reference that reads the result": _question(reference=ReferenceRecord(product=PRODUCT, roles=[0, 1, 3, 2])),
    "convolution of other operands": _offer(roles=[0, 1]),
    "convolution of a role that is not there": _offer(roles=[0, 1, 9]),
    "convolution of sizes that do not fit": _offer(convolution=msgspec.structs.replace(CONVOLUTION, outputs=(9, 9))),
    "convolution of a type that is not there": _offer(convolution=msgspec.structs.replace(CONVOLUTION, dtype="int8")),
    "convolution beyond its buffers": _offer(convolution=msgspec.structs.replace(CONVOLUTION, result_line=4096)),
    "convolution behind its buffer": _offer(image_offset=1 << 20),
    "convolution before its buffer": _offer(image_offset=-16),
    "convolution with a tolerance without end": _offer(tolerance=float("nan")),
    "operand larger than its buffer": _operand(0, count=16 * 64 + 1),
    "operand of a negative size": _operand(0, count=-1),
    "operand of no type": _operand(0, dtype="object"),
    "operand of no kind": _operand(0, kind="host"),
    "operands too few": _question(operands=QUESTION.operands[:2]),
    "input of another size": _buffer(0, size_bytes=SIZE * 2),
    "input that is not there": _buffer(0, number=3),
    "weight that is not there": _buffer(1, name="v"),
    "weight of another size": _buffer(1, size_bytes=64 * 64 * 8),
    "buffer without end": _buffer(0, kind="temporary", size_bytes=1 << 60),
    "kind that is not there": _buffer(0, kind="host"),
    "kind of a run": _buffer(0, kind="arena"),
    "question that is not there": _task(question=1),
    "question before the first": _task(question=-1),
    "places too few": _task(places=OPEN.tasks[0].places[:2]),
    "place that is not there": _task(places=[PlaceRecord(buffer=n + 1) for n in range(4)]),
    "place behind its buffer": _task(places=[PlaceRecord(buffer=n, offset=1 << 20) for n in range(4)]),
    "place before its buffer": _task(places=[PlaceRecord(buffer=n, offset=-16) for n in range(4)]),
    "other outputs": _change(output_shapes=[]),
}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(PlanCorruptError):
        _tune(ATTACKS[name], chosen=1 if "place" in name else 0)


def test_what_is_cut_short_or_changed_at_random_is_refused_or_read() -> None:
    whole, rng = msgspec.msgpack.encode(GOOD), np.random.default_rng(3)
    for end in range(0, len(whole), 7):
        with pytest.raises(PlanCorruptError):
            _tune(whole[:end])
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        try:
            _tune(bytes(changed))
        except DovetailError as error:
            assert isinstance(error, PlanCorruptError | ProviderError)  # noqa: PT017 - some changes do no harm


def test_candidates_for_another_device_are_refused_in_words() -> None:
    with pytest.raises(
        ProviderError, match=r"compiled for another device; expected sm_90, got sm_80\n.*--target sm_90"
    ):
        _tune(msgspec.structs.replace(GOOD, capability=80))


def test_a_library_that_has_fewer_algorithms_leaves_ways_out() -> None:
    launches, _ = _tune(_way(0, rank=3), chosen=0)
    assert [type(launch) for launch in launches.launches] == [KernelLaunch]


def test_operands_that_no_memory_holds_are_refused() -> None:
    with pytest.raises(ResourceError, match="no memory to time a way"):
        _tune(GOOD, memory_bytes=1000)


def test_a_partition_without_candidates_is_refused() -> None:
    with pytest.raises(PlanCorruptError, match="there are none"):
        read_candidates(replace(_store(GOOD), candidates=None), 1)


def test_the_first_candidates_of_every_question_come_first() -> None:
    code = {"a": bytes(10), "b": bytes(10), "c": bytes(10)}
    kernels = [KernelRecord(code=name, name="f", num_warps=1, num_parameters=1, num_addresses=1) for name in code]
    ways = [WayRecord(name=f"{n}", launches=[KernelLaunch(kernel=n, grid=(1, 1, 1), buffers=[0])]) for n in range(3)]
    question = QuestionRecord(text="q", num_roles=1, ways=ways)
    open_launches = OpenLaunches(
        kernels=kernels, buffers=[], questions=[question, question], tasks=[], output_shapes=[]
    )
    payload = CandidatePayload(capability=90, variants=[open_launches])
    size = len(msgspec.msgpack.encode(payload)) + 20
    kept = limit_candidates(payload, [[2, 0]], code, size + 10)
    assert [[way.name for way in each.ways] for each in kept.variants[0].questions] == [
        ["0", "1", "2"],
        ["0", "1", "2"],
    ]
    kept = limit_candidates(payload, [[2, 2]], code, size + 10)
    assert [[way.name for way in each.ways] for each in kept.variants[0].questions] == [["0", "2"], ["0", "2"]]
    carried = pack_candidates(kept, code, {"c"})
    assert carried is not None
    assert sorted(carried.code) == ["a"]
    assert pack_candidates(limit_candidates(payload, [[2, 2]], code, 0), code, ()) is None


class _Silent(ILogger):
    def log(self, severity: Any, msg: str) -> None:
        """Nothing."""
