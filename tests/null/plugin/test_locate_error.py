"""Errors of a callback name the line of its author, whoever raised them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError
from dovetail.expr import DimensionOperation, IExprBuilder
from dovetail.plugin.handle import PluginHandle, locate_error
from dovetail.types import TensorRTPhase
from tests.support.plugins import ScalePlugin


def _own() -> None:
    raise ValueError("mine")


def _by_numpy() -> None:
    np.zeros(3).reshape(2, 2)
    np.linalg.inv(np.zeros((2, 3)))


def _by_numpy_code() -> None:
    np.linalg.inv(np.zeros((2, 3)))


def _by_dovetail() -> None:
    builder = IExprBuilder()
    builder.declare_size_tensor(-1, None, None)  # type: ignore[arg-type]
    builder.operation(DimensionOperation.SUM, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("callback", [_own, _by_numpy, _by_numpy_code, _by_dovetail])
def test_the_line_is_in_the_callback(callback: Callable[[], None]) -> None:
    lines, start = inspect.getsourcelines(callback)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
        callback()
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next if caught.value.__traceback__ else None)
    file, _, line = locate_error(error).rpartition(":")
    assert file == __file__
    assert start < int(line) < start + len(lines)


def test_the_message_of_a_plugin_names_it() -> None:
    class Wrong(ScalePlugin):
        def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
            return [exprBuilder.declare_size_tensor(-1, None, None)]

    handle = PluginHandle(Wrong(1.0), phase=TensorRTPhase.BUILD, owned=True)
    _, start = inspect.getsourcelines(Wrong.get_output_shapes)
    with pytest.raises(DovetailError) as caught:
        handle.get_output_shapes([], [])
    assert f"{__file__}:{start + 1}" in str(caught.value)
