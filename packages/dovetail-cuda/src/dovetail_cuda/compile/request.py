"""What is compiled, and what comes of it: plain records, which processes exchange and the store keeps."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["EARLY", "EARLY_CAPABILITY", "CompiledCode", "KernelRequest", "find_triton_version"]

EARLY: Final = "EARLY"
"""The constant of kernels that can be launched before the kernel in front of them has ended."""
EARLY_CAPABILITY: Final = 90
"""Devices from here on can do that."""

_FORMAT: Final = 2
"""Changes when the meaning of a record does, so that no older entry of a store is used."""
_KERNELS: Final = Path(__file__).parents[1] / "kernels"

Constant = bool | int | float | str


class KernelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel to compile: its text, or the name of a module of ``kernels``, and everything that decides its code."""

    function: str
    text: str = ""
    module: str = ""
    signature: dict[str, str]
    """Triton's type of each parameter, in order; ``constexpr`` for constants."""
    constants: dict[str, Constant] = {}
    num_warps: int = 4
    num_stages: int = 3
    capability: int

    @property
    def starts_early(self) -> bool:
        """Whether it may be launched before the kernel in front of it has ended, for which it waits itself."""
        return bool(self.constants.get(EARLY, False))

    def make_key(self) -> str:
        """The name under which a store keeps what comes of it."""
        digest = hashlib.sha256(msgspec.json.encode((_FORMAT, find_triton_version(), _digest_kernels())))
        digest.update(msgspec.json.encode(self))
        return digest.hexdigest()


class CompiledCode(msgspec.Struct, frozen=True, kw_only=True):
    """A cubin, and what a launch must know of it."""

    code: bytes
    name: str
    num_warps: int
    shared_bytes: int
    scratch_bytes: int = 0
    """Global memory that each block needs besides its parameters."""
    starts_early: bool = False
    """Whether it waits itself for the kernel in front of it."""


@cache
def find_triton_version() -> str:
    """The version that compiles, without importing it."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""


@cache
def _digest_kernels() -> str:
    """All sources that a kernel may call."""
    digest = hashlib.sha256()
    for path in sorted(_KERNELS.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
