"""Messages over gRPC that nobody should send: each is answered within the protocol."""

from __future__ import annotations

import asyncio
import random
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.grpc.messages import INFERENCE
from tests.serve.fuzz import GrpcCase, Target, change_grpc, grpc_seeds

SIZES = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
RAW = st.lists(st.binary(max_size=30), max_size=2)


@cache
def target() -> Target:
    return Target()


def test_damaged_messages() -> None:
    rng = random.Random(2)
    seeds = grpc_seeds()

    async def run() -> None:
        for _ in range(400):
            await target().call_grpc(change_grpc(rng.choice(seeds), rng))

    asyncio.run(run())


@given(
    st.lists(SIZES, max_size=4), st.lists(st.binary(max_size=30), max_size=2), st.sampled_from(["FP32", "BYTES", "X"])
)
def test_shapes_and_bytes_that_do_not_fit(shape: list[int], raw: list[bytes], datatype: str) -> None:
    message = INFERENCE["ModelInferRequest"](model_name="identity_FP32", raw_input_contents=raw)
    message.inputs.add(name="x", datatype=datatype, shape=shape)
    asyncio.run(target().call_grpc(GrpcCase("ModelInfer", message.SerializeToString())))


@given(st.binary(max_size=60), st.sampled_from(["ModelInfer", "ModelMetadata", "RepositoryIndex", "TraceSetting"]))
def test_messages_of_any_bytes(data: bytes, method: str) -> None:
    asyncio.run(target().call_grpc(GrpcCase(method, data)))
