"""Rows in parquet files, in and out; here because the environment of Ray has pyarrow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.expr import Constant, Symbol
from dovetail.inputs.specs import InputSpec
from dovetail_serve.batch import BatchOptions, run_batch
from dovetail_serve.batch.tables.parquet import ParquetTable
from tests.serve.batch.support import make_job, make_plan, read_failures
from tests.serve.batch.test_tables import make_form, read_all


def test_rows_go_in_and_come_out(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "square.plan")
    (tmp_path / "in").mkdir()
    rows = [[float(i)] * 4 for i in range(25)]
    table = pa.table({"x": pa.array([*rows, None, [1.0]], pa.list_(pa.float32())), "id": [f"r{i}" for i in range(27)]})
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=7)
    result = run_batch(make_job(plan, tmp_path / "in", tmp_path / "out", keep=("id",)))
    assert (result.num_rows, result.num_failed) == (27, 2)
    assert [(each.row, "null" in each.error) for each in read_failures(tmp_path / "out")] == [(25, True), (26, False)]
    found = pa.concat_tables([pq.read_table(tmp_path / "out" / name) for name in result.outputs])
    assert found["_row"].to_pylist() == list(range(25))
    assert found["id"].to_pylist() == [f"r{i}" for i in range(25)]
    assert found["y"].to_pylist() == [[float(i * i)] * 4 for i in range(25)]
    assert found["s"].to_pylist() == [float(4 * i * i) for i in range(25)]


@settings(max_examples=20)
@given(count=st.integers(0, 30), shard_rows=st.integers(1, 11), group=st.integers(1, 9))
def test_each_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, count: int, shard_rows: int, group: int
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    form = make_form(InputSpec(name="x", dtype="int64", dims=[]))
    pq.write_table(pa.table({"x": pa.array(range(count), pa.int32())}), path, row_group_size=group)
    rows = read_all(ParquetTable(), path, form, shard_rows=shard_rows)
    assert [row.values["x"].item() for row in rows] == list(range(count))


def test_tensors_are_nested_flat_or_of_a_fixed_shape(tmp_path: Path) -> None:
    form = make_form(InputSpec(name="x", dtype="float32", dims=[Constant(2), Constant(3)]))
    nested = pa.array([[[1, 2, 3], [4, 5, 6]]], pa.list_(pa.list_(pa.float32())))
    flat = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.float32(), 6))
    tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), (2, 3)), flat)
    for column in (nested, flat, tensor):
        pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
        (row,) = read_all(ParquetTable(), tmp_path / "a.parquet", form)
        assert row.error is None
        np.testing.assert_array_equal(row.values["x"], [[1, 2, 3], [4, 5, 6]])


def test_ragged_lists_doubles_and_texts_are_told_apart(tmp_path: Path) -> None:
    form = make_form(InputSpec(name="x", dtype="float32", dims=[Symbol("a"), Symbol("b")]))
    columns = {
        "different lengths": pa.array([[[1, 2], [3]]], pa.list_(pa.list_(pa.float32()))),
        "store it as float32": pa.array([[[1, 2]]], pa.list_(pa.list_(pa.float64()))),
        "does not fit": pa.array(["text"]),
        "nulls": pa.array([[[1, None]]], pa.list_(pa.list_(pa.float32()))),
    }
    for text, column in columns.items():
        pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
        (row,) = read_all(ParquetTable(), tmp_path / "a.parquet", form)
        assert text in (row.error or ""), text


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    form = make_form(InputSpec(name="x", dtype="float32", dims=[]))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(InputError, match="no parquet file"):
        ParquetTable().split(tmp_path / "a.parquet", form, BatchOptions())
    pq.write_table(pa.table({"y": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="there is no column 'x'"):
        ParquetTable().split(tmp_path / "a.parquet", form, BatchOptions())
