"""The service over a repository: requests, failures, versions, reload, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.errors import UsageError
from dovetail_serve.errors import (
    DeadlineError,
    DrainingError,
    NotReadyError,
    QueueFullError,
    RequestError,
    RunError,
    UnknownModelError,
)
from dovetail_serve.models import loading
from dovetail_serve.options import ServerOptions
from dovetail_serve.protocol.requests import InferRequest
from dovetail_serve.service import InferenceService
from tests.serve.small_models import GATE, make_model, make_plan, request, write_model

QUIET = ServerOptions(poll_s=0)
QUICK = ServerOptions(poll_s=0.02)
ONE = {"shape": (1, 1)}


@pytest.fixture(autouse=True)
def gate() -> Any:
    GATE.reset()
    yield GATE
    GATE.open()


def serve(root: Path, work: Callable[[InferenceService], Awaitable[None]], options: ServerOptions = QUIET) -> None:
    """Do something with a service whose models were all tried."""

    async def main() -> None:
        async with InferenceService(root, options) as service:
            await service.wait_loaded()
            await work(service)

    asyncio.run(asyncio.wait_for(main(), 100))


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def states(service: InferenceService) -> dict[str, str]:
    return {f"{entry.name}/{entry.version}": entry.state for entry in service.index()}


# requests


def test_a_request_gets_its_outputs(tmp_path: Path) -> None:
    write_model(tmp_path, "m")

    async def work(service: InferenceService) -> None:
        assert service.is_ready
        assert service.is_model_ready("m")
        assert service.is_model_ready("m", "1")
        assert not service.is_model_ready("m", "2")
        response = await service.infer(request("m", -2, id="abc"))
        assert (response.model, response.version, response.id) == ("m", "1", "abc")
        assert response.outputs["y"].tolist() == [[0, 0, 0, 0]]
        described = service.describe("m")
        assert described.versions == ("1",)
        assert [(each.name, each.datatype, each.shape) for each in described.inputs] == [("x", "FP32", (-1, 4))]
        assert service.configuration("m").max_queue_size == 1000

    serve(tmp_path, work)


def test_arrays_that_may_not_be_written_to_are_taken(tmp_path: Path) -> None:
    write_model(tmp_path, "m")

    async def work(service: InferenceService) -> None:
        body = b"\1" + np.arange(4, dtype=np.float32).tobytes()
        view = np.frombuffer(body, np.float32, offset=1).reshape(1, 4)
        response = await service.infer(InferRequest("m", {"x": view}))
        assert response.outputs["y"].tolist() == [[0, 1, 2, 3]]

    serve(tmp_path, work)


def test_texts_are_bytes_outside(tmp_path: Path) -> None:
    write_model(tmp_path, "upper", "upper")

    async def work(service: InferenceService) -> None:
        texts = np.array([b"ab", "é".encode()], dtype=object)
        response = await service.infer(InferRequest("upper", {"x": texts}))
        assert response.outputs["y"].tolist() == [b"AB", "É".encode()]

    serve(tmp_path, work)


def test_only_the_outputs_that_were_asked_for_are_given(tmp_path: Path) -> None:
    write_model(tmp_path, "adder", "adder")

    async def work(service: InferenceService) -> None:
        inputs = {"ids": np.ones((1, 2), np.float32), "mask": np.ones((1, 2), np.float32)}
        response = await service.infer(InferRequest("adder", inputs, outputs=["peak"]))
        assert list(response.outputs) == ["peak"]

    serve(tmp_path, work)


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    write_model(tmp_path, "model")

    async def work(service: InferenceService) -> None:
        for name in ("modle", "../model", "model/1", "", "a\0b", "\u202e"):
            with pytest.raises(UnknownModelError, match="is not found"):
                await service.infer(request(name))
        with pytest.raises(UnknownModelError, match="unknown model: 'model' version 7 is not found"):
            await service.infer(request("model", version="7"))
        with pytest.raises(UnknownModelError, match="did you mean 'model'"):
            service.describe("modle")
        for asked in (service.configuration, service.statistics):
            with pytest.raises(UnknownModelError):
                asked("nobody")
        with pytest.raises(UnknownModelError):
            await service.load("../model")

    serve(tmp_path, work)


def test_requests_of_one_shape_run_together(tmp_path: Path) -> None:
    config = 'max_batch_size = 8\nbatching = "always"\nmax_queue_delay_us = 20000'
    write_model(tmp_path, "m", config=config)

    async def work(service: InferenceService) -> None:
        shapes = [(1 + i % 3, 4) for i in range(30)]
        requests = [request("m", i, shape=shape) for i, shape in enumerate(shapes)]
        responses = await asyncio.gather(*map(service.infer, requests))
        for i, (response, shape) in enumerate(zip(responses, shapes, strict=True)):
            assert response.outputs["y"].shape == shape
            assert (response.outputs["y"] == i).all()
        (found,) = service.statistics("m")
        assert found.success.count == 30
        assert found.inference_count == sum(shape[0] for shape in shapes)
        assert found.execution_count < 15
        assert max(batch.batch_size for batch in found.batches) <= 8
        assert sum(batch.compute_infer.count for batch in found.batches) == found.execution_count
        assert found.batching.startswith("up to 8 samples together")

    serve(tmp_path, work)


def test_requests_of_different_sizes_are_padded(tmp_path: Path) -> None:
    config = """
