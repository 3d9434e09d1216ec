"""Definitions of plugins end with the test that made them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dovetail
from dovetail_tensorrt.trt.plugin.definitions import definitions


@pytest.fixture(autouse=True)
def clean_definitions() -> Iterator[None]:
    """Take out what a test defined."""
    before = set(definitions._known)
    yield
    for plugin_id in set(definitions._known) - before:
        made = definitions._known[plugin_id]
        if made.creator is not None:
            dovetail.get_plugin_registry().deregister_creator(made.creator)
        definitions.forget(plugin_id)
