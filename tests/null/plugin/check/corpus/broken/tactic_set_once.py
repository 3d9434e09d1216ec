"""R50: What a tactic needs is worked out for the first one only."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class TacticSetOnce(Layer):
    steps: Any = None

    def get_valid_tactics(self) -> Any:
        return [1, 2]

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 64

    def set_tactic(self, tactic: int) -> Any:
        self.tactic = tactic
        self.steps = self.steps or tactic

    def compute(self, x: Any, y: Any) -> None:
        y[...] = x * 2 if self.steps == self.tactic else x


creator = LayerCreator(TacticSetOnce)
