"""Runs in fresh processes that find pointers to memory and objects which are gone.

A plugin that keeps such a pointer ends the process, or computes something else. Both are the answer.
"""

from __future__ import annotations

import ctypes
import faulthandler
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from dovetail.plugin.check.host.calls import CallbackRaised, call, read
from dovetail.plugin.check.lifecycle import Life, Prepared
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.native.call_memory import OVERWRITTEN, GuardedMemory, use_call_memory
from dovetail.rules import Broken

if TYPE_CHECKING:
    from dovetail.plugin.check.isolation.fresh_runs import FreshRun

__all__ = ["ORPHANS", "prepare_orphan", "run_guarded"]

ORPHANS: Final = ("clone", "attach_to_context")
"""The callbacks whose result outlives the object that it was made from."""
_MAX_REUSED_BYTES: Final = 4096
_BLOCK_STEP_BYTES: Final = 16
_NUM_BLOCKS: Final = 8
"""Blocks of each size that are allocated: one more than glibc keeps of a size for a thread."""


def run_guarded(life: Life, wanted: FreshRun, make: Callable[[], Specimen]) -> list[str]:
    """Call the callbacks of an object in order, and withdraw access to the arguments after each.

    Args:
        life: The plugin with its inputs.
        wanted: The run; ``guarded`` lists the arguments by their labels.
        make: Creates the object.

    Returns:
        The labels of all arguments. A callback that reads a guarded argument of an earlier one ends the process.
    """
    faulthandler.disable()  # the end of this process is an answer and no report
    labels: list[str] = []
    guarded = frozenset(wanted.guarded or ())
    with (
        use_call_memory(partial(GuardedMemory, guarded.__contains__, labels)),
        suppress(Broken, CallbackRaised),  # judged by the rule of the callback
    ):
        _exercise(life, wanted, make())
    return list(dict.fromkeys(labels))


def _exercise(life: Life, wanted: FreshRun, specimen: Specimen) -> None:
    """Call every callback that may use an argument of an earlier one."""
    sources = [specimen]
    if wanted.stored is None:
        life.declare(specimen)
        sources.append(life.clone(specimen))
    for source in sources:
        prepared = _prepare(life, wanted, source)
        for _ in range(2):
            prepared.reshape(wanted.case)
            prepared.run(wanted.case)
        prepared.run(wanted.case, variant=1)
        for each in (source, prepared.specimen):
            call(each.runtime, "get_fields_to_serialize")
            for name in () if each.build is None else ("timing_cache_id", "metadata_string"):
                read(each.build, name)
        for each in (prepared.specimen, source):
            each.is_destroyed = True
            call(each.plugin, "destroy")


def _prepare(life: Life, wanted: FreshRun, source: Specimen) -> Prepared:
    if wanted.stored is None:
        return life.prepare(source=source, formats=wanted.formats, tactic=wanted.tactic)
    life.tell(source.runtime, "set_tactic", wanted.tactic)
    return Prepared(life, life.attach(source), wanted.formats, wanted.tactic, wanted.workspace_bytes)


def prepare_orphan(life: Life, wanted: FreshRun) -> Prepared:
    """Prepare the result of ``clone`` or ``attach_to_context`` after the original was destroyed.

    Args:
        life: The plugin with its inputs.
        wanted: The run; ``orphaned`` names the callback.
    """
    faulthandler.disable()  # the end of this process is an answer and no report
    original = life.make_declared()
    if wanted.orphaned == "clone":
        copy = life.clone(original)
        _destroy(original, wanted)
        _read_identity(copy)
        call(copy.runtime, "get_fields_to_serialize")
        life.declare(copy)
        prepared = life.prepare(source=copy, formats=wanted.formats, tactic=wanted.tactic)
        _destroy(copy, wanted)
        return prepared
    attached = life.attach(original)
    _destroy(original, wanted)
    _read_identity(attached)
    life.configure(attached, wanted.formats)
    life.tell(attached.runtime, "set_tactic", wanted.tactic)
    workspace_bytes = life.ask_workspace_bytes(attached, wanted.formats)
    return Prepared(life, attached, wanted.formats, wanted.tactic, workspace_bytes)


def _read_identity(specimen: Specimen) -> None:
    """Read the names of the object now: those of a C++ plugin were read when it was created."""
    if hasattr(specimen.core, "read_identity"):
        call(specimen.core, "read_identity")


def _destroy(specimen: Specimen, wanted: FreshRun) -> None:
    if wanted.keeps_original:
        return
    specimen.is_destroyed = True
    call(specimen.plugin, "destroy")
    _occupy_freed_memory()


def _occupy_freed_memory() -> None:
    """Allocate the blocks that were freed last and overwrite them.

    Otherwise the next object may be allocated where the destroyed one was, and a stale pointer reads valid values.
    """
    allocate = ctypes.CDLL(None).malloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    for size_bytes in range(_BLOCK_STEP_BYTES, _MAX_REUSED_BYTES + 1, _BLOCK_STEP_BYTES):
        for _ in range(_NUM_BLOCKS):
            address = allocate(size_bytes - _BLOCK_STEP_BYTES // 2)  # blocks have 8 bytes more than a multiple of 16
            if address:
                ctypes.memmove(address, OVERWRITTEN * (size_bytes // len(OVERWRITTEN) - 2), size_bytes - 8)
