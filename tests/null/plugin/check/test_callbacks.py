"""Whatever a callback raises or returns, the checker reports it, with the place of the raise, and goes on."""

from __future__ import annotations

import inspect
import threading
import time
from typing import Any

import numpy as np
import pytest

from dovetail.plugin.check import check_creator, check_plugin
from dovetail.plugin.check.host.calls import OWNERS
from dovetail.plugin.check.rules import threads as rules_threads
from tests.null.plugin.check.good import Scale, ScaleCreator, creator_of

CALLBACKS = [
    "get_capability_interface",
    "clone",
    "destroy",
    "get_output_data_types",
    "get_output_shapes",
    "configure_plugin",
    "supports_format_combination",
    "get_workspace_size",
    "get_valid_tactics",
    "get_aliased_input",
    "on_shape_change",
    "set_tactic",
    "enqueue",
    "attach_to_context",
    "get_fields_to_serialize",
]
ATTRIBUTES = [
    "plugin_name",
    "plugin_version",
    "plugin_namespace",
    "num_outputs",
    "format_combination_limit",
    "timing_cache_id",
    "metadata_string",
]


class Trouble(Exception):
    pass


def _raise(*arguments: Any) -> Any:
    raise Trouble("on purpose")


LINE = inspect.getsourcelines(_raise)[1] + 1


# Given inputs leave out the search for some, which is what takes time.
INPUTS: dict[str, Any] = {"shapes": ["2x4", "1x4"], "types": ["FLOAT"], "isolate": False}


def _plugin(name: str, member: Any) -> type[Any]:
    return type(f"Bad_{name}", (Scale,), {name: member})


def test_every_member_of_the_contract_is_covered() -> None:
    assert set(CALLBACKS) | set(ATTRIBUTES) == set(OWNERS) - {"create_plugin", "name", "field_names"}


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_callback_that_raises_is_reported_with_its_place(name: str) -> None:
    report = check_creator(
        creator_of(_plugin(name, lambda self, *arguments: _raise())), fields={"alpha": 0.5}, **INPUTS
    )
    assert report.failed_ids == {OWNERS[name]}, report.render()
    message = report.outcome(OWNERS[name]).message
    assert f"{name} raised Trouble: on purpose" in message
    assert f"test_callbacks.py:{LINE})" in message


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_that_raises_is_reported_with_its_place(name: str) -> None:
    member = property(_raise, lambda self, value: None)
    report = check_creator(creator_of(_plugin(name, member)), fields={"alpha": 0.5}, **INPUTS)
    assert report.failed_ids == {OWNERS[name]}, report.render()
    assert f"test_callbacks.py:{LINE})" in report.outcome(OWNERS[name]).message


def test_a_creator_that_raises() -> None:
    class Bad(ScaleCreator):
        create_plugin = _raise

    report = check_creator(Bad())
    assert report.failed_ids == {"R01"}
    assert f"create_plugin raised Trouble: on purpose ({_here(report)}" in report.outcome("R01").message


def _here(report: Any) -> str:
    place: str = report.outcome("R01").message.rpartition("(")[2]
    assert place.endswith(f"test_callbacks.py:{LINE})")
    return place


def test_creator_attributes_that_raise() -> None:
    class Bad(ScaleCreator):
        name = property(_raise, lambda self, value: None)  # type: ignore[assignment]
        field_names = property(_raise, lambda self, value: None)  # type: ignore[assignment]

    assert check_creator(Bad()).failed_ids == {"R04", "R05"}


def test_leaving_the_interpreter_is_a_raise_too() -> None:
    def leave(self: Any, *arguments: Any) -> None:
        raise SystemExit(3)

    assert check_creator(creator_of(_plugin("enqueue", leave))).failed_ids == {"R40"}


def test_contexts_that_wait_for_each_other_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_threads, "_PATIENCE_S", 0.5)
    busy, freed = threading.Lock(), threading.Event()

    class Blocks(Scale):
        def enqueue(self, *arguments: Any) -> Any:
            if not busy.acquire(blocking=False):
                freed.wait()
                return
            time.sleep(0.01)
            super().enqueue(*arguments)
            busy.release()

    report = check_creator(creator_of(Blocks), **INPUTS)
    freed.set()
    assert report.failed_ids == {"R55"}, report.render()
    assert "enqueue did not return within 0.5 s" in report.outcome("R55").message


def test_a_raise_that_only_threads_see() -> None:
    busy = threading.Lock()

    class Raises(Scale):
        def enqueue(self, *arguments: Any) -> Any:
            if not busy.acquire(blocking=False):
                raise Trouble("busy")
            try:
                time.sleep(0.01)
                super().enqueue(*arguments)
            finally:
                busy.release()

    report = check_creator(creator_of(Raises), **INPUTS)
    assert report.failed_ids == {"R55"}, report.render()
    assert "while another runs: enqueue raised Trouble: busy" in report.outcome("R55").message


def test_a_wrong_signature_names_the_definition() -> None:
    def set_tactic(self: Any) -> None:
        pass

    message = check_creator(creator_of(_plugin("set_tactic", set_tactic))).outcome("R40").message
    assert "takes 1 positional argument" in message
    assert f"test_callbacks.py:{set_tactic.__code__.co_firstlineno})" in message


def test_an_attribute_that_was_never_set() -> None:
    class Unnamed(Scale):
        def __init__(self) -> None:
            super().__init__()
            del self.plugin_name

    report = check_plugin(Unnamed)
    assert report.failed_ids == {"R03"}
    assert "plugin_name not initialized" in report.outcome("R03").message


ODD_VALUES = [None, 5, -1, 2.5, "x", [None], {}, object(), np.zeros(3), b"z"]


@pytest.mark.parametrize("name", ["clone", "get_output_data_types", "get_output_shapes", "get_valid_tactics"])
def test_odd_results_are_judged_by_the_rule_about_them(name: str) -> None:
    owner = {"clone": "R24", "get_output_data_types": "R07", "get_output_shapes": "R08", "get_valid_tactics": "R20"}
    for value in ODD_VALUES:
        report = check_creator(creator_of(_plugin(name, lambda self, *arguments, value=value: value)), **INPUTS)
        assert report.failed_ids == {owner[name]}, (value, report.render())


@pytest.mark.parametrize("name", ["num_outputs", "format_combination_limit", "timing_cache_id"])
def test_odd_attributes_are_judged_by_the_rule_about_them(name: str) -> None:
    for value in (-1, 2.5, [None], {}, np.zeros(3), b"z"):
        member = property(lambda self, value=value: value, lambda self, value: None)
        report = check_creator(creator_of(_plugin(name, member)), **INPUTS)
        assert report.failed_ids == {OWNERS[name]}, (value, report.render())


def test_something_that_is_no_creator_at_all() -> None:
    report = check_creator(3)
    assert report.failed_ids >= {"R01"}
    assert "'int' object has no attribute 'create_plugin'" in report.outcome("R01").message
