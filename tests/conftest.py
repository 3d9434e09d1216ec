"""Settings that every suite shares."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

# Tests that import ONNX Runtime themselves need it to keep off the network as much as those that leave it to Dovetail.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# The machines that run the tests are small and shared, so a slow example says nothing about the code. In CI the
# examples are the same on every run, so that a red run is about the change and can be repeated.
settings.register_profile(
    "dovetail",
    deadline=None,
    max_examples=50,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("dovetail")


def pytest_collection_finish() -> None:
    """Keep what pytest holds of ten thousand tests out of garbage collections, which would take half a second each."""
    gc.collect()
    gc.freeze()
