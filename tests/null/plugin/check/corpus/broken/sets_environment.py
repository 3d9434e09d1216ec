"""R68: An environment variable is set for everybody."""

from __future__ import annotations

import os
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator


class SetsEnvironment(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        os.environ["DOVETAIL_CORPUS_ROWS"] = str(in_[0].dims[0])


creator = LayerCreator(SetsEnvironment)
