"""Caches that a step adds to in their own memory, on a GPU: token after token, replayed as one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail as dt
from tests.cuda.caches import ALIASES, LENGTH, make_cached_layer, make_feed

TOLERANCES = {"float": 1e-5, "float16": 5e-3}


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_token_after_token_the_cache_stays_where_it_is(cuda: Any, dtype: str) -> None:
    model, number = make_cached_layer(dtype), np.dtype("float32" if dtype == "float" else dtype)
    config = dt.BuilderConfig()
    config.providers, config.aliases = ["cuda", "cpu"], ALIASES
    shapes = {name: (each.shape,) * 3 for name, each in make_feed(1, 0, number).items()}
    engine = dt.compile(model, config=config, shapes=shapes)
    context, stream = engine.create_execution_context(), cuda.create_stream()
    feed = make_feed(1, 0, number)
    places = {name: _put(context, cuda, name, array) for name, array in feed.items()}
    y = _put(context, cuda, "y", np.zeros_like(feed["x"]))
    for name, array in feed.items():
        context.set_input_shape(name, array.shape)
    for name, source in ALIASES.items():
        context.set_tensor_address(name, places[source].address)
    right = dt.compile(make_cached_layer(), providers=["cpu"])
    caches = {name: feed[name].astype(np.float32) for name in ALIASES.values()}
    for at in range(LENGTH):
        step = make_feed(1, at, number, seed=at + 5)
        for name in ("x", "at", "mask"):
            cuda.copy(step[name], places[name], None)
        context.execute_async_v3(stream.handle)
        stream.synchronize()
        wide = {"x": step["x"].astype(np.float32), "at": step["at"], "mask": step["mask"], **caches}
        expected = {name: np.array(each) for name, each in right(**wide).items()}
        caches = {source: expected[name] for name, source in ALIASES.items()}
        for place, wanted in ((y, expected["y"]), *((places[ALIASES[n]], expected[n]) for n in ALIASES)):
            found = np.empty(wanted.shape, number)
            cuda.copy(place, found, None)
            np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=0, atol=TOLERANCES[dtype])


def _put(context: Any, provider: Any, name: str, array: Any) -> Any:
    place = provider.array_at(provider.allocator.allocate(array.nbytes, 256, 0), array.shape, array.dtype)
    provider.copy(array, place, None)
    context.set_tensor_address(name, place.address)
    return place
