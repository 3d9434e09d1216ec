"""What a session says of compiled models: whether to make one, and where plans lie. Keys ``ep.context_*`` are ORT's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail import UsageError

__all__ = ["ContextOptions", "read_context_options"]


@dataclass(frozen=True, kw_only=True)
class ContextOptions:
    """The part of a session's entries that is about compiled models."""

    is_enabled: bool = False
    """Whether this session makes a compiled model."""
    file_path: str = ""
    """The compiled model: where it is written, or where one that was loaded from memory lies."""
    is_embedded: bool = False
    """Whether plans are stored in the model and not beside it."""
    node_name_prefix: str = ""
    """What the names of partitions and of their plan files start with."""
    is_shared: bool = False
    """Whether sessions hold a plan that several of them use only once, and plan files are named by their contents."""

    def output_path(self, model_path: str) -> Path | None:
        """The file that the compiled model is written to; None when it stays in memory.

        >>> ContextOptions().output_path("models/a.onnx").as_posix()
        'models/a_ctx.onnx'
        """
        if self.file_path:
            return Path(self.file_path)
        return Path(model_path).with_name(f"{Path(model_path).stem}_ctx.onnx") if model_path else None

    def folder_of(self, model_path: str) -> Path | None:
        """The folder of a compiled model that is loaded; None when nobody said it."""
        path = model_path or self.file_path
        return Path(path).parent if path else None


def read_context_options(entries: Mapping[str, str]) -> ContextOptions:
    """The entries about compiled models.

    >>> read_context_options({"ep.context_enable": "1", "ep.context_embed_mode": "1"}).is_embedded
    True
    """
    return ContextOptions(
        is_enabled=_read_switch(entries, "ep.context_enable"),
        file_path=entries.get("ep.context_file_path", ""),
        is_embedded=_read_switch(entries, "ep.context_embed_mode"),
        node_name_prefix=entries.get("ep.context_node_name_prefix", ""),
        is_shared=_read_switch(entries, "ep.share_ep_contexts"),
    )


def _read_switch(entries: Mapping[str, str], key: str) -> bool:
    value = entries.get(key, "0")
    if value not in ("0", "1"):
        raise UsageError("not a switch", where=f"option {key}", expected="0 or 1", got=value)
    return value == "1"
