"""Caches that a step adds to in their own memory, on a device of paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from tests.cuda.caches import ALIASES, make_cached_layer, make_feed
from tests.cuda.host.fake_provider import fake_cuda


@pytest.fixture
def paper(tmp_path: Path) -> Iterator[Any]:
    with fake_cuda(str(tmp_path)) as found:
        yield found


def _compile(model: Any, batch: Any, aliases: dict[str, str]) -> Any:
    config = dovetail.BuilderConfig()
    config.providers, config.aliases = ["cuda", "cpu"], aliases
    sizes = {
        value.name: tuple((n, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])) for n in batch)
        for value in model.graph.input
    }
    return dovetail.compile(model, config=config, shapes=sizes)


def _run(engine: Any, feed: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(each) for name, each in engine(**feed).items()}


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("added", [1, 3])
@pytest.mark.parametrize("batch", [(2, 2, 2), (1, 2, 4)])
def test_only_what_is_new_is_written(paper: Any, mode: str, added: int, batch: Any) -> None:
    model = make_cached_layer(mode=mode, added=added)
    right = dovetail.compile(model, providers=["cpu"])
    engine = _compile(model, batch, ALIASES)
    (step,) = [step for step in engine.manifest.programs[0].steps if step.kind != "copy"]
    assert (step.kind, step.provider) == ("partition", "cuda")
    assert {t.name: t.alias for t in engine.manifest.outputs if t.alias} == ALIASES
    for n, start in ((2, 0), (batch[0], 4), (batch[2], 5)):
        feed = make_feed(n, start, added=added, seed=start)
        expected = _run(right, {name: each.copy() for name, each in feed.items()})
        found = _run(engine, feed)
        for name, each in expected.items():
            np.testing.assert_allclose(found[name], each, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("start", [9, 17, -1])
def test_positions_go_round_a_circular_cache(paper: Any, start: int) -> None:
    model, feed = make_cached_layer(mode="circular", added=3), make_feed(2, 0, added=3)
    feed["at"] = np.array([2, start])
    expected = _compile(model, (2, 2, 2), {})(**{name: each.copy() for name, each in feed.items()})
    found = _run(_compile(model, (2, 2, 2), ALIASES), feed)
    for output in ALIASES:
        np.testing.assert_allclose(found[output], expected[output], rtol=1e-5, atol=1e-5)


class _ReadOnly:
    """An array of another library that may not be written to."""

    def __init__(self, tensor: Any) -> None:
        interface = tensor.__cuda_array_interface__
        self.__cuda_array_interface__ = {**interface, "data": (interface["data"][0], True)}


def test_caches_on_the_device_are_updated_there_unless_they_are_read_only(paper: Any) -> None:
    engine, feed = _compile(make_cached_layer(), (2, 2, 2), ALIASES), make_feed(2, 3)
    placed = {name: engine.place_array(name, each) for name, each in feed.items()}
    found = _run(engine, placed)
    for output, source in ALIASES.items():
        np.testing.assert_array_equal(placed[source].numpy(), found[output])
    with pytest.raises(InputError, match=r"input 'past_keys'.*read-only"):
        engine(**{**placed, "past_keys": _ReadOnly(placed["past_keys"])})


def test_an_array_of_the_host_is_updated_too(paper: Any) -> None:
    engine, feed = _compile(make_cached_layer(), (2, 2, 2), ALIASES), make_feed(2, 3)
    found = engine(**feed)
    assert all(np.shares_memory(found[output], feed[source]) for output, source in ALIASES.items())


def test_without_the_wish_caches_are_made_anew(paper: Any) -> None:
    model, feed = make_cached_layer(), make_feed(2, 3)
    engine = _compile(model, (2, 2, 2), {})
    before = {name: feed[name].copy() for name in ALIASES.values()}
    expected = _run(dovetail.compile(model, providers=["cpu"]), feed)
    found = _run(engine, feed)
    for name, each in expected.items():
        np.testing.assert_allclose(found[name], each, rtol=1e-5, atol=1e-5)
    assert all(np.array_equal(feed[name], each) for name, each in before.items())
