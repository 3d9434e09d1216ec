"""R18: get_workspace_size looks for what is not there."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class RaisesForWorkspace(Layer):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return int(self.sizes["max"])  # type: ignore[attr-defined]


creator = LayerCreator(RaisesForWorkspace)
