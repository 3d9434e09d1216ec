"""The timing cache of a build: one file for several devices, versions and machines."""

from __future__ import annotations

from pathlib import Path

import dovetail as dt
from dovetail.build.config import BuilderConfig, BuilderFlag
from dovetail.build.tune.cache import TimingCache, TimingCacheFile, TimingValue
from dovetail.build.tune.session import CacheSession, accepts_cache, identify
from dovetail.loggers import Logger
from dovetail.provider.loader import get_provider
from dovetail.testing import host_device


def _session(path: Path) -> CacheSession:
    config = BuilderConfig()
    config.timing_cache_path = path
    return CacheSession(config, Logger())


def test_machines_that_take_turns_with_a_file_keep_each_others_timings(tmp_path: Path) -> None:
    path = tmp_path / "shared.timing"
    mine = _session(path)
    mine.record("plugin|mine|1", TimingValue(time_us=1.0))
    mine.close()
    other = TimingCache()
    other.bind("another machine", "9.9")
    other.update("plugin|another|9", TimingValue(time_us=2.0))
    TimingCacheFile(path).merge_and_save(other, ignore_mismatch=True)
    again = _session(path)
    assert again.cache.query_keys() == ["plugin|another|9", "plugin|mine|1"]
    again.close()


def test_a_cache_that_was_given_is_used_and_filled() -> None:
    config, cache = BuilderConfig(), TimingCache()
    assert config.set_timing_cache(cache)
    CacheSession(config, Logger()).record("k", TimingValue(time_us=1.0))
    assert cache.query("k") == TimingValue(time_us=1.0)
    assert accepts_cache(cache)
    config.set_flag(BuilderFlag.DISABLE_TIMING_CACHE)
    assert CacheSession(config, Logger()).cache.query("k") is None


def test_timings_belong_to_the_device_and_the_version_of_the_package() -> None:
    with host_device() as device:
        assert identify(device) == ("host-device", dt.__version__)
    assert identify(get_provider("cpu"))[1] == dt.__version__
    assert identify(get_provider("onnxruntime"))[1] != dt.__version__
