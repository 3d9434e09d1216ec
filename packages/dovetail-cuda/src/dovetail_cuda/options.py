"""The options of the provider: texts that are parsed once; a value that cannot be read is warned of and left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import OptionSpec

__all__ = ["OPTIONS", "CudaOptions", "parse_options"]

_FLAGS: Final = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


@dataclass(frozen=True, kw_only=True)
class CudaOptions:
    """What can be chosen."""

    device_id: int | None = None
    use_tf32: bool = True
    enable_cuda_graph: bool = True
    user_compute_stream: int | None = None
    kernel_store: str = ""
    arena_extend_strategy: int = 0
    arena_initial_chunk_size_bytes: int = 1 << 20
    arena_max_power_of_two_extend_bytes: int = 1 << 30
    arena_max_mem: int = 0
    arena_use_cuda_mempool: bool = True
    arena_cuda_mempool_release_threshold: int = 1 << 62


def _read_flag(text: str) -> bool:
    return _FLAGS[text.strip().lower()]


def _read_number(text: str) -> int:
    number = int(text.strip(), 0)
    if number < 0:
        raise ValueError(text)
    return number


def _read_strategy(text: str) -> int:
    names = {"0": 0, "kNextPowerOfTwo": 0, "1": 1, "kSameAsRequested": 1}
    return names[text.strip()]


_Reader = Callable[[str], Any]
_READERS: Final[Mapping[str, tuple[_Reader, str, str]]] = {
    "device_id": (_read_number, "", "the CUDA ordinal of the device; by default that of the provider's id"),
    "use_tf32": (_read_flag, "1", "whether products of float32 may use TF32 where the build's flag TF32 allows it"),
    "enable_cuda_graph": (_read_flag, "1", "whether runs are captured and replayed as CUDA graphs"),
    "user_compute_stream": (_read_number, "", "a stream of the caller that every context uses, decimal or 0x"),
    "kernel_store": (str, "", "the folder of compiled kernels; by default in the user's cache"),
    "arena.extend_strategy": (_read_strategy, "0", "0: each block is twice the last; 1: as large as asked for"),
    "arena.initial_chunk_size_bytes": (_read_number, str(1 << 20), "the first block of the arena"),
    "arena.max_power_of_two_extend_bytes": (_read_number, str(1 << 30), "how large its blocks become"),
    "arena.max_mem": (_read_number, "0", "how much memory may be taken; 0 for all there is"),
    "arena.use_cuda_mempool": (_read_flag, "1", "whether memory comes from CUDA's own pool and not from an arena"),
    "arena.cuda_mempool_release_threshold": (_read_number, str(1 << 62), "how much the pool keeps when it is free"),
}
OPTIONS: Final[Mapping[str, OptionSpec]] = {
    name: OptionSpec(help=text, default=default) for name, (_, default, text) in _READERS.items()
}
"""Every option by name, as the loader shows them."""


def parse_options(texts: Mapping[str, str]) -> CudaOptions:
    """Read the options.

    Raises:
        ProviderError: There is no option of that name.
    """
    unknown = texts.keys() - _READERS.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise ProviderError(f"unknown option(s) {names}", where="provider 'cuda'", expected=", ".join(_READERS))
    values = {}
    for name, text in texts.items():
        try:
            values[name.replace(".", "_")] = _READERS[name][0](text)
        except (ValueError, KeyError):
            shown = _READERS[name][1] or "not set"
            message = f"provider 'cuda': option {name} has no value {text[:100]!a}; the default is used: {shown}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
    return CudaOptions(**values)
