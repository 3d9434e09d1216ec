"""R24: clone gives the object itself."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class ClonesItself(Layer):
    def clone(self) -> Any:
        return self

    def attach_to_context(self, resource_context: Any) -> Any:
        return ClonesItself()


creator = LayerCreator(ClonesItself)
