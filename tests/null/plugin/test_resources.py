"""Shared resources: one clone, counts, release at zero, errors, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.errors import PluginError
from dovetail.loggers import ErrorRecorder
from dovetail.plugin.interfaces import IPluginResource
from dovetail.plugin.registry import PluginRegistry
from dovetail.plugin.resources import ResourceTable


class Weights(IPluginResource):
    """Counts what happens to it and to its clones."""

    def __init__(self, log: list[str] | None = None, pause_s: float = 0.0) -> None:
        super().__init__()
        self.log: list[str] = log if log is not None else []
        self.pause_s = pause_s
        self.is_ready = False

    def clone(self) -> Weights:
        time.sleep(self.pause_s)
        self.log.append("clone")
        twin = Weights(self.log, self.pause_s)
        twin.is_ready = True
        return twin

    def release(self) -> Any:
        self.log.append("release")
        self.is_ready = False


class Failing(Weights):
    def clone(self) -> Weights:
        self.log.append("clone")
        raise RuntimeError("no memory")


def test_the_first_caller_is_cloned_and_later_ones_share() -> None:
    table, given, log = ResourceTable(), Weights(), []
    first = table.acquire("w", given)
    assert first is not given
    assert isinstance(first, Weights)
    assert first.is_ready
    assert table.acquire("w", Weights(log)) is first
    assert log == []
    assert given.log == ["clone"]
    assert table.count_of("w") == 2


def test_the_last_release_releases_and_forgets() -> None:
    table, given = ResourceTable(), Weights()
    first = table.acquire("w", given)
    table.acquire("w", given)
    table.release("w")
    assert given.log == ["clone"]
    table.release("w")
    assert given.log == ["clone", "release"]
    assert table.count_of("w") == 0
    assert table.acquire("w", given) is not first


def test_a_released_resource_can_be_cloned_again() -> None:
    table = ResourceTable()
    first = table.acquire("w", Weights())
    table.release("w")
    assert table.acquire("w", first).is_ready  # type: ignore[attr-defined]


def test_releasing_an_unknown_key_names_the_known_ones() -> None:
    table = ResourceTable()
    table.acquire("alpha", Weights())
    with pytest.raises(PluginError, match=r"under 'beta'.*'alpha'"):
        table.release("beta")
    table.release("alpha")
    with pytest.raises(PluginError, match=r"under 'alpha'.*none"):
        table.release("alpha")


def test_a_clone_that_raises_leaves_nothing_behind() -> None:
    table = ResourceTable()
    with pytest.raises(
        PluginError, match=r"clone\(\) of the resource under 'w' raised RuntimeError: no memory"
    ) as caught:
        table.acquire("w", Failing())
    assert "test_resources.py" in str(caught.value)
    assert table.count_of("w") == 0
    with pytest.raises(PluginError, match="no plugin resource"):
        table.release("w")
    assert table.acquire("w", Weights()).is_ready  # type: ignore[attr-defined]


class NoTwin(Weights):
    def clone(self) -> Weights:
        return None  # type: ignore[return-value]


class BadStatus(Weights):
    def clone(self) -> Weights:
        return BadStatus()

    def release(self) -> Any:
        return -1


class RaisesOnRelease(Weights):
    def clone(self) -> Weights:
        return RaisesOnRelease()

    def release(self) -> Any:
        raise OSError("busy")


@pytest.mark.parametrize(
    ("resource", "words"),
    [(NoTwin(), "returned no resource"), (object(), "cannot be cloned"), (Weights, "the class Weights")],
)
def test_what_is_no_resource_is_refused(resource: Any, words: str) -> None:
    table = ResourceTable()
    with pytest.raises(PluginError, match=words):
        table.acquire("w", resource)
    assert table.count_of("w") == 0


@pytest.mark.parametrize(("resource", "words"), [(BadStatus(), "got -1"), (RaisesOnRelease(), "raised OSError: busy")])
def test_a_release_that_fails_is_reported_and_the_key_goes(resource: Weights, words: str) -> None:
    table = ResourceTable()
    table.acquire("w", resource)
    with pytest.raises(PluginError, match=words):
        table.release("w")
    assert table.count_of("w") == 0
    assert table.acquire("w", Weights()).is_ready  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_is_a_string(key: Any) -> None:
    with pytest.raises(PluginError, match="non-empty string"):
        ResourceTable().acquire(key, Weights())


def test_a_clone_may_acquire_another_key_but_not_its_own() -> None:
    table = ResourceTable()

    class Nested(Weights):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

        def clone(self) -> Weights:
            table.acquire(self.key, Weights())
            return super().clone()

    table.acquire("outer", Nested("inner"))
    assert (table.count_of("outer"), table.count_of("inner")) == (1, 1)
    with pytest.raises(PluginError, match="acquires its own key"):
        table.acquire("self", Nested("self"))
    assert table.count_of("self") == 0


def in_threads(count: int, work: Callable[[], None]) -> None:
    barrier = threading.Barrier(count)
    errors: list[BaseException] = []

    def run() -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_that_acquire_together_clone_once() -> None:
    table, given, seen = ResourceTable(), Weights(pause_s=0.02), []
    in_threads(12, lambda: seen.append(table.acquire("w", given)))
    assert given.log == ["clone"]
    assert len({id(resource) for resource in seen}) == 1
    assert table.count_of("w") == 12
    in_threads(12, lambda: table.release("w"))
    assert given.log == ["clone", "release"]


def test_a_slow_clone_holds_up_no_other_key() -> None:
    table, entered, go = ResourceTable(), threading.Event(), threading.Event()

    class Slow(Weights):
        def clone(self) -> Weights:
            entered.set()
            assert go.wait(10)
            return super().clone()

    thread = threading.Thread(target=lambda: table.acquire("slow", Slow()))
    thread.start()
    assert entered.wait(10)
    table.acquire("quick", Weights())
    table.release("quick")
    go.set()
    thread.join()
    assert table.count_of("slow") == 1


def test_acquire_and_release_race_without_losing_counts() -> None:
    table, log = ResourceTable(), []

    def work() -> None:
        for _ in range(200):
            resource = table.acquire("w", Weights(log))
            assert resource.is_ready  # type: ignore[attr-defined]
            table.release("w")

    in_threads(6, work)
    assert table.count_of("w") == 0
    assert log.count("clone") == log.count("release")


def test_threads_whose_clones_fail_each_see_the_error() -> None:
    table, errors = ResourceTable(), []

    def work() -> None:
        try:
            table.acquire("w", Failing())
        except PluginError as error:
            errors.append(error)

    in_threads(8, work)
    assert len(errors) == 8
    assert table.count_of("w") == 0


def test_the_registry_shares_resources_and_records_errors() -> None:
    registry = PluginRegistry()
    registry.error_recorder = ErrorRecorder()
    first = registry.acquire_plugin_resource("w", Weights())
    assert registry.acquire_plugin_resource("w", Weights()) is first
    assert registry.release_plugin_resource("w")
    assert registry.release_plugin_resource("w")
    with pytest.raises(PluginError):
        registry.release_plugin_resource("w")
    assert registry.error_recorder.num_errors() == 1


def test_children_do_not_share_their_parents_resources() -> None:
    parent = PluginRegistry()
    child = PluginRegistry(parent=parent)
    assert parent.acquire_plugin_resource("w", Weights()) is not child.acquire_plugin_resource("w", Weights())
