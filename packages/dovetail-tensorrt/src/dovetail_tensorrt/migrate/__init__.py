"""Moving V2 plugins to V3: a source file in, a source file out, and what could not be decided."""

from __future__ import annotations

from dovetail_tensorrt.migrate.module import Migration, migrate_source
from dovetail_tensorrt.migrate.notes import MigrationNote

__all__ = ["Migration", "MigrationNote", "migrate_source"]
