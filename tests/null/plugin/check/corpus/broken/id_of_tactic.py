"""R22: The timing cache ID depends on the tactic."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class IdOfTactic(Layer):
    @property
    def timing_cache_id(self) -> Any:
        return f"tactic {self.tactic}"

    def get_valid_tactics(self) -> Any:
        return [1, 2]


creator = LayerCreator(IdOfTactic)
