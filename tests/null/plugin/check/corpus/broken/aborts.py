"""R61: attach_to_context aborts."""

from __future__ import annotations

import os
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class Aborts(Layer):
    def attach_to_context(self, resource_context: Any) -> Any:
        os.abort()


creator = LayerCreator(Aborts)
