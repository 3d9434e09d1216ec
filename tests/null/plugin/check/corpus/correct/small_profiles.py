"""Refuses profiles that are too large, when it is configured."""

from __future__ import annotations

from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SmallProfiles(Layer):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        if in_[0].max[-1] > 12:
            raise ValueError("at most 12 columns are supported")


creator = LayerCreator(SmallProfiles)
