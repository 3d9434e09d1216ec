"""What a batch runs and how; everything here can be written as JSON, because workers get it that way."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.inputs.image_options import ImageOptions

__all__ = ["FORMATS", "BatchJob", "BatchOptions", "PlanSource"]

FORMATS = ("npz", "jsonl", "parquet")
"""What results can be written as."""


@dataclass(frozen=True, kw_only=True)
class PlanSource:
    """A plan, and what it takes to load it."""

    path: str
    plugins: tuple[str, ...] = ()
    """Plugin libraries: files, folders, or ``@NAME`` for one that an installed package offers."""
    provider_options: tuple[str, ...] = ()
    """``PROVIDER.KEY=VALUE``."""
    allow_host_code: bool = False
    allow_device_code: bool = True


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """How rows are read, run and written; None is decided by the files or the model."""

    batch_size: int | None = None
    """The most rows of one run; by default what the profile allows, and 32 where there is none."""
    shard_rows: int = 1024
    """The most rows of one result file. A shard is done as a whole, or run again."""
    instances: int = 1
    """How many processes or actors run, each with an engine of its own."""
    format: str | None = None
    """npz, jsonl or parquet; by default parquet for parquet, jsonl for JSON lines, npz for the others."""
    keep: tuple[str, ...] = ()
    """Columns of parquet files and JSON lines that results have too."""
    max_failures: int | None = 1000
    """The batch stops after so many rows that failed; None for never."""
    images: dict[str, ImageOptions] = field(default_factory=dict)
    """How images become inputs, by name."""


@dataclass(frozen=True, kw_only=True)
class BatchJob:
    """One batch: a plan, a folder or file of inputs, a folder for results."""

    plan: PlanSource
    source: str
    target: str
    options: BatchOptions = BatchOptions()
