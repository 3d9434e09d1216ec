"""Rows as images: each file is one row, for the only input of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dovetail.errors import DovetailError, InputError
from dovetail.inputs.images import read_image
from dovetail_serve.batch.options import BatchOptions
from dovetail_serve.batch.rows import Array, Row, RowForm
from dovetail_serve.batch.shards import Shard
from dovetail_serve.batch.tables.base import RowRange

__all__ = ["PictureTable"]


class PictureTable:
    """Images of one folder."""

    def split(self, path: Path, form: RowForm, options: BatchOptions) -> Sequence[RowRange]:
        """One row."""
        if len(form.inputs) != 1:
            names = ", ".join(spec.name for spec in form.inputs)
            what = "an image is the value of one input, and the model has several"
            raise InputError(what, where=f"'{path}'", expected=f"rows with values for {names}")
        return [RowRange(0, 1)]

    def read(self, root: Path, shard: Shard, form: RowForm, options: BatchOptions) -> Iterator[Row]:
        """The images of a shard: each is the first row of its file, wherever it stands in the shard."""
        for index, name in enumerate(shard.files):
            try:
                value = _read(root / name, form, options)
                yield Row(index, {form.inputs[0].name: value}, {"_row": 0, "_file": name})
            except DovetailError as error:
                yield Row(index, {}, {}, str(error))


def _read(path: Path, form: RowForm, options: BatchOptions) -> Array:
    spec = form.full_inputs[0]
    array = read_image(path, spec, options.images.get(spec.name))
    return array[0] if form.has_batch_axis else array
