"""Divides rows into windows, so that the width must be a multiple of four."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class WindowsOfFour(Layer):
    def compute(self, x: Any, y: Any) -> None:
        windows = x.reshape(*x.shape[:-1], x.shape[-1] // 4, 4)
        y[...] = (windows - windows.mean(-1, keepdims=True)).reshape(x.shape)


creator = LayerCreator(WindowsOfFour)
