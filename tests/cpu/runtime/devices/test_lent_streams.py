"""Contexts on streams of the caller's: their work is put there, and nobody waits who need not."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.testing import HostDevice, HostStream, host_device
from tests.support.device_models import X, build, chain, expected


def _stream(device: HostDevice) -> HostStream:
    stream = device.create_stream()
    assert stream is not None
    return stream


def test_a_run_over_arrays_of_the_device_does_not_wait() -> None:
    with host_device() as device:
        engine = build(chain())
        engine.capture_graphs = False
        stream = _stream(device)
        source, target = device.to_device(X), device.empty(X.shape, X.dtype)
        with engine.create_execution_context(streams={device.name: stream.handle}) as context:
            device.statistics.reset()
            context.run([source], {engine.manifest.outputs[0].name: target})
            assert device.statistics.waits == 0
            assert device.statistics.streams == 0
            assert stream.pending > 0
            stream.synchronize()
            np.testing.assert_allclose(target.view(), expected(chain(), X), rtol=1e-6)
        stream.submit("after", lambda: None)  # the context closed nothing


def test_a_run_over_arrays_of_the_host_waits() -> None:
    with host_device() as device:
        engine = build(chain())
        stream = _stream(device)
        with engine.create_execution_context(streams={device.name: stream.handle}) as context:
            (result,) = context.run([X])
            np.testing.assert_allclose(result, expected(chain(), X), rtol=1e-6)
            assert stream.pending == 0


@pytest.mark.parametrize("is_given", [True, False])
def test_an_output_on_the_host_is_there_when_the_run_returns(is_given: bool) -> None:
    with host_device() as device:
        engine = build(chain())
        stream = _stream(device)
        source = device.to_device(X) if is_given else X
        with engine.create_execution_context(streams={device.name: stream.handle}) as context:
            for _ in range(3):
                np.testing.assert_allclose(context.run([source])[0], expected(chain(), X), rtol=1e-6)


def test_contexts_on_one_stream_run_in_order() -> None:
    with host_device() as device:
        engine = build(chain())
        engine.capture_graphs = False
        stream, name = _stream(device), engine.manifest.outputs[0].name
        first, second = device.to_device(X), device.empty(X.shape, X.dtype)
        result = device.empty(X.shape, X.dtype)
        contexts = [engine.create_execution_context(streams={device.name: stream.handle}) for _ in range(2)]
        contexts[0].run([first], {name: second})
        contexts[1].run([second], {name: result})
        stream.synchronize()
        np.testing.assert_allclose(result.view(), expected(chain(), expected(chain(), X)), rtol=1e-6)
        for context in contexts:
            context.close()
