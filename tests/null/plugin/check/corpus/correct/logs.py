"""Tells what it does."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_LOG = logging.getLogger("corpus")


class Logs(Layer):
    def on_shape_change(self, in_: Any, out: Any) -> Any:
        _LOG.warning("shapes %s", in_[0].dims)
        sys.stdout.write("shapes changed\n")


creator = LayerCreator(Logs)