max_batch_size = 8
batching = "always"
max_queue_delay_us = 20000
[[padding]]
inputs = { ids = 1, mask = 1 }
outputs = { total = 1 }
values = { ids = -1 }
multiple = 4
"""
    write_model(tmp_path, "adder", "adder", config=config)

    async def work(service: InferenceService) -> None:
        inputs = [{name: np.full((1, n), n, np.float32) for name in ("ids", "mask")} for n in range(1, 9)]
        responses = await asyncio.gather(*(service.infer(InferRequest("adder", each)) for each in inputs))
        for n, response in enumerate(responses, 1):
            assert response.outputs["total"].tolist() == [[2.0 * n] * n]
            assert response.outputs["peak"].tolist() == [[n]]
        assert service.statistics("adder")[0].execution_count < 8

    serve(tmp_path, work)


def test_a_bad_request_in_a_batch_fails_alone(tmp_path: Path) -> None:
    config = 'max_batch_size = 8\nbatching = "always"\nmax_queue_delay_us = 50000\n[[warmup]]\nshapes = {x = [1, 1]}'
    write_model(tmp_path, "gated", "gated", config=config)

    async def work(service: InferenceService) -> None:
        results = await asyncio.gather(
            *(service.infer(request("gated", value, **ONE)) for value in (1, -2, 3)), return_exceptions=True
        )
        assert [type(result).__name__ for result in results] == ["InferResponse", "RunError", "InferResponse"]
        assert "/etc" not in str(results[1])
        found = service.statistics("gated")[0]
        assert (found.success.count, found.fail.count) == (2, 1)

    serve(tmp_path, work)


def test_failures_do_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_model(tmp_path, "gated", "gated")

    async def work(service: InferenceService) -> None:
        requests = [service.infer(request("gated", -1, **ONE)) for _ in range(50)]
        assert {type(each) for each in await asyncio.gather(*requests, return_exceptions=True)} == {RunError}

    serve(tmp_path, work)
    assert 1 <= len([record for record in caplog.records if "version 1 failed" in record.message]) < 20


def test_a_failure_of_the_model_is_told_without_its_text(tmp_path: Path) -> None:
    write_model(tmp_path, "gated", "gated")

    async def work(service: InferenceService) -> None:
        with pytest.raises(RunError) as caught:
            await service.infer(request("gated", -1, **ONE))
        assert re.fullmatch(r"model 'gated' failed while it ran.*; the log of the server says why", str(caught.value))
        with pytest.raises(RequestError, match="wrong shape"):
            await service.infer(request("gated", shape=(1, 2)))
        assert service.statistics("gated")[0].fail.count == 2

    serve(tmp_path, work)


# waiting


GATED = "[[warmup]]\nshapes = {x = [1, 1]}\n"


async def hold(service: InferenceService, value: float = 0) -> asyncio.Task[Any]:
    """Shut the gate, and have a request stand in it."""
    GATE.shut()
    GATE.seen.clear()
    task = asyncio.ensure_future(service.infer(request("gated", value, **ONE)))
    await until(lambda: len(GATE.seen) == 1)
    return task


def write_gated(root: Path, config: str = "") -> None:
    write_model(root, "gated", "gated", config=f"{config}\n{GATED}")
    GATE.sleep_s = 0.003  # slower than a change of threads, so that requests are queued


def test_smaller_priorities_run_earlier(tmp_path: Path) -> None:
    write_gated(tmp_path)

    async def work(service: InferenceService) -> None:
        first = await hold(service)
        order = [(5, 1), (0, 2), (1, 3), (5, 4), (20, 5)]
        tasks = [asyncio.ensure_future(service.infer(request("gated", v, priority=p, **ONE))) for p, v in order]
        await until(lambda: service.statistics("gated")[0].queue_size == 5)
        GATE.open()
        await asyncio.gather(first, *tasks)
        assert GATE.seen == [[0.0], [3.0], [1.0], [4.0], [2.0], [5.0]]

    serve(tmp_path, work)


def test_a_full_queue_refuses_at_once(tmp_path: Path) -> None:
    write_gated(tmp_path, "max_queue_size = 2")

    async def work(service: InferenceService) -> None:
        tasks = [await hold(service)]
        tasks += [asyncio.ensure_future(service.infer(request("gated", **ONE))) for _ in range(2)]
        await until(lambda: service.statistics("gated")[0].queue_size == 2)
        start = time.perf_counter()
        with pytest.raises(QueueFullError):
            await service.infer(request("gated", **ONE))
        assert time.perf_counter() - start < 1
        assert service.statistics("gated")[0].rejected == 1
        GATE.open()
        await asyncio.gather(*tasks)

    serve(tmp_path, work)


def test_what_has_waited_too_long_never_runs(tmp_path: Path) -> None:
    write_gated(tmp_path, "default_timeout_us = 20000")

    async def work(service: InferenceService) -> None:
        first = await hold(service)
        with pytest.raises(DeadlineError, match="the request has waited"):
            await service.infer(request("gated", 7, **ONE))
        with pytest.raises(DeadlineError):
            await service.infer(request("gated", 8, timeout_us=5, **ONE))
        late = asyncio.ensure_future(service.infer(request("gated", 9, timeout_us=60_000_000, **ONE)))
        await asyncio.sleep(0.05)
        GATE.open()
        await asyncio.gather(first, late)
        assert GATE.seen == [[0.0], [9.0]]
        assert service.statistics("gated")[0].timed_out == 2

    serve(tmp_path, work)


def test_what_is_cancelled_after_it_came_too_late_is_counted_once(tmp_path: Path) -> None:
    write_gated(tmp_path)

    async def work(service: InferenceService) -> None:
        first = await hold(service)
        late = asyncio.ensure_future(service.infer(request("gated", 7, timeout_us=5, **ONE)))
        while not service.statistics("gated")[0].timed_out:
            await asyncio.sleep(0)
        late.cancel()
        GATE.open()
        results = await asyncio.gather(first, late, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["InferResponse", "CancelledError"]
        found = service.statistics("gated")[0]
        assert (found.timed_out, found.cancelled) == (1, 0)

    serve(tmp_path, work)


def test_what_is_cancelled_never_runs(tmp_path: Path) -> None:
    write_gated(tmp_path)

    async def work(service: InferenceService) -> None:
        first = await hold(service)
        tasks = [asyncio.ensure_future(service.infer(request("gated", i, **ONE))) for i in (1, 2, 3)]
        await until(lambda: service.statistics("gated")[0].queue_size == 3)
        tasks[1].cancel()
        await asyncio.sleep(0)
        first.cancel()
        await until(lambda: service.statistics("gated")[0].queue_size == 2)
        GATE.open()
        results = await asyncio.gather(first, *tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == [
            "CancelledError",
            "InferResponse",
            "CancelledError",
            "InferResponse",
        ]
        assert GATE.seen == [[0.0], [1.0], [3.0]]
        assert service.statistics("gated")[0].cancelled == 2

    serve(tmp_path, work)


def test_instances_run_side_by_side(tmp_path: Path) -> None:
    write_gated(tmp_path, "instances = 3")

    async def work(service: InferenceService) -> None:
        GATE.shut()
        GATE.seen.clear()
        tasks = [asyncio.ensure_future(service.infer(request("gated", i, **ONE))) for i in range(4)]
        await until(lambda: len(GATE.seen) == 3)
        assert service.statistics("gated")[0].queue_size == 1
        GATE.open()
        await asyncio.gather(*tasks)

    serve(tmp_path, work)


def test_a_fast_model_that_turns_slow_leaves_the_thread_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "is_fast_enough_for_loop", lambda *_: True)  # however busy this machine is
    write_model(tmp_path, "gated", "gated")

    async def work(service: InferenceService) -> None:
        assert "runs on the thread of the event loop" in service.statistics("gated")[0].batching
        GATE.sleep_s = 0.02
        for _ in range(3):
            await service.infer(request("gated", **ONE))
        assert "as runs have turned out to be slow" in service.statistics("gated")[0].batching
        ticks = 0
        task = asyncio.ensure_future(service.infer(request("gated", **ONE)))
        while not task.done():
            ticks += 1
            await asyncio.sleep(0)
        assert ticks > 5

    serve(tmp_path, work)


# the repository


def test_one_model_that_cannot_load_never_stops_the_others(tmp_path: Path) -> None:
    write_model(tmp_path, "good")
    write_model(tmp_path, "damaged").write_bytes(make_plan("relu")[:-7])
    write_model(tmp_path, "typo", config="instanses = 2")
    write_model(tmp_path, "fixed", "fixed", config="max_batch_size = 4")
    write_model(tmp_path, "doubler", "doubler", config="max_batch_size = 4")
    write_model(tmp_path, "gone", config="versions = [3]")
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").symlink_to("/etc")
    (tmp_path / "noise" / "1").mkdir(parents=True)
    (tmp_path / "noise" / "1" / "model.onnx").write_bytes(os.urandom(200))

    async def work(service: InferenceService) -> None:
        assert service.is_ready
        await service.infer(request("good"))
        reasons = {entry.name: entry.reason for entry in service.index()}
        assert "model.plan" in reasons["damaged"]
        assert "typo/config.toml, 'instanses': unknown key" in reasons["typo"]
        assert "fix: did you mean 'instances'?" in reasons["typo"]
        assert "'max_batch_size', input 'x': requests cannot be put together" in reasons["fixed"]
        assert "expected a first dimension that varies" in reasons["fixed"]
        assert "two requests do not run together: model 'doubler': output 'y' has no row" in reasons["doubler"]
        assert "there is no version 3" in reasons["gone"]
        assert "it has no version" in reasons["empty"]
        assert "links are not followed" in reasons["linked"]
        assert reasons["noise"]
        assert not any(str(tmp_path) in reason or "/tmp" in reason or "\n" in reason for reason in reasons.values())
        assert [entry.name for entry in service.index(ready_only=True)] == ["good"]
        with pytest.raises(NotReadyError, match=r"model 'typo' is not ready: .*unknown key"):
            await service.infer(request("typo"))
        with pytest.raises(NotReadyError, match="failed to load 'typo'"):
            await service.load("typo")

    serve(tmp_path, work)


def test_policies_say_which_versions_are_served(tmp_path: Path) -> None:
    for version, kind in ((1, "relu"), (2, "neg"), (10, "relu")):
        write_model(tmp_path, "m", kind, version=version, config="versions = {latest = 2}")

    async def work(service: InferenceService) -> None:
        assert states(service) == {"m/2": "READY", "m/10": "READY"}
        assert service.describe("m").versions == ("2", "10")
        assert (await service.infer(request("m"))).version == "10"
        assert (await service.infer(request("m", 3, version="2"))).outputs["y"].min() == -3
        with pytest.raises(UnknownModelError):
            await service.infer(request("m", version="1"))
        assert [found.version for found in service.statistics("m")] == ["2", "10"]

    serve(tmp_path, work)


def test_models_are_unloaded_and_loaded_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dovetail_serve")
    write_model(tmp_path, "m")

    async def work(service: InferenceService) -> None:
        await service.unload("m")
        assert "model 'm' version 1 is unloaded" in caplog.messages
        assert [(entry.state, entry.reason) for entry in service.index()] == [("UNAVAILABLE", "unloaded")]
        with pytest.raises(NotReadyError, match="model 'm' is not ready: unloaded"):
            await service.infer(request("m"))
        await asyncio.sleep(0.1)
        assert states(service) == {"m/1": "UNAVAILABLE"}
        await service.load("m")
        await service.infer(request("m"))

    serve(tmp_path, work, QUICK)


def test_new_changed_and_removed_models_are_noticed(tmp_path: Path) -> None:
    plan = write_model(tmp_path, "m")

    async def work(service: InferenceService) -> None:
        write_model(tmp_path, "later", "neg")
        await until(lambda: service.is_model_ready("later"))
        plan.write_bytes(make_plan("neg"))  # in place, under the engine that was loaded from it
        await until(lambda: service._slots["m"].find("").parts.engine.manifest.programs[0].steps[0].op == "Neg")
        (tmp_path / "m" / "config.toml").write_text("max_batch_size = 2")
        await until(lambda: service.configuration("m").max_batch_size == 2)
        write_model(tmp_path, "m", version=2)
        await until(lambda: states(service).get("m/2") == "READY" and "m/1" not in states(service))
        for path in sorted((tmp_path / "later").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / "later").rmdir()
        await until(lambda: "later/1" not in states(service))

    serve(tmp_path, work, QUICK)


def test_a_damaged_plan_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    plan = write_model(tmp_path, "m")

    async def work(service: InferenceService) -> None:
        plan.write_bytes(b"damaged")
        await until(lambda: service.index()[0].reason != "")
        (entry,) = service.index()
        assert entry.state == "READY"
        assert entry.reason.startswith("what is there now is refused, and the earlier one goes on: m/1/model.plan")
        assert (await service.infer(request("m", 2))).outputs["y"].max() == 2
        with pytest.raises(NotReadyError, match="failed to load 'm'"):
            await service.load("m")
        plan.write_bytes(make_plan("relu"))
        await until(lambda: service.index()[0].reason == "")
        assert (await service.infer(request("m", 2))).outputs["y"].max() == 2
        plan.write_bytes(b"damaged again")
        await until(lambda: service.index()[0].reason != "")
        plan.write_bytes(make_plan("neg"))
        await until(lambda: service.index()[0].reason == "")
        assert (await service.infer(request("m", 2))).outputs["y"].max() == -2

    serve(tmp_path, work, QUICK)


def test_no_request_fails_while_plans_are_replaced(tmp_path: Path) -> None:
    plan = write_model(tmp_path, "m", config="instances = 2\nmax_batch_size = 4")

    async def work(service: InferenceService) -> None:
        answered, is_over = 0, False

        async def ask(number: int) -> None:
            nonlocal answered
            while not is_over:
                response = await service.infer(request("m", number + 1))
                assert abs(response.outputs["y"]).tolist() == [[number + 1.0] * 4]
                answered += 1
                await asyncio.sleep(0)

        clients = [asyncio.ensure_future(ask(i)) for i in range(8)]
        for i in range(6):
            plan.write_bytes(make_plan("neg" if i % 2 else "relu"))
            await service.load("m")
        is_over = True
        await asyncio.gather(*clients)
        assert answered > 50
        scratch = service._scratch.path
        await service._control.finish()
        assert len(list(scratch.glob("*/model.plan"))) == 1  # the copies of all earlier plans are gone

    serve(tmp_path, work)


def test_draining_answers_what_was_accepted_and_takes_no_more(tmp_path: Path) -> None:
    write_gated(tmp_path)

    async def work(service: InferenceService) -> None:
        tasks = [await hold(service)]
        tasks += [asyncio.ensure_future(service.infer(request("gated", i, **ONE))) for i in range(1, 6)]
        await until(lambda: service.statistics("gated")[0].queue_size == 5)
        drained = asyncio.ensure_future(service.drain())
        await asyncio.sleep(0)
        assert not service.is_ready
        assert not service.is_model_ready("gated")
        with pytest.raises(DrainingError):
            await service.infer(request("gated", **ONE))
        assert not drained.done()
        GATE.open()
        await drained
        assert [(await task).outputs["y"].item() for task in tasks] == [0, 1, 2, 3, 4, 5]

    serve(tmp_path, work)


def test_unloading_waits_for_what_was_accepted(tmp_path: Path) -> None:
    write_gated(tmp_path)

    async def work(service: InferenceService) -> None:
        first = await hold(service)
        unloading = asyncio.ensure_future(service.unload("gated"))
        await until(lambda: states(service) == {"gated/1": "UNLOADING"})
        GATE.open()
        await unloading
        assert (await first).outputs["y"].item() == 0
        assert states(service) == {"gated/1": "UNAVAILABLE"}

    serve(tmp_path, work)


def test_nothing_is_left_when_a_service_is_closed(tmp_path: Path) -> None:
    write_model(tmp_path, "m")

    async def main() -> Path:
        service = InferenceService(tmp_path, QUIET)
        async with service:
            await service.wait_loaded()
            await service.infer(request("m"))
        return service._scratch.path

    import threading

    before = threading.active_count()
    assert not asyncio.run(main()).exists()
    gc.collect()
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:  # one that has ended is still to be seen
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_service_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the repository is no folder"):
        InferenceService(tmp_path / "nothing")


# building and loading


def test_an_onnx_model_is_built_with_the_default_providers(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="threads are an option of ONNX Runtime")
    for name, config in (("m", "threads = 1"), ("n", 'threads = 1\n[build]\nproviders = ["cpu"]')):
        folder = tmp_path / name / "1"
        folder.mkdir(parents=True)
        onnx.save(make_model("Neg"), folder / "model.onnx")
        (tmp_path / name / "config.toml").write_text(config)

    async def work(service: InferenceService) -> None:
        assert (await service.infer(request("m", 2))).outputs["y"].max() == -2
        assert (tmp_path / "m" / "1" / "model.onnx.plan").is_file()
        reason = service.index()[1].reason
        assert "n/config.toml, 'threads': no provider of the model has threads of its own" in reason
        await asyncio.sleep(0.2)
        assert service.index()[0].state == "READY"

    serve(tmp_path, work, QUICK)


def test_code_in_plans_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    library = tmp_path / "quiet_layer.py"
    library.write_text(LIBRARY)
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    registry.load_library(str(library))
    config = dt.BuilderConfig()
    config.plugins_to_serialize = [str(library)]
    engine = dt.compile(make_model("Quiet", domain="quiet"), providers=["cpu"], config=config, registry=registry)
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    engine.save(tmp_path / "models" / "m" / "1" / "model.plan")

    async def refused(service: InferenceService) -> None:
        (entry,) = service.index()
        assert "m/1: the plan carries the plugin library" in entry.reason
        assert "start the server with --allow-host-code" in entry.reason

    async def allowed(service: InferenceService) -> None:
        assert (await service.infer(request("m", 2))).outputs["y"].max() == 2

    serve(tmp_path / "models", refused)
    serve(tmp_path / "models", allowed, ServerOptions(poll_s=0, allow_host_code=True))


def test_a_plan_that_cannot_be_loaded_is_told_with_its_file_and_the_option(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = dt.PluginRegistry(parent=dt.get_plugin_registry())
    (tmp_path / "quiet_layer.py").write_text(LIBRARY)
    registry.load_library(str(tmp_path / "quiet_layer.py"))
    engine = dt.compile(make_model("Quiet", domain="quiet"), providers=["cpu"], registry=registry)
    for name in ("alone", "cut"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        engine.save(tmp_path / "models" / name / "1" / "model.plan")
    cut = tmp_path / "models" / "cut" / "1" / "model.plan"
    cut.write_bytes(cut.read_bytes()[:4])

    async def work(service: InferenceService) -> None:
        alone, damaged = service.index()
        assert "start the server with --plugins and the library that has it" in alone.reason
        assert damaged.reason.startswith("cut/1/model.plan: ")

    serve(tmp_path / "models", work)
    assert f"cut/1 cannot be loaded: {cut}: " in caplog.text


def test_a_folder_whose_name_no_model_may_have_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_model(tmp_path, "a b")

    async def work(service: InferenceService) -> None:
        write_model(tmp_path, "c+d")
        await until(lambda: "'c+d' is left out" in caplog.text)
        await asyncio.sleep(0.1)
        assert service.index() == []

    serve(tmp_path, work, QUICK)
    told = [line for line in caplog.messages if "is left out: the name of a model has letters" in line]
    assert len(told) == 2


LIBRARY = """
import dovetail as dt


