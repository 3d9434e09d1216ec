"""Run a network on arrays, for tests that compare layers with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.build.builder import Builder, engine_from_plan
from dovetail.network.api.definition import Network
from dovetail.plugin.registry import PluginRegistry

__all__ = ["run_network"]


def run_network(
    network: Network, feeds: Mapping[str, np.ndarray], registry: PluginRegistry | None = None
) -> dict[str, np.ndarray]:
    """Build the network for any shapes, run it once, and return every output by name."""
    builder = Builder()
    plan = builder.build_plan(network, builder.create_builder_config(), is_open=True)
    engine = engine_from_plan(plan, registry or builder.get_plugin_registry())
    result: Any = engine(**feeds)
    if isinstance(result, dict):
        return result
    return {network.get_output(0).name: result}
