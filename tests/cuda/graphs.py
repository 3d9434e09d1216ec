"""Graphs that ONNX Runtime captures by their ids: each has shapes and memory of its own, and sees inputs change."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["check_graphs", "check_moved_buffers", "check_short_threads"]


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


def _run(session: Any, device: Any, value: float, rows: int) -> tuple[Any, Any]:
    """Run a session that negates (n, 3) over buffers of its own with graph id 0; return them, to keep them alive."""
    source, target = device.value(np.full((rows, 3), value, np.float32)), device.empty((rows, 3))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    for turn in range(3):
        x = np.full((rows, 3), value + turn, np.float32)
        source.update_inplace(x)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target.numpy(), -x)
    return source, target


def check_moved_buffers(session: Any, device: Any) -> None:
    """Run one graph id over changing buffers and shapes: a replay must never use the captured ones."""
    kept = [_run(session, device, 10.0 * number, rows) for number, rows in enumerate((4, 4, 7, 4, 7))]
    assert kept


def check_short_threads(session: Any, device: Any) -> None:
    """Run in threads that end one after the other: none may replay the graph of an earlier one."""
    kept: list[Any] = []
    for number in range(6):
        thread = threading.Thread(target=lambda number=number: kept.append(_run(session, device, 10.0 * number, 4)))
        thread.start()
        thread.join()
    assert len(kept) == 6, "a thread raised"
