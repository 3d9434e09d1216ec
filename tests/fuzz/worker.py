"""One process that runs cases until it is ended: ``python -m tests.fuzz.worker TARGET SEED FIRST``.

It says on its standard output which case it begins and what became of it, one JSON line each, so that whoever started
it knows which case ended it. Its memory is limited to two gigabytes more than it has when it is ready.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, Final

from tests.fuzz.targets import TARGETS, FuzzTarget

__all__ = ["make_case"]

_BUDGET_BYTES: Final = 2 << 30


def make_case(target: FuzzTarget, seeds: list[bytes], seed: int, number: int) -> tuple[bytes, random.Random]:
    """The case of a number, and what further choices follow from; the same numbers give the same case."""
    rng = random.Random(f"{target.name}/{seed}/{number}")
    return target.mutate(rng.choice(seeds), rng), rng


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _BUDGET_BYTES, resource.RLIM_INFINITY))


def _tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def main(name: str, seed: int, first: int) -> None:
    """Run cases without end."""
    warnings.simplefilter("ignore")
    target = TARGETS[name]
    seeds = target.seeds()
    target.run(seeds[0], random.Random(0))  # what is imported late is imported now
    _limit_memory()
    number = first
    while True:
        data, rng = make_case(target, seeds, seed, number)
        _tell(begin=number, data=base64.b64encode(data).decode())
        try:
            _tell(end=number, outcome=target.run(data, rng))
        except BaseException as error:  # noqa: BLE001 - what is looked for
            place = traceback.format_exc()[-3000:]
            _tell(end=number, foreign=f"{type(error).__name__}: {str(error)[:300]}", place=place)
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
