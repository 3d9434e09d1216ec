"""Which memory a device has, as its options say."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from dovetail_cuda.run.arenas.arena import ArenaRules
from dovetail_cuda.run.arenas.arena_memory import ArenaMemory
from dovetail_cuda.run.arenas.memory import BlockMemory, DeviceMemory, ExternalMemory, PoolMemory

if TYPE_CHECKING:
    from dovetail_cuda.options import CudaOptions
    from dovetail_cuda.run.gpu import Gpu

__all__ = ["open_memory"]


def open_memory(gpu: Gpu, options: CudaOptions, *, has_pool: bool) -> DeviceMemory:
    """The memory of a device; an arena where the driver has no pool for it."""
    limit = options.arena_max_mem
    if options.has_external_allocator:
        functions = (options.gpu_external_alloc, options.gpu_external_free, options.gpu_external_empty_cache)
        return ExternalMemory(gpu, functions, limit_bytes=limit)
    if options.arena_use_cuda_mempool and has_pool:
        gpu.driver.keep_pool(gpu.ordinal, options.arena_cuda_mempool_release_threshold)
        return PoolMemory(gpu, limit_bytes=limit, kept_bytes=options.arena_cuda_mempool_bytes_to_keep_on_shrink)
    if options.arena_use_cuda_mempool:
        message = "provider 'cuda': the driver has no pool for this device; an arena takes its place"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return ArenaMemory(gpu, _make_rules(options), BlockMemory(gpu))


def _make_rules(options: CudaOptions) -> ArenaRules:
    return ArenaRules(
        is_doubling=not options.arena_extend_strategy,
        first_region_bytes=options.arena_initial_chunk_size_bytes,
        first_growth_bytes=options.arena_initial_growth_chunk_size_bytes,
        largest_growth_bytes=options.arena_max_power_of_two_extend_bytes,
        most_dead_bytes=options.arena_max_dead_bytes_per_chunk,
        limit_bytes=options.arena_max_mem,
    )
