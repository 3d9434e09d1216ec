"""The engine of a batch, loaded with the plugins and the trust that its job says."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.cli.settings import apply_provider_options
from dovetail.cli.targets import StderrLogger, is_plan, load_libraries, require_file
from dovetail.errors import InputError
from dovetail.files import open_regular
from dovetail_serve.batch.options import PlanSource

if TYPE_CHECKING:
    from dovetail.plan.manifest import Manifest
    from dovetail.runtime.engine import Engine

__all__ = ["digest_plan", "load_plan", "read_manifest", "require_plan"]

_PART_BYTES: Final = 1 << 20


def require_plan(source: PlanSource) -> Path:
    """The file of a plan.

    Raises:
        InputError: It is not there, or is a model.
    """
    path = require_file(source.path, expected="a plan")
    if not is_plan(path):
        fix = f"build a plan of it: dovetail build {path.name} -o {path.stem}.plan"
        raise InputError("this is no plan", where=f"'{path}'", expected="a plan", fix=fix)
    return path


def load_plan(source: PlanSource, content: memoryview | None = None) -> Engine:
    """The engine of a plan.

    Args:
        source: The plan.
        content: Its bytes, where the file is on another machine.

    Raises:
        PlanError: It is damaged, not trusted, or not for this machine.
        PluginError: A plugin library cannot be loaded.
    """
    from dovetail.runtime.loading import Runtime

    apply_provider_options(source.provider_options)
    runtime = Runtime(StderrLogger())
    runtime.engine_host_code_allowed = source.allow_host_code
    runtime.engine_device_code_allowed = source.allow_device_code
    load_libraries(source.plugins, runtime.get_plugin_registry())
    return runtime.load_engine(require_plan(source)) if content is None else runtime.deserialize_cuda_engine(content)


def read_manifest(source: PlanSource) -> Manifest:
    """What a plan says of itself, for a machine that cannot load it.

    Raises:
        PlanError: It is damaged.
    """
    from dovetail.plan.container import PlanFile
    from dovetail.plan.manifest import decode_manifest

    file = PlanFile.open(require_plan(source))
    try:
        return decode_manifest(file.manifest)
    finally:
        file.close()


def digest_plan(source: PlanSource) -> str:
    """The digest of a plan and of its plugin libraries: what decides results."""
    digest = hashlib.sha256()
    for path in (require_plan(source), *_library_files(source)):
        with open_regular(path, follow=True) as file:
            while part := file.read(_PART_BYTES):
                digest.update(part)
    return digest.hexdigest()


def _library_files(source: PlanSource) -> list[Path]:
    paths = [Path(text) for text in source.plugins if not text.startswith("@")]
    return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
