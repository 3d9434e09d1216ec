"""Kernels are compiled for a device that is not here, in processes, and kept on disk."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from dovetail.errors import BuildError
from dovetail_cuda.compile.farm import CompileFarm
from dovetail_cuda.compile.products import ProductTile, write_product
from dovetail_cuda.compile.request import CompiledCode, KernelRequest
from dovetail_cuda.compile.source import write_kernel
from dovetail_cuda.compile.store import KernelStore
from dovetail_cuda.compile.vectors import VectorTile, write_vectors
from dovetail_cuda.emit.kernels import request_text
from dovetail_cuda.graph.planner import plan_partition
from dovetail_cuda.graph.regions import ElementRegion, ProductRegion
from dovetail_cuda.run.kernel_parameters import NUM_SCRATCH, KernelParameter, read_block_threads, read_cubin
from dovetail_cuda.tune.element_tiles import choose_tile
from tests.cuda.host.test_numbers import HEAD, MODELS

TEXT = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(p0):\n    {line}\n"


TILES = (
    ProductTile(m=64, n=64, k=64, num_warps=4, num_stages=4, prefetches=True),
    ProductTile(m=32, n=64, k=128, num_warps=4, num_stages=3, split=2),
)
VECTORS = VectorTile(m=4, n=16, k=256, num_warps=4, num_stages=1, prefetches=True)


def _list_requests(name: str) -> list[KernelRequest]:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + MODELS[name]))
    texts = []
    for region in plan_partition(model).regions:
        if isinstance(region, ElementRegion):
            texts.append(write_kernel(region, choose_tile(region, 132)))
        elif isinstance(region, ProductRegion):
            texts += [write_product(region, tile, allows_tf32=False) for tile in TILES]
            texts.append(write_vectors(region, VECTORS))
    return [request_text(text, 90) for text in texts]


def _request(line: str) -> KernelRequest:
    return KernelRequest(function="kernel", text=TEXT.format(line=line), signature={"p0": "*fp32"}, capability=90)


@pytest.mark.timeout(300)
def test_every_family_compiles_for_sm_90(tmp_path: Path) -> None:
    requests = [request for name in MODELS for request in _list_requests(name)]
    farm = CompileFarm()
    try:
        with ThreadPoolExecutor(2) as workers:
            compiled = KernelStore(tmp_path, farm.compile).get_all(requests, workers)
    finally:
        farm.close()
    assert all(code.code.startswith(b"\x7fELF") and not code.scratch_bytes for code in compiled)
    for code, request in zip(compiled, requests, strict=True):
        kinds = [kind for kind in request.signature.values() if kind != "constexpr"]
        described = read_cubin(code.code, code.name)
        assert described is not None
        wanted = [KernelParameter(4 if kind == "i32" else 8, is_address=kind.startswith("*")) for kind in kinds]
        assert read_block_threads(code.code, code.name) == 32 * code.num_warps
        assert described == [*wanted, *[KernelParameter(8, is_address=True)] * NUM_SCRATCH]
    products = [code for code, request in zip(compiled, requests, strict=True) if request.function == "product"]
    assert products
    assert all(code.shared_bytes > 0 for code in products)
    assert len(list(tmp_path.glob("*.kernel"))) == len({request.make_key() for request in requests})


def test_a_kernel_that_does_not_compile_is_told_in_words_and_the_process_goes_on() -> None:
    farm = CompileFarm()
    try:
        with pytest.raises(BuildError, match=r"(?s)a kernel does not compile: .*nothing_of_the_kind"):
            farm.compile(_request("tl.store(p0, nothing_of_the_kind)"))
        assert farm.compile(_request("tl.store(p0, 1.0)")).name == "kernel"
    finally:
        farm.close()


def test_a_process_that_was_killed_is_replaced() -> None:
    farm = CompileFarm()
    try:
        assert farm.compile(_request("tl.store(p0, 1.0)")).name == "kernel"
        (process,) = farm._idle
        process.kill()
        process.wait()
        assert farm.compile(_request("tl.store(p0, 2.0)")).name == "kernel"
        assert process not in farm._all
    finally:
        farm.close()


def test_a_kernel_that_starts_early_must_wait() -> None:
    farm = CompileFarm()
    text = TEXT.replace("kernel(p0)", "kernel(p0, EARLY: tl.constexpr)").format(line="tl.store(p0, 1.0)")
    request = KernelRequest(
        function="kernel",
        text=text,
        signature={"p0": "*fp32", "EARLY": "constexpr"},
        constants={"EARLY": True},
        capability=90,
    )
    try:
        with pytest.raises(BuildError, match="does not wait for the one in front of it"):
            farm.compile(request)
    finally:
        farm.close()


@pytest.mark.usefixtures("ctrl_c")
def test_kernels_that_nobody_waits_for_are_not_compiled(tmp_path: Path) -> None:
    """An interrupted build ends without compiling what was still to come."""
    started: list[str] = []
    go_on = threading.Event()

    def compile_slowly(request: KernelRequest) -> CompiledCode:
        started.append(request.text)
        if len(started) == 1:
            signal.raise_signal(signal.SIGINT)
        go_on.wait(10)
        return _Counting()(request)

    requests = [_request(f"tl.store(p0, {number}.0)") for number in range(20)]
    with ThreadPoolExecutor(2) as workers:
        with pytest.raises(KeyboardInterrupt):
            KernelStore(tmp_path, compile_slowly).get_all(requests, workers)
        go_on.set()
    assert len(started) <= 3


class _Counting:
    """Compiles nothing, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, request: KernelRequest) -> CompiledCode:
        self.count += 1
        return CompiledCode(code=b"code", name=request.function, num_warps=4, shared_bytes=0)


@pytest.mark.parametrize("damage", [b"", b"x" * 20, None])
def test_what_is_damaged_on_disk_is_compiled_again(tmp_path: Path, damage: bytes | None) -> None:
    counting, request = _Counting(), _request("pass")
    store = KernelStore(tmp_path, counting)
    assert store.get(request) == store.get(request)
    assert counting.count == 1
    (path,) = tmp_path.glob("*.kernel")
    path.write_bytes(path.read_bytes()[:-1] + b"?" if damage is None else damage)
    assert store.get(request).code == b"code"
    assert counting.count == 2


def test_the_key_is_of_everything_that_decides_the_code() -> None:
    request = _request("pass")
    changes: list[dict[str, Any]] = [
        {"text": request.text + "#"},
        {"signature": {"p0": "*fp16"}},
        {"num_warps": 8},
        {"num_stages": 2},
        {"capability": 80},
        {"constants": {"B": 1}},
    ]
    import msgspec

    keys = {msgspec.structs.replace(request, **change).make_key() for change in changes}
    assert len(keys | {request.make_key()}) == len(changes) + 1
