"""The options of the provider: texts that are parsed once; a value that cannot be read is told of and left out.

Names are those that ONNX Runtime's CUDA provider has, where they mean something here; those of them that mean nothing
here are known, so that settings written for it can be given as they are, and told of where they ask for something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import OptionSpec

__all__ = ["OPTIONS", "CudaOptions", "parse_options"]

_WHERE: Final = "provider 'cuda'"
_FLAGS: Final = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
_SDPA_STEPS: Final = 16
"""The bit of ONNX Runtime's numbers for attention that stands for a product, a softmax and a product."""
_MOST_SHAPES: Final = 8
_SEARCHES: Final = ("EXHAUSTIVE", "HEURISTIC", "DEFAULT")


@dataclass(frozen=True, kw_only=True)
class CudaOptions:
    """What can be chosen."""

    device_id: int | None = None
    target: str = ""
    prefer_nhwc: bool = False
    use_tf32: bool = True
    enable_cudnn: bool = True
    cudnn_conv_algo_search: str = "EXHAUSTIVE"
    cudnn_conv_use_max_workspace: bool = True
    sdpa_kernel: int = 0
    use_ep_level_unified_stream: bool = False
    has_user_compute_stream: bool = False
    enable_cuda_graph: bool = True
    min_num_runs_before_cuda_graph_capture: int = 1
    user_compute_stream: int | None = None
    waits_for_default_stream: bool = False
    gpu_external_alloc: int = 0
    gpu_external_free: int = 0
    gpu_external_empty_cache: int = 0
    check_memory: bool = False
    kernel_store: str = ""
    tuned_shapes: tuple[Mapping[str, int], ...] = ()
    """Dimensions by name, for shapes that get kernels of their own besides those of the profile."""
    arena_extend_strategy: int = 0
    arena_initial_chunk_size_bytes: int = 1 << 20
    arena_initial_growth_chunk_size_bytes: int = 2 << 20
    arena_max_dead_bytes_per_chunk: int = 128 << 20
    arena_max_power_of_two_extend_bytes: int = 1 << 30
    arena_max_mem: int = 0
    arena_use_cuda_mempool: bool = True
    arena_cuda_mempool_release_threshold: int = 1 << 62
    arena_cuda_mempool_bytes_to_keep_on_shrink: int = 0
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What could not be read, and what changes nothing."""

    @property
    def allows_one_kernel(self) -> bool:
        """Whether attention may be one kernel."""
        return not self.sdpa_kernel or bool(self.sdpa_kernel & ~_SDPA_STEPS)

    @property
    def allows_steps(self) -> bool:
        """Whether attention may be done in steps."""
        return not self.sdpa_kernel or bool(self.sdpa_kernel & _SDPA_STEPS)

    @property
    def has_external_allocator(self) -> bool:
        """Whether memory comes from functions of the caller."""
        return bool(self.gpu_external_alloc and self.gpu_external_free)


def _read_flag(text: str) -> bool:
    return _FLAGS[text.strip().lower()]


def _read_ordinal(text: str) -> int:
    """The number of a device; one below 0 is a device that is not here."""
    return int(text.strip(), 0)


def _read_number(text: str) -> int:
    number = int(text.strip(), 0)
    if number < 0:
        raise ValueError(text)
    return number


def _read_limit(text: str) -> int:
    """A number of bytes, where the largest that there is means none."""
    number = _read_number(text)
    return 0 if number >= 2**63 - 1 else number


def _read_strategy(text: str) -> int:
    names = {"0": 0, "kNextPowerOfTwo": 0, "1": 1, "kSameAsRequested": 1}
    return names[text.strip()]


def _read_search(text: str) -> str:
    word = text.strip().upper()
    return _SEARCHES[_SEARCHES.index(word)] if not word.isdecimal() else _SEARCHES[int(word)]


def _read_shapes(text: str) -> tuple[Mapping[str, int], ...]:
    """Shapes by names of dimensions, such as ``batch=1,length=128;batch=8,length=512``."""
    shapes = [part for part in text.split(";") if part.strip()]
    if len(shapes) > _MOST_SHAPES:
        raise ValueError(text)
    return tuple(dict(map(_read_size, shape.split(","))) for shape in shapes)


def _read_size(text: str) -> tuple[str, int]:
    """The name of a dimension and its size."""
    name, size = text.split("=")
    if not name.strip() or not _read_number(size):
        raise ValueError(text)
    return name.strip(), _read_number(size)


_Reader = Callable[[str], Any]
_READERS: Final[Mapping[str, tuple[_Reader, str, str]]] = {
    "device_id": (_read_ordinal, "", "the CUDA ordinal of the device; by default that of the provider's id"),
    "target": (str, "", "a device that is not here, such as sm_90, to build for; nothing is timed then"),
    "prefer_nhwc": (
        _read_flag,
        "0",
        "whether convolutions, pools and the like become nodes of com.ms.internal.nhwc, with transposes at both ends",
    ),
    "use_tf32": (_read_flag, "1", "whether products of float32 may use TF32 where the build's flag TF32 allows it"),
    "cudnn_conv_algo_search": (
        _read_search,
        "EXHAUSTIVE",
        "EXHAUSTIVE: all tiles of a convolution and both heuristics of cuDNN; HEURISTIC, DEFAULT: one of each",
    ),
    "enable_cudnn": (_read_flag, "1", "whether plans of cuDNN are timed for convolutions, where its front end is here"),
    "cudnn_conv_use_max_workspace": (
        _read_flag,
        "1",
        "whether these may use 64 MiB of scratch memory, or half of it",
    ),
    "sdpa_kernel": (
        _read_number,
        "0",
        "how attention is computed, by ONNX Runtime's bits: 16 in steps, others as one kernel, 0 as the tuner chooses",
    ),
    "use_ep_level_unified_stream": (
        _read_flag,
        "0",
        "whether all contexts share one stream, and nothing is captured: what one thread runs waits for the others",
    ),
    "has_user_compute_stream": (_read_flag, "0", "whether user_compute_stream must be given"),
    "enable_cuda_graph": (_read_flag, "1", "whether runs are captured and replayed as CUDA graphs"),
    "min_num_runs_before_cuda_graph_capture": (_read_number, "1", "how many runs come before the one that is captured"),
    "user_compute_stream": (_read_number, "", "a stream of the caller that every context uses, decimal or 0x"),
    "waits_for_default_stream": (
        _read_flag,
        "0",
        "whether streams of contexts keep order with the default stream, for callers and plugins that name no stream",
    ),
    "gpu_external_alloc": (
        _read_number,
        "0",
        "the address of a function of the caller that gives memory of the device",
    ),
    "gpu_external_free": (_read_number, "0", "the address of the one that takes it back"),
    "gpu_external_empty_cache": (_read_number, "0", "the address of one that gives back what it keeps"),
    "check_memory": (
        _read_flag,
        "0",
        "whether memory that is given back twice or never is told, with where it was got",
    ),
    "tuned_shapes": (
        _read_shapes,
        "",
        "up to 8 shapes with kernels of their own, by names of dimensions: batch=1,length=128;batch=8,length=512",
    ),
    "kernel_store": (str, "", "the folder of compiled kernels; by default in the user's cache"),
    "arena.extend_strategy": (_read_strategy, "0", "0: each region is twice the last; 1: as large as asked for"),
    "arena.initial_chunk_size_bytes": (_read_number, str(1 << 20), "the first region of the arena"),
    "arena.initial_growth_chunk_size_bytes": (_read_number, str(2 << 20), "its first region after a shrink"),
    "arena.max_dead_bytes_per_chunk": (_read_number, str(128 << 20), "how much may be left over in a chunk"),
    "arena.max_power_of_two_extend_bytes": (_read_number, str(1 << 30), "how large its regions become"),
    "arena.max_mem": (_read_limit, "0", "how much memory may be taken; 0 for all there is"),
    "arena.use_cuda_mempool": (_read_flag, "1", "whether memory comes from CUDA's own pool and not from an arena"),
    "arena.cuda_mempool_release_threshold": (_read_number, str(1 << 62), "how much the pool keeps when it is free"),
    "arena.cuda_mempool_bytes_to_keep_on_shrink": (_read_number, "0", "how much of that it keeps in a shrink"),
}
_ALIASES: Final = {"prefer_nhwc_layout": "prefer_nhwc", "cudnn_conv_algo": "cudnn_conv_algo_search"}
_IDLE: Final[Mapping[str, tuple[_Reader, str, str]]] = {
    "cudnn_conv1d_pad_to_nc1d": (_read_flag, "0", "convolutions of one dimension are compiled as they are"),
    "fuse_conv_bias": (_read_flag, "0", "a bias is always part of its convolution"),
    "do_copy_in_default_stream": (_read_flag, "1", "copies go on the stream of their context"),
}
"""Options of ONNX Runtime that change nothing here, with the reason."""
OPTIONS: Final[Mapping[str, OptionSpec]] = {
    **{name: OptionSpec(help=text, default=default) for name, (_, default, text) in _READERS.items()},
    **{
        name: OptionSpec(help=f"as {known}", default={**_IDLE, **_READERS}[known][1])
        for name, known in _ALIASES.items()
    },
    **{
        name: OptionSpec(help=f"changes nothing: {text}", default=default) for name, (_, default, text) in _IDLE.items()
    },
}
"""Every option by name, as the loader shows them."""


def parse_options(texts: Mapping[str, str]) -> CudaOptions:
    """Read the options; what cannot be read, or changes nothing, is in ``warnings`` of what comes back.

    Raises:
        ProviderError: There is no option of that name, or two of them exclude each other.
    """
    unknown = texts.keys() - OPTIONS.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise ProviderError(f"unknown option(s) {names}", where=_WHERE, expected=", ".join(OPTIONS))
    values: dict[str, Any] = {}
    warnings: list[str] = []
    for given, text in texts.items():
        name = _ALIASES.get(given, given)
        reader, default, reason = {**_IDLE, **_READERS}[name]
        try:
            value = reader(text)
        except (ValueError, KeyError, IndexError):
            warnings.append(f"option {given} has no value {text[:100]!a}; the default is used: {default or 'not set'}")
            continue
        if name not in _IDLE:
            values[name.replace(".", "_")] = value
        elif value != reader(default):
            warnings.append(f"option {given} changes nothing here: {reason}")
    options = CudaOptions(**values)
    _check_together(options)
    if bool(options.gpu_external_alloc) != bool(options.gpu_external_free):
        text = "gpu_external_alloc and gpu_external_free belong together; the one without the other is left out"
        warnings.append(text)
    return replace(options, warnings=tuple(warnings))


def _check_together(options: CudaOptions) -> None:
    """Options that exclude or need each other."""
    if options.has_external_allocator and options.user_compute_stream is not None:
        raise ProviderError(
            "memory of the caller's functions and a stream of the caller exclude each other",
            where=_WHERE,
            fix="give either gpu_external_alloc and gpu_external_free, or user_compute_stream",
        )
    if options.has_user_compute_stream and options.user_compute_stream is None:
        raise ProviderError(
            "has_user_compute_stream is set, and there is no stream of the caller",
            where=_WHERE,
            fix="give its address as user_compute_stream",
        )
