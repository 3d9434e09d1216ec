"""R56: destroy closes what was never opened."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RaisesInDestroy(Layer):
    handle: Any = None

    def destroy(self) -> None:
        self.handle.close()


creator = LayerCreator(RaisesInDestroy)
