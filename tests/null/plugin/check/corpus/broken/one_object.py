"""R01: The creator gives the same object to everybody."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class OneObject(Layer):
    pass


class Single(LayerCreator):
    made: Any = None

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        self.made = self.made or super().create_plugin(name, field_collection, phase)
        return self.made


creator = Single(OneObject)
