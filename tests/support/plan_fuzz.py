"""Random changes to the manifests of real plans: load each, run what loads, and watch the memory that plugins get.

Run as ``python -m tests.support.plan_fuzz SEED CASES SECONDS``, in a process of its own because a bad plan could, at
worst, end it. Prints one JSON object with counts; anything but a result or an error of Dovetail is an exception, with
the seed of the case in it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.formats import packed_shape
from dovetail.plugin.arrays import address_of
from tests.support.attack_plans import TARGETS, Json, Target, attack_device, target
from tests.support.guarded_memory import SIZINGS, run_by_address

__all__ = ["mutate_json", "run_case"]

_CASE_SECONDS = 5
_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    8,
    64,
    255,
    256,
    768,
    4096,
    2**31 - 1,
    2**31,
    2**46,
    2**47,
    2**63,
    -(2**31),
    10**30,
)
_WORDS = ("", "x", "planned", "dynamic", "output", "input", "constant", "float64", "int8", "CHW32", "HWC8", "\0", "_d0")
_ANYTHING: tuple[Any, ...] = (None, True, 1.5, [], {}, [[]], "text", -1)


class _TooLong(BaseException):
    """A case did not end in time; not an ``Exception``, so that no step can take it for an error of its own."""


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def _find(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutate_json(manifest: Json, rng: random.Random) -> None:
    """Change one place of a document by its structure."""
    paths = [path for path in _paths(manifest) if path[0] not in ("tuning", "build")]
    if not paths:
        return
    path = rng.choice(paths)
    owner, key = _find(manifest, path[:-1]), path[-1]
    _CHANGES[rng.randrange(len(_CHANGES))](manifest, owner, key, paths, rng)


def _delete(manifest: Json, owner: Any, key: Any, paths: list[tuple[Any, ...]], rng: random.Random) -> None:
    del owner[key]


def _replace(manifest: Json, owner: Any, key: Any, paths: list[tuple[Any, ...]], rng: random.Random) -> None:
    old = owner[key]
    if isinstance(old, bool):
        owner[key] = not old
    elif isinstance(old, int):
        owner[key] = rng.choice((*_NUMBERS, old + 1, old - 1, old * 2))
    elif isinstance(old, str):
        owner[key] = rng.choice((*_WORDS, old[:-1], old.upper()))
    elif isinstance(old, list):
        owner[key] = rng.choice((old[:-1], old * 2, old[::-1], rng.sample(old, len(old)), [*old, rng.choice(_NUMBERS)]))
    else:
        owner[key] = copy.deepcopy(rng.choice(_ANYTHING))


def _graft(manifest: Json, owner: Any, key: Any, paths: list[tuple[Any, ...]], rng: random.Random) -> None:
    """Put what stands elsewhere under the same name, or is of the same type, here."""
    old = owner[key]
    alike = [p for p in paths if p[-1] == key or type(_find(manifest, p)) is type(old)]
    owner[key] = copy.deepcopy(_find(manifest, rng.choice(alike)))


def _spoil(manifest: Json, owner: Any, key: Any, paths: list[tuple[Any, ...]], rng: random.Random) -> None:
    owner[key] = copy.deepcopy(rng.choice(_ANYTHING))


def _resize(manifest: Json, owner: Any, key: Any, paths: list[tuple[Any, ...]], rng: random.Random) -> None:
    """Give a tensor other dimensions or another type in one of the records that speak of it, or in several."""
    # Found before anything is changed: one may stand inside another.
    records = [_find(manifest, p[:-1]) for p in paths if p[-1] == "dtype"]
    places = [_find(manifest, p) for p in paths if p[-1] in ("dims", "max_dims")]
    places = [dims for dims in places if isinstance(dims, list)]
    for dims in rng.sample(places, min(len(places), rng.choice((1, 1, 2, 3)))):
        if dims:
            position = rng.randrange(len(dims))
            dims[position] = rng.choice((1, 2, 3, 8, 4096, None, "_d0", ["prod", copy.deepcopy(dims[position]), 8]))
    if records and rng.random() < 0.2:
        rng.choice(records)["dtype"] = rng.choice(("float64", "int8", "int4", "complex128"))


_CHANGES: list[Callable[..., None]] = [
    *(_delete, _spoil),
    *(_replace, _replace, _replace),
    *(_graft, _graft, _graft),
    *(_resize, _resize, _resize),
]


def _watch(context: Any) -> None:
    """Check before every plugin runs that each address is an array at least as large as its descriptor says."""
    for step in context._instance.all_plugin_steps():
        step.prepare_enqueue = _checked(context, step.prepare_enqueue)


def _checked(context: Any, prepare: Callable[..., Any]) -> Callable[..., Any]:
    def prepare_checked(in_descs: Any, out_descs: Any, **options: Any) -> Callable[..., Any]:
        enqueue = prepare(in_descs, out_descs, **options)
        check = partial(_check_addresses, context, in_descs, out_descs)

        def run(inputs: list[int], outputs: list[int], workspace: int) -> None:
            check(inputs, outputs)
            enqueue(inputs, outputs, workspace)

        return run

    return prepare_checked


def _check_addresses(context: Any, in_descs: Any, out_descs: Any, inputs: list[int], outputs: list[int]) -> None:
    held = {address_of(a): a for a in _arrays_of(context) if a.nbytes}
    for desc, address in zip((*in_descs, *out_descs), (*inputs, *outputs), strict=True):
        if address in held:
            _require_memory(held[address], desc)
    for address in outputs:
        if address in held and not held[address].flags.writeable:
            raise AssertionError("an output is in read-only memory")


def _arrays_of(context: Any) -> list[Any]:
    """Every array of the run that is under way, bodies not included."""
    values = context._instance.announced.frame.values
    return [value for value in values if isinstance(value, np.ndarray)]


def _require_memory(array: Any, desc: Any) -> None:
    needed = 0 if min(desc.dims, default=0) < 0 else math.prod(packed_shape(desc.dims, desc.format))
    if array.nbytes < needed * desc.type.numpy.itemsize:
        raise AssertionError(f"{desc} at an array of {array.dtype} {array.shape}")


def run_case(plan: Target, rng: random.Random) -> str:
    """Change a plan, load it and run it; what became of it."""
    manifest = copy.deepcopy(plan.manifest)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutate_json(manifest, rng)
    runtime, creators = plan.runtime()
    try:
        engine = runtime.deserialize_cuda_engine(plan.packed(json.dumps(manifest).encode()))
    except DovetailError as error:
        if any(creator.phases for creator in creators) and type(error).__name__ != "PluginError":
            raise AssertionError("a plan was refused after a plugin was made") from error
        return type(error).__name__
    with engine:
        return _run(engine, plan)


def _run(engine: Any, plan: Target) -> str:
    _run_by_address(engine, plan)
    outcome = "ran"
    try:
        context = engine.create_execution_context()
        _watch(context)
        for scale in (1, 2, 1):
            first, *others = plan.arrays()
            inputs = engine.gather_inputs((_repeat(first, scale), *others), {})
            for result in context.run(inputs):
                for array in result if isinstance(result, list) else [result]:
                    np.asarray(array).tobytes()
    except DovetailError as error:
        outcome = f"ran into {type(error).__name__}"
    return outcome


def _run_by_address(engine: Any, plan: Target) -> None:
    """Run over memory with guards, sized by each call that tells a size in turn."""
    for sizing in SIZINGS:
        for scale in (1, 2):
            first, *others = plan.arrays()
            with contextlib.suppress(DovetailError, MemoryError):
                context = engine.create_execution_context()
                run_by_address(engine, context, (_repeat(first, scale), *others), sizing)


def _repeat(value: Any, times: int) -> Any:
    """The same several times: a longer list, or a longer array."""
    if isinstance(value, list):
        return value * times
    return value if value.ndim == 0 else np.concatenate([value] * times)


def _stop(number: int, frame: Any) -> None:
    raise _TooLong(f"a case took over {_CASE_SECONDS} s")


def main(seed: int, cases: int, seconds: float) -> Counter[str]:
    """Run so many cases, or until the time is over; the same seed gives the same cases in the same order."""
    counts: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, _stop)
    plans = [target(name) for name in TARGETS]  # under a heap checker building them takes longer than the cases
    end, number = time.monotonic() + seconds, 0
    while number < cases and time.monotonic() < end:
        plan, rng = plans[number % len(plans)], random.Random(f"{seed}/{number}")
        signal.alarm(_CASE_SECONDS)
        try:
            counts[run_case(plan, rng)] += 1
        except BaseException as error:
            raise AssertionError(f"plan '{plan.name}', case '{seed}/{number}'") from error
        finally:
            signal.alarm(0)
        number += 1
    counts["cases"] = number
    return counts


if __name__ == "__main__":
    with attack_device():
        print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
