"""Checking the weights of partitions while their provider loads them: both read the file, and neither waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from dovetail.plan.manifest import Manifest
from dovetail.plan.walk import walk_steps

__all__ = ["verify_meanwhile", "weights_of_partitions"]

T = TypeVar("T")


def weights_of_partitions(manifest: Manifest) -> frozenset[str]:
    """The blobs that only providers read, where no code of plugins runs before they are checked."""
    steps = [step for program in manifest.programs for step in walk_steps(program)]
    if manifest.libraries or any(step.plugin is not None for step in steps):
        return frozenset()
    weights = {blob for step in steps if step.partition is not None for blob in step.partition.weights.values()}
    constants = {value.blob for program in manifest.programs for value in program.values}
    constants |= {value.blob for step in steps for body in step.bodies for value in body.values}
    return frozenset(weights - constants)


def verify_meanwhile(verify: Callable[[], None], make: Callable[[], T], undo: Callable[[T], None]) -> T:
    """Make something while a check runs; what the check raises comes first, and undoes what was made."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            verify()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(error)

    thread = threading.Thread(target=run, name="dovetail-verify")
    thread.start()
    try:
        made = make()
    except BaseException:
        thread.join()
        if failures:
            raise failures[0] from None
        raise
    thread.join()
    if failures:
        undo(made)
        raise failures[0]
    return made
