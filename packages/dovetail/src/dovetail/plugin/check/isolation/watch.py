"""Watching one life for what it does to the process, and which environment variables it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dovetail.plugin.check.host.calls import call
from dovetail.plugin.check.host.process_state import find_change, moved_generators, snapshot
from dovetail.plugin.check.lifecycle import Life

__all__ = ["find_process_change", "noting_variables"]


def find_process_change(life: Life) -> str | None:
    """Take an object through its life; the first callbacks that changed the process, and what they changed."""
    with moved_generators():
        before = snapshot()
        for methods in _live(life):
            changed = find_change(before)
            if changed:
                return f"{methods} changed {changed}"
    return None


def _live(life: Life) -> Iterator[str]:
    """Each step of a life, named by its callbacks once they have returned."""
    case = life.problem.main
    specimen = life.make()
    yield "create_plugin"
    life.declare(specimen)
    yield "get_output_data_types or get_output_shapes"
    prepared = life.prepare(source=specimen)
    yield "supports_format_combination, attach_to_context, configure_plugin, set_tactic or get_workspace_size"
    prepared.reshape(case)
    yield "on_shape_change"
    prepared.run(case)
    yield "enqueue"
    call(prepared.specimen.runtime, "get_fields_to_serialize")
    yield "get_fields_to_serialize"


@contextmanager
def noting_variables() -> Iterator[set[str]]:
    """The names of the environment variables that are read meanwhile, in a process that is there for this alone."""
    names: set[str] = set()

    class NotingEnvironment(type(os.environ)):  # type: ignore[misc]
        def __getitem__(self, name: str) -> str:
            names.add(name)
            value: str = super().__getitem__(name)
            return value

    plain = type(os.environ)
    os.environ.__class__ = NotingEnvironment
    try:
        yield names
    finally:
        os.environ.__class__ = plain
