"""The timing cache of one build: in memory, from the configuration, or shared with other processes in a file."""

from __future__ import annotations

from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.tune.cache import TimingCache, TimingCacheFile, TimingValue
from dovetail.loggers import ILogger, Severity
from dovetail.provider.interfaces import Provider
from dovetail.provider.loader import get_factory, get_provider

__all__ = ["CacheSession", "accepts_cache", "identify"]


def identify(provider: Provider) -> tuple[str, str]:
    """The device and the version that timings of a provider belong to."""
    return provider.device.fingerprint, get_factory(provider.name).version


def accepts_cache(cache: TimingCache) -> bool:
    """Whether a cache was made where this process runs."""
    return cache.matches(*_identify_host()) is None


def _identify_host() -> tuple[str, str]:
    return identify(get_provider("cpu"))


class CacheSession:
    """Where timings are looked up and kept. A measurement is safe on disk before the next one starts."""

    def __init__(self, config: BuilderConfig, logger: ILogger) -> None:
        self.error_on_miss = config.get_flag(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
        is_disabled = config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE)
        given = config.get_timing_cache()
        self.cache = TimingCache() if is_disabled or given is None else given
        self.cache.bind(*_identify_host())
        self._file: TimingCacheFile | None = None
        if config.timing_cache_path is not None and not is_disabled:
            self._file = TimingCacheFile(config.timing_cache_path)
            self._take_file(self._file, logger)

    def _take_file(self, file: TimingCacheFile, logger: ILogger) -> None:
        stored = file.load()
        for problem in file.problems:
            logger.log(Severity.WARNING, f"timing cache '{file.path}': {problem}")
        # Keys name the device and version they belong to, so machines and devices can share a file.
        self.cache.combine(stored, ignore_mismatch=True)

    def record(self, key: str, value: TimingValue) -> None:
        """Keep one measurement, on disk too when a file is shared."""
        self.cache.update(key, value)
        if self._file is not None:
            self._file.record(key, value)

    def close(self) -> None:
        """Fold what was measured into the shared file."""
        if self._file is not None:
            self._file.merge_and_save(self.cache, ignore_mismatch=True)