@dt.layer("Quiet", shape=lambda x: x)
def quiet(x):
    return x
"""


# warming up


def test_a_warm_up_comes_from_shapes_and_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 1), 5, np.float32))
    write_model(tmp_path, "gated", "gated", config='[[warmup]]\ncount = 2\nfiles = {x = "x.npy"}')
    (tmp_path / "x.npy").rename(tmp_path / "gated" / "x.npy")
    write_model(tmp_path, "other", config="[[warmup]]\nshapes = {z = [1]}")
    write_model(tmp_path, "shapeless", config="[[warmup]]\ncount = 2")
    write_model(tmp_path, "lost", config='[[warmup]]\nfiles = {x = "sub/x.npy"}')

    async def work(service: InferenceService) -> None:
        assert [5.0, 5.0] in GATE.seen
        assert service.statistics("gated")[0].execution_count == 0
        reasons = {entry.name: entry.reason for entry in service.index()}
        assert "'warmup[0]': there is no input 'z'; expected x" in reasons["other"]
        assert "input 'x' has no shape" in reasons["shapeless"]
        assert "'sub/x.npy' cannot be read" in reasons["lost"]

    serve(tmp_path, work)


def test_a_service_ends_while_models_are_loading(tmp_path: Path) -> None:
    write_model(tmp_path, "gated", "gated")
    write_model(tmp_path, "m")
    GATE.shut()

    async def main() -> None:
        async with InferenceService(tmp_path, QUICK) as service:
            await until(lambda: len(GATE.seen) > 0)
            assert not service.is_ready
            assert states(service)["gated/1"] == "LOADING"
            with pytest.raises(NotReadyError, match="model 'gated' is not ready: loading"):
                await service.infer(request("gated", **ONE))

    asyncio.run(asyncio.wait_for(main(), 50))
