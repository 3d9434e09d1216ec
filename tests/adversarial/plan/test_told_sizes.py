"""What a plan tells callers about a tensor is at least what a run writes, whatever its records say.

Each case loads a plan whose records were changed, and runs it over memory that is just as large as one of the engine's
own calls says, with a guard page behind it. A run that writes past it ends its process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import DovetailError, InputError, PlanCorruptError, UsageError
from dovetail.provider.loader import get_provider
from dovetail.testing import HostDevice
from tests.adversarial.plan.edits import Edit, both, put, value
from tests.support.attack_plans import DEVICE, attack_device, target
from tests.support.guarded_memory import SIZINGS, GuardedAllocator, run_by_address

ROOT = Path(__file__).parents[3]
LARGE = 4096
Y_OVER_X = both(
    put("programs/0/steps/6/inputs", [0, 3]), value(9, alias=0), put("outputs/0", lambda old: {**old, "alias": "x"})
)

CASES: dict[str, tuple[str, Edit]] = {
    "tensor smaller than its value": ("chain", put("outputs/0/dims/3", 1)),
    "value larger than its tensor": ("chain", value(10, dims=["_d0", 3, 4, LARGE])),
    "both larger than the step": ("chain", both(put("outputs/0/dims/3", LARGE), value(10, dims=["_d0", 3, 4, LARGE]))),
    "both smaller than the step": ("chain", both(put("outputs/0/dims/3", 1), value(10, dims=["_d0", 3, 4, 1]))),
    "tensor of a plugin": ("chain", put("outputs/1/dims", [1, "value_s_1"])),
    "known dimension beside a bound": ("sizes", put("outputs/0/dims", [1])),
    "bound below what is written": ("sizes", put("outputs/0/max_dims", [1])),
    "known shape instead of a bound": (
        "sizes",
        both(put("outputs/0/dims", [1]), put("outputs/0/max_dims", [1])),
    ),
    "dynamic result of a kernel": ("sizes", both(put("outputs/2/dims", [1]), put("outputs/2/max_dims", [1]))),
    "aliased tensor smaller": ("in_place", put("outputs/0/dims/1", 1)),
    "aliased output larger than its input": (
        "in_place",
        both(put("outputs/0/dims/1", LARGE), value(1, dims=["_d0", LARGE])),
    ),
    "aliased output smaller than its input": (
        "in_place",
        both(put("outputs/0/dims/1", 2), value(1, dims=["_d0", 2])),
    ),
    "aliased output of another rank": ("in_place", both(put("outputs/0/dims", [LARGE]), value(1, dims=[LARGE]))),
    "partition with another shape": ("whole", both(put("outputs/0/dims/1", 1), value(1, dims=["n", 1]))),
    "partition with a larger shape": ("whole", both(put("outputs/0/dims/1", LARGE), value(1, dims=["n", LARGE]))),
    "result of control flow": ("loop", put("outputs/0/dims", [1])),
    "four bits instead of eight": (
        "open",
        both(put("outputs/0/dtype", "int4"), put("programs/0/values/6/dtype", "int4")),
    ),
}


def run_case(name: str, sizing: str) -> str:
    """Load one changed plan and run it over memory of the size that it tells; what became of it."""
    plan_name, edit = CASES[name]
    plan = target(plan_name)
    runtime, _ = plan.runtime()
    with attack_device():
        try:
            engine = runtime.deserialize_cuda_engine(plan.changed(edit))
        except PlanCorruptError:
            return "refused"
        try:
            run_by_address(engine, engine.create_execution_context(), plan.arrays(), sizing)
        except DovetailError as error:
            return type(error).__name__
        return "ran"


@pytest.mark.skipif(sys.platform == "win32", reason="guard pages are made by mprotect")
def test_no_run_writes_past_what_the_caller_was_told() -> None:
    program = (
        "from tests.adversarial.plan.test_told_sizes import CASES, SIZINGS, run_case\n"
        "for name in CASES:\n"
        "    for sizing in SIZINGS:\n"
        "        print(name, '|', sizing, end=' | ', flush=True)\n"
        "        print(run_case(name, sizing), flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}\n{done.stderr[-2000:]}"
    outcomes = [line.rsplit("| ", 1)[1] for line in done.stdout.splitlines()]
    assert len(outcomes) == len(CASES) * len(SIZINGS)
    assert not {"PlanError", "ran"} & set(outcomes[: len(SIZINGS)])


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize(
    "name", ["chain", "open", "sizes", "in_place", "whole", "partitions", "device", "loop", "mixed"]
)
def test_the_plans_themselves_run_in_what_they_tell(name: str, sizing: str) -> None:
    plan = target(name)
    with attack_device():
        runtime, _ = plan.runtime()
        engine = runtime.deserialize_cuda_engine(plan.raw)
        context = engine.create_execution_context()
        results = context.run(engine.gather_inputs(plan.arrays(), {}))
        told = run_by_address(engine, engine.create_execution_context(), plan.arrays(), sizing)
    for array, raw in zip(results, told.values(), strict=True):
        np.testing.assert_array_equal(np.frombuffer(raw[: array.nbytes], array.dtype), array.reshape(-1))


def test_an_aliased_output_larger_than_its_input_is_refused_by_address() -> None:
    plan = target("in_place")
    runtime, _ = plan.runtime()
    edit = CASES["aliased output larger than its input"][1]
    engine = runtime.deserialize_cuda_engine(plan.changed(edit))
    context = engine.create_execution_context()
    with pytest.raises(InputError, match="shares memory with an input has another size"):
        run_by_address(engine, context, plan.arrays(), "get_max_output_size")


def test_an_output_of_a_device_may_have_the_memory_of_an_input() -> None:
    plan = target("device_io")
    with attack_device():
        runtime, _ = plan.runtime()
        engine = runtime.deserialize_cuda_engine(plan.changed(Y_OVER_X))
        assert np.shape(engine(*plan.arrays())) == (2, 3, 3)


@pytest.mark.parametrize("is_near", [False, True])
@pytest.mark.parametrize("dims", [["n", 3, LARGE], ["n", 3, 1], [LARGE]])
def test_an_aliased_output_of_a_device_is_as_large_as_its_input(dims: list[int | str], is_near: bool) -> None:
    plan = target("device_io")
    edit = both(Y_OVER_X, value(9, dims=dims), put("outputs/0/dims", dims))
    with attack_device():
        runtime, _ = plan.runtime()
        engine = runtime.deserialize_cuda_engine(plan.changed(edit))
        device, inputs = get_provider(DEVICE), plan.arrays()
        assert isinstance(device, HostDevice)
        with pytest.raises(InputError, match="output 'y': an output that shares memory with an input has another size"):
            engine(*map(device.to_device, inputs) if is_near else inputs)


def test_an_aliased_output_takes_no_allocator() -> None:
    plan = target("in_place")
    runtime, _ = plan.runtime()
    context = runtime.deserialize_cuda_engine(plan.raw).create_execution_context()
    with pytest.raises(UsageError, match="shares memory with input 'x'"):
        context.set_output_allocator("y", GuardedAllocator())
