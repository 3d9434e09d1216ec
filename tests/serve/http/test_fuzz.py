"""Requests over HTTP that nobody should send: each is answered within the protocol."""

from __future__ import annotations

import asyncio
import random
from functools import cache
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.serve.fuzz import HttpCase, Target, change_http, http_seeds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "name": st.just("x") | JSON,
        "shape": st.lists(st.integers(-2, 4), max_size=3) | JSON,
        "datatype": st.sampled_from(["FP32", "INT64", "BYTES", "BOOL", "FP16", "INT4"]) | JSON,
        "data": st.lists(st.integers(0, 1), max_size=6) | JSON,
        "parameters": JSON,
    },
)
DOCUMENT = st.fixed_dictionaries({"inputs": st.lists(ENTRY, max_size=2) | JSON}, optional={"id": JSON, "outputs": JSON})


@cache
def target() -> Target:
    return Target()


def test_damaged_requests() -> None:
    rng = random.Random(1)
    seeds = http_seeds()

    async def run() -> None:
        for _ in range(400):
            await target().call_http(change_http(rng.choice(seeds), rng))

    asyncio.run(run())


@given(DOCUMENT)
def test_documents_of_any_kind(document: Any) -> None:
    import json

    body = json.dumps(document).encode()
    case = HttpCase("POST", "/v2/models/identity_FP32/infer", {}, [body])
    asyncio.run(target().call_http(case))


@given(st.binary(max_size=200), st.integers(0, 220))
def test_bodies_of_any_bytes(body: bytes, size: int) -> None:
    headers = {b"inference-header-content-length": b"%d" % size}
    asyncio.run(target().call_http(HttpCase("POST", "/v2/models/identity_FP32/infer", headers, [body])))


@given(st.text(max_size=20))
def test_paths_of_any_text(path: str) -> None:
    asyncio.run(target().call_http(HttpCase("GET", f"/v2/models/{path}", {}, [b""])))
