"""Small plans and folders of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

import dovetail
from dovetail_serve.batch import BatchJob, BatchOptions, PlanSource
from dovetail_serve.batch.shards import RowFailure

__all__ = ["LIBRARY", "make_job", "make_plan", "read_failures", "read_rows", "write_arrays", "write_lines"]

LIBRARY = '''\
"""A layer that fails for some numbers: -1 raises, -2 ends the process, -3 ends it once."""

import os
import pathlib
import signal

import numpy as np

from dovetail import layer


@layer("acme::Fragile")
def fragile(x):
    if (x == -1).any():
        raise ValueError("a number below zero")
    marker = pathlib.Path(__file__).with_suffix(".died")
    if (x == -2).any() or ((x == -3).any() and not marker.exists()):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x * np.float32(2)
'''


def make_plan(path: Path, dims: Sequence[Any] = ("n", 4), *, library: Path | None = None, shapes: Any = None) -> Path:
    """A plan of ``y = x * x`` and its sum over the last axis; with the library ``y = fragile(x)``."""
    if library is not None:
        library.write_text(LIBRARY, encoding="utf-8")
    op = {"op_type": "Fragile", "domain": "acme", "plugin_namespace": "acme"} if library else {"op_type": "Mul"}
    inputs = ["x"] if library else ["x", "x"]
    nodes = [
        helper.make_node(op.pop("op_type"), inputs, ["y"], **op),
        helper.make_node("ReduceSum", ["y", "axes"], ["s"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "square",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, dims),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, list(dims)[:-1]),
        ],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [-1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model) if library is None else None
    source = path.with_suffix(".onnx")
    onnx.save(model, source)
    registry = None
    if library is not None:
        from dovetail.cli.targets import make_registry

        registry = make_registry([str(library)])
    with dovetail.compile(source, shapes=shapes, registry=registry, providers=["cpu"]) as engine:
        engine.save(path)
    return path


def write_arrays(path: Path, count: int, first: int = 0) -> np.ndarray:
    """Rows whose first number is theirs alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.arange(first, first + count, dtype=np.float32)[:, None] + np.zeros(4, np.float32)
    np.save(path, rows)
    return rows


def write_lines(path: Path, rows: Sequence[Any]) -> None:
    """One line each: an object is written as JSON, a text as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row.encode() if isinstance(row, str) else msgspec.json.encode(row) for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def make_job(plan: Path, source: Path, target: Path, *, plugins: Sequence[Path] = (), **options: Any) -> BatchJob:
    """A job with small shards."""
    chosen = BatchOptions(**{"shard_rows": 10, "batch_size": None, **options})
    source_plan = PlanSource(path=str(plan), plugins=tuple(map(str, plugins)))
    return BatchJob(plan=source_plan, source=str(source), target=str(target), options=chosen)


def read_rows(target: Path, name: str) -> dict[int, np.ndarray]:
    """The output ``y`` of each row of one file of the source, from all its shards; no row may be there twice."""
    found: dict[int, np.ndarray] = {}
    for path in sorted(target.glob(f"{name}.*")):
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                rows = list(zip(arrays["_row"].tolist(), arrays["y"], strict=True))
        else:
            lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
            rows = [(line["_row"], np.array(line["y"], np.float32)) for line in lines]
        assert [index for index, _ in rows] == sorted({index for index, _ in rows})
        assert not found.keys() & dict(rows).keys()
        found |= dict(rows)
    return found


def read_failures(target: Path) -> list[RowFailure]:
    """What ``errors.jsonl`` has."""
    path = target / "errors.jsonl"
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=RowFailure) for line in path.read_bytes().splitlines()]
