"""Graphs that ONNX Runtime captures by their ids: each has shapes and memory of its own, and sees inputs change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["check_graphs"]


def check_graphs(session: Any, device: Any, rows: Mapping[int, int]) -> None:
    """Have a session that negates (n, 3) capture a graph for each id, with so many rows, and replay all in turn."""
    import onnxruntime as ort

    bound = {}
    for number, count in rows.items():
        options, binding = ort.RunOptions(), session.io_binding()
        options.add_run_config_entry("gpu_graph_id", str(number))
        source, target = device.value(np.zeros((count, 3), np.float32)), device.empty((count, 3))
        binding.bind_ortvalue_input("x", source)
        binding.bind_ortvalue_output("y", target)
        bound[number] = (source, target, binding, options)
    for turn in range(3):
        for number, (source, target, binding, options) in bound.items():
            x = np.full((rows[number], 3), 10 * turn + number, np.float32)
            source.update_inplace(x)
            session.run_with_iobinding(binding, options)
            np.testing.assert_array_equal(target.numpy(), -x)
