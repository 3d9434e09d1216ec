"""Rows of files: each is there once, whatever the shards, and a bad one is a row with an error."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.expr import Constant, Symbol
from dovetail.inputs.specs import InputSpec
from dovetail_serve.batch import BatchOptions
from dovetail_serve.batch.rows import Row, RowForm
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables import lines
from dovetail_serve.batch.tables.arrays import ArrayTable
from dovetail_serve.batch.tables.base import RowTable
from dovetail_serve.batch.tables.lines import LineTable
from dovetail_serve.batch.tables.pictures import PictureTable


def make_form(*specs: InputSpec) -> RowForm:
    return RowForm(inputs=specs, full_inputs=specs, outputs=(), has_batch_axis=False, least_rows=1, most_rows=1)


FORM = make_form(InputSpec(name="x", dtype="float32", dims=[Constant(2)]))


def read_all(table: RowTable, path: Path, form: RowForm = FORM, **options: Any) -> list[Row]:
    """Every row of a file, shard by shard in reverse, in the order of the file."""
    chosen = BatchOptions(**options)
    rows: list[Row] = []
    for part in reversed(table.split(path, form, chosen)):
        shard = Shard(name="s", files=(path.name,), identity="", **part._asdict())
        found = list(table.read(path.parent, shard, form, chosen))
        assert [row.index for row in found] == list(range(part.first_row, part.first_row + part.num_rows))
        rows = [*found, *rows]
    return rows


LINES = st.one_of(
    st.just(b""),
    st.just(b"  \t"),
    st.just(b'{"x": [1, 2], "id": 3}'),
    st.just(b'{"x": [1, 2]'),
    st.just(b"[" * 5000),
    st.just(b'{"x": 1e999, "id": 1}'),
    st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"").replace(b"\r", b"")),
)


@settings(max_examples=25)
@given(found=st.lists(LINES, max_size=30), shard_rows=st.integers(1, 12), ends=st.booleans())
def test_each_line_is_one_row(
    tmp_path_factory: pytest.TempPathFactory, found: list[bytes], shard_rows: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"\n".join(found) + (b"\n" if ends else b""))
    rows = read_all(LineTable(), path, shard_rows=shard_rows)
    filled = [line for line in found if line.strip()]
    assert [row.index for row in rows] == list(range(len(filled)))
    assert [row.error is None for row in rows] == [line == b'{"x": [1, 2], "id": 3}' for line in filled]


def test_a_line_without_end_is_one_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MOST_BYTES", 20)
    (tmp_path / "a.jsonl").write_bytes(b'{"x": [1, 2]}\n{"x": [' + b"1," * 100 + b'2]}\n{"x": [3, 4]}\n')
    rows = read_all(LineTable(), tmp_path / "a.jsonl", shard_rows=1)
    assert [row.error is None for row in rows] == [True, False, True]
    assert "too long" in (rows[1].error or "")
    np.testing.assert_array_equal(rows[2].values["x"], [3, 4])


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"x": [1, 2]}\n\xef\xbb\xbf{"x": [3, 4]}\n')
    rows = read_all(LineTable(), tmp_path / "a.jsonl")
    assert [row.error is None for row in rows] == [True, False]


def test_columns_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"x": [1, 2], "id": {"deep": [1]}, "more": 0}\n{"x": [1, 2]}\n')
    first, second = read_all(LineTable(), tmp_path / "a.jsonl", keep=("id",))
    assert first.kept == {"id": {"deep": [1]}}
    assert "there is no 'id'" in (second.error or "")


@settings(max_examples=25)
@given(count=st.integers(0, 40), shard_rows=st.integers(1, 12), dtype=st.sampled_from(["float32", "float16"]))
def test_rows_of_arrays_are_slices(
    tmp_path_factory: pytest.TempPathFactory, count: int, shard_rows: int, dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("arrays")
    array = np.arange(count * 2).reshape(count, 2).astype(dtype)
    np.save(folder / "a.npy", array)
    np.savez_compressed(folder / "a.npz", x=array, other=np.zeros(3))
    for name in ("a.npy", "a.npz"):
        rows = read_all(ArrayTable(), folder / name, shard_rows=shard_rows)
        assert len(rows) == count
        for row, expected in zip(rows, array, strict=True):
            assert row.values["x"].dtype == np.float32
            np.testing.assert_array_equal(row.values["x"], expected)


@given(cut=st.integers(0, 400), place=st.integers(0, 300), byte=st.integers(0, 255))
def test_damaged_arrays_are_input_errors(
    tmp_path_factory: pytest.TempPathFactory, cut: int, place: int, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    np.save(folder / "a.npy", np.zeros((9, 2), np.float32))
    np.savez(folder / "a.npz", x=np.zeros((9, 2), np.float32))
    for name in ("a.npy", "a.npz"):
        content = bytearray((folder / name).read_bytes())
        content[place % len(content)] = byte
        (folder / name).write_bytes(content[: len(content) - cut % len(content)])
        with contextlib.suppress(InputError):
            read_all(ArrayTable(), folder / name)


def test_texts_and_several_inputs(tmp_path: Path) -> None:
    form = make_form(
        InputSpec(name="t", dtype="object", dims=[]), InputSpec(name="k", dtype="int64", dims=[Symbol("k")])
    )
    np.savez(tmp_path / "a.npz", t=np.array(["a", "bc"]), k=np.zeros((2, 3), np.int32))
    first, second = read_all(ArrayTable(), tmp_path / "a.npz", form)
    assert (first.values["t"].item(), second.values["t"].item()) == ("a", "bc")
    assert first.values["k"].dtype == np.int64
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(InputError, match="several inputs"):
        ArrayTable().split(tmp_path / "a.npy", form, BatchOptions())
    with pytest.raises(InputError, match="several"):
        PictureTable().split(tmp_path / "a.png", form, BatchOptions())
    np.savez(tmp_path / "a.npz", t=np.array(["a", "bc"]), k=np.zeros((3, 3), np.int32))
    with pytest.raises(InputError, match="same rows"):
        ArrayTable().split(tmp_path / "a.npz", form, BatchOptions())
