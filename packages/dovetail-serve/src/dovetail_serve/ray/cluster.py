"""The connection to a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dovetail.errors import InputError, ResourceError

__all__ = ["connecting", "import_ray", "locate_plugins", "packed_plugins"]

_STORE_BYTES: Final = 256 << 20
"""The memory that a cluster of our own shares between its processes."""


def import_ray() -> Any:
    """Ray itself; it sends no statistics to its makers unless the environment says so.

    Raises:
        ResourceError: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        what = "this needs the package 'ray', which is not installed"
        raise ResourceError(what, where="--ray", fix="pip install 'dovetail-serve[ray]'") from error
    return ray


@contextmanager
def connecting(address: str, *, num_cpus: int | None = None, plugins: Sequence[str] = ()) -> Iterator[Any]:
    """Ray, connected for as long as the block runs; a connection that is there already is used and left.

    A cluster of our own (``local``) listens on every interface of the machine, because Ray does.

    Args:
        address: ``host:port``, ``auto`` for the cluster of this machine, or ``local`` for one that ends with the block.
        num_cpus: How many processors a cluster of our own hands out.
        plugins: Plugin libraries that actors find by ``locate_plugins``.

    Raises:
        ResourceError: Ray is not installed, or there is no cluster.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    own: dict[str, Any] = {}
    if address == "local":
        own = {"include_dashboard": False, "num_cpus": num_cpus, "object_store_memory": _STORE_BYTES}
    modules = packed_plugins(plugins)
    environment = {"py_modules": modules} if modules else None
    try:
        ray.init(address=address, runtime_env=environment, log_to_driver=False, logging_level="warning", **own)
    except Exception as error:  # Ray raises bare ones when a cluster does not start in time
        reason = str(error).partition("\n")[0][:200]
        fix = "start one with 'ray start --head', or use --ray local"
        raise ResourceError(f"there is no Ray cluster: {reason}", where=f"--ray {address}", fix=fix) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def packed_plugins(plugins: Sequence[str]) -> list[str]:
    """The plugin libraries that Ray carries to its nodes: files and packages in Python.

    Others, compiled ones and those of installed packages, are on the nodes.
    """
    found = [text for text in plugins if not text.startswith("@") and not _is_compiled(text)]
    for text in found:
        if not Path(text).exists():
            raise InputError("there is no such plugin library", where=f"'{text}'", fix="check the path")
    return [str(Path(text).resolve()) for text in found]


def _is_compiled(text: str) -> bool:
    return Path(text).suffix in (".so", ".dylib", ".dll")


def locate_plugins(plugins: Sequence[str]) -> tuple[str, ...]:
    """The plugin libraries as this node has them.

    Raises:
        InputError: Ray did not carry one here.
    """
    return tuple(text if text.startswith("@") or _is_compiled(text) else _locate(text) for text in plugins)


def _locate(text: str) -> str:
    import sys

    name = Path(text).name
    for folder in sys.path:
        if "py_modules" in folder and (Path(folder) / name).exists():
            return str(Path(folder) / name)
    if Path(text).exists():
        return text
    fix = "connect with dovetail_serve.ray.connecting(address, plugins=[...])"
    raise InputError("the plugin library is not on this node", where=f"'{text}'", fix=fix)
