"""Timing caches: keys that cannot collide, bytes that cannot hurt, and files that lose nothing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dovetail
from dovetail.build.tune import codec
from dovetail.build.tune.cache import (
    ITimingCache,
    TimingCache,
    TimingCacheFile,
    TimingValue,
    make_key,
    make_reformat_key,
)
from dovetail.errors import TimingCacheError, UsageError
from dovetail.files import replacing
from tests.support.odd_files import make_odd_file

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and devices as POSIX has them")
ONE = TimingValue(time_us=1.5)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.text("|:;,x\\1", max_size=4)
dims = st.lists(st.integers(-1, 9), max_size=3).map(tuple)
shapes = dims | st.tuples(dims, dims, dims)
tensors = st.tuples(shapes, texts, texts)
values = st.builds(
    TimingValue, time_us=st.floats(0, 1e12), status=st.sampled_from(codec.STATUSES), reason=st.none() | texts
)
caches = st.dictionaries(texts, values, max_size=5)


def make_cache(entries: dict[str, TimingValue], device: str = "") -> TimingCache:
    cache = TimingCache()
    cache.bind(device, "1.0")
    for key, value in entries.items():
        cache.update(key, value)
    return cache


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def entries_of(cache: TimingCache) -> dict[str, TimingValue | None]:
    return {key: cache.query(key) for key in cache.query_keys()}


# keys

plugin_arguments = st.fixed_dictionaries(
    {
        "device": texts,
        "provider_version": texts,
        "plugin": st.tuples(texts, texts, texts),
        "timing_cache_id": texts,
        "io": st.lists(tensors, max_size=3),
        "tactic": st.integers(0, 5),
    }
)


@given(plugin_arguments, plugin_arguments)
def test_different_plugins_never_share_a_key(one: dict[str, object], other: dict[str, object]) -> None:
    assert (make_key(**one) == make_key(**other)) == (one == other)  # type: ignore[arg-type]


@given(plugin_arguments, st.data())
def test_every_part_of_a_plugin_key_counts(arguments: dict[str, object], data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(arguments)))
    changed = arguments | data.draw(
        plugin_arguments.filter(lambda a: a[part] != arguments[part]).map(lambda a: {part: a[part]})
    )
    assert make_key(**arguments) != make_key(**changed)  # type: ignore[arg-type]


def test_a_profile_and_a_concrete_shape_have_different_keys() -> None:
    def key(shape: object) -> str:
        target = ("HALF", "CHW2")
        return make_reformat_key(
            device="cpu",
            provider_version="1",
            shape=shape,
            source=("HALF", "LINEAR"),
            target=target,  # type: ignore[arg-type]
        )

    keys = {key((1, 2, 3)), key(((1,), (2,), (3,))), key(((), (), ())), key(()), key(((1, 2, 3),) * 3)}
    assert len(keys) == 5
    assert key(dovetail.Dims((1, 2, 3))) == key((1, 2, 3))


def test_a_reformat_is_no_plugin() -> None:
    reformat = make_reformat_key(
        device="d", provider_version="v", shape=(2,), source=("HALF", "LINEAR"), target=("HALF", "HWC8")
    )
    assert reformat.startswith("reformat|")
    assert make_key(
        device="d", provider_version="v", plugin=("reformat", "1", ""), timing_cache_id="", io=[], tactic=0
    ).startswith("plugin|")


def test_a_key_is_text() -> None:
    with pytest.raises(UsageError, match="no valid text"):
        make_key(device="d", provider_version="v", plugin=("p", "1", ""), timing_cache_id="\ud800", io=[], tactic=0)


# the cache


def test_public_names() -> None:
    assert dovetail.ITimingCache is ITimingCache is TimingCache is dovetail.TimingCache


@given(caches, st.randoms())
def test_bytes_hold_everything_and_depend_on_nothing_else(entries: dict[str, TimingValue], random: object) -> None:
    cache = make_cache(entries, "gpu")
    shuffled = list(entries.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = TimingCache(cache.serialize())
    assert entries_of(again) == entries
    assert (again.device, again.version) == ("gpu", "1.0")
    assert make_cache(dict(shuffled), "gpu").serialize() == cache.serialize() == again.serialize()
    json.loads(cache.serialize())


def test_query_update_reset() -> None:
    cache = make_cache({"b": ONE, "a": ONE}, "gpu")
    assert cache.query("c") is None
    assert cache.query_keys() == cache.queryKeys() == ["a", "b"]
    cache.update("a", TimingValue(time_us=9.0))
    assert cache.query("a") == TimingValue(time_us=9.0)
    assert len(cache) == 2
    cache.reset()
    assert (len(cache), cache.device) == (0, "")
    assert cache.serialize() == TimingCache().serialize()


def test_failures_are_kept_with_their_reason() -> None:
    failed = TimingValue(status="failed", reason="ValueError: no")
    assert TimingCache(make_cache({"k": failed}).serialize()).query("k") == failed


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (TimingValue(time_us=math.nan), "nan is no time"),
        (TimingValue(time_us=math.inf), "inf is no time"),
        (TimingValue(time_us=-1.0), "-1.0 is no time"),
        (TimingValue(), 'status "timed" without a time'),
        (TimingValue(time_us=1.0, status="lucky"), "unknown status 'lucky'"),
    ],
    ids=str,
)
def test_a_value_that_is_none_is_refused(value: TimingValue, fault: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=fault):
        TimingCache().update("k", value)
    with pytest.raises(UsageError, match=fault):
        TimingCacheFile(tmp_path / "c").record("k", value)


def test_texts_that_no_file_can_hold() -> None:
    cache = make_cache({"k": TimingValue(status="failed", reason="no file \udcff")})
    assert TimingCache(cache.serialize()).query("k") == TimingValue(status="failed", reason="no file \\udcff")
    with pytest.raises(UsageError, match="no valid text"):
        cache.update("\udcff", ONE)


def test_the_header_is_checked() -> None:
    fresh, bound = TimingCache(), make_cache({}, "gpu")
    assert fresh.matches("gpu", "1.0") is None
    assert bound.matches("gpu", "1.0") is None
    assert bound.matches("cpu", "1.0") == "the timing cache is from device 'gpu', and this is 'cpu'"
    assert bound.matches("gpu", "2.0") == "the timing cache is from version 1.0, and this is 2.0"
    bound.bind("cpu", "1.0")
    assert bound.device == "gpu"


@given(caches, caches)
def test_combine_adds_and_never_replaces(one: dict[str, TimingValue], other: dict[str, TimingValue]) -> None:
    cache = make_cache(one, "gpu")
    cache.combine(make_cache(other, "gpu"))
    assert entries_of(cache) == other | one


def test_combine_refuses_a_foreign_cache_unless_told() -> None:
    here, there = make_cache({"a": ONE}, "cpu"), make_cache({"b": ONE}, "gpu")
    with pytest.raises(TimingCacheError, match="from device 'gpu', and this is 'cpu'"):
        here.combine(there)
    assert here.query_keys() == ["a"]
    here.combine(there, ignore_mismatch=True)
    assert (here.query_keys(), here.device) == (["a", "b"], "cpu")
    fresh = TimingCache()
    fresh.combine(there)
    assert fresh.device == "gpu"


def document(**changes: object) -> bytes:
    base = {"format_version": 1, "device": "d", "version": "v", "entries": {"k": {"time_us": 1.0}}}
    return json.dumps(base | changes).encode()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"not json", "malformed"),
        (b"\xff\xfe", "damaged"),
        (b"{}", "format_version"),
        (b"[]", "damaged"),
        (b"null", "damaged"),
        (document()[:-3], "truncated"),
        (document() + b"x", "trailing"),
        (document(format_version=2), "another format version; expected 1, got 2"),
        (document(format_version="1"), "damaged"),
        (document(extra=1), "unknown field `extra`"),
        (document(entries={"k": {"time_us": 1.0, "more": 1}}), "unknown field `more`"),
        (document(entries={"k": {"time_us": "1"}}), "damaged"),
        (document(entries={"k": {"time_us": math.nan}}), "damaged"),
        (document(entries={"k": {"time_us": math.inf}}), "damaged"),
        (document(entries={"k": {"time_us": -1}}), "-1.0 is no time"),
        (document(entries={"k": {}}), 'status "timed" without a time'),
        (document(entries={"k": {"status": "lucky", "time_us": 1}}), "unknown status"),
        (document(entries=[["k", 1]]), "damaged"),
        (document(entries={"k": None}), "damaged"),
        (document().replace(b"1.0", b"1e999"), "range"),
        (document().replace(b'"k"', b'"\\ud800"'), "damaged"),
        (b'{"format_version":1,"x":' + b"[" * 200_000, "damaged"),
        (b'{"format_version":1,"entries":' + b'{"k":' * 200_000, "damaged"),
        (b"[" * 200_000, "damaged"),
        (b"\x80\x04\x95", "damaged"),
    ],
    ids=lambda v: v if isinstance(v, str) else ascii(v[:40]),
)
def test_damaged_bytes_give_a_reason(data: bytes, fault: str) -> None:
    with pytest.raises(TimingCacheError, match=fault):
        TimingCache(data)


@given(st.data())
def test_any_mutation_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(make_cache({"a": ONE, "b": TimingValue(status="failed", reason="no")}, "gpu").serialize())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        cache = TimingCache(bytes(text))
    except TimingCacheError:
        return
    assert TimingCache(cache.serialize()).serialize() == cache.serialize()


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    if data:
        with pytest.raises(TimingCacheError):
            TimingCache(data)


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 10)
    with pytest.raises(TimingCacheError, match="not a timing cache: "):
        TimingCache(document())


# the file


def test_nothing_there_is_an_empty_cache_and_leaves_no_trace(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    assert len(file.load()) == 0
    assert (file.problems, names_in(tmp_path)) == ([], [])


def test_save_and_load(tmp_path: Path) -> None:
    file = TimingCacheFile(str(tmp_path / "cache.json"))
    merged = file.merge_and_save(make_cache({"a": ONE}, "gpu"))
    assert merged.query_keys() == ["a"]
    again = TimingCacheFile(tmp_path / "cache.json").load()
    assert (entries_of(again), again.device, again.version) == ({"a": ONE}, "gpu", "1.0")
    assert (tmp_path / "cache.json").read_bytes() == again.serialize()


def test_saving_adds_to_what_others_saved(tmp_path: Path) -> None:
    one, other = (TimingCacheFile(tmp_path / "cache.json") for _ in range(2))
    mine, theirs = one.load(), other.load()
    mine.update("a", ONE)
    mine.update("both", ONE)
    theirs.update("b", ONE)
    theirs.update("both", TimingValue(time_us=7.0))
    one.merge_and_save(mine)
    merged = other.merge_and_save(theirs)
    assert entries_of(merged) == {"a": ONE, "b": ONE, "both": TimingValue(time_us=7.0)}
    assert entries_of(one.load()) == entries_of(merged)


def test_a_file_of_another_device_is_refused_unless_told(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    file.merge_and_save(make_cache({"a": ONE}, "gpu"))
    before = file.path.read_bytes()
    with pytest.raises(TimingCacheError, match="from device 'gpu', and this is 'cpu'"):
        file.merge_and_save(make_cache({"b": ONE}, "cpu"))
    assert file.path.read_bytes() == before
    merged = file.merge_and_save(make_cache({"b": ONE}, "cpu"), ignore_mismatch=True)
    assert (merged.query_keys(), merged.device) == (["a", "b"], "cpu")


def test_what_was_recorded_is_there_without_a_save_and_goes_into_the_next(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    file.merge_and_save(make_cache({"a": ONE}, "gpu"))
    file.record("b", ONE)
    file.record("a", TimingValue(time_us=3.0))
    file.record("b", TimingValue(status="failed", reason="two\nlines"))
    expected = {"a": TimingValue(time_us=3.0), "b": TimingValue(status="failed", reason="two\nlines")}
    loaded = TimingCacheFile(file.path).load()
    assert (entries_of(loaded), loaded.device) == (expected, "gpu")
    file.merge_and_save(TimingCache())
    assert names_in(tmp_path) == ["cache.json", "cache.json.lock"]
    assert entries_of(TimingCacheFile(file.path).load()) == expected
    assert file.problems == []


def test_a_line_torn_anywhere_costs_that_line_alone(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    journal = tmp_path / "cache.json.journal"
    file.record("first", ONE)
    first = journal.stat().st_size
    file.record("torn", TimingValue(status="failed", reason="long enough"))
    whole = journal.read_bytes()
    for cut in range(first, len(whole)):
        journal.write_bytes(whole[:cut])
        file.record("last", ONE)
        loaded = file.load()
        assert {"first", "last"} <= set(loaded.query_keys()) <= {"first", "torn", "last"}
    assert file.problems
    assert set(file.problems) == {f"{journal}: 1 damaged line(s) left out"}


def test_hostile_journal_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    file.record("good", ONE)
    lines = [b"[" * 100_000, b'["k",{"time_us":1e999}]', b'["k",{"time_us":-1}]', b"\xff", b'["k"]', b'["k",{"x":1}]']
    with (tmp_path / "cache.json.journal").open("ab") as journal:
        journal.write(b"\n".join(lines))
    assert file.load().query_keys() == ["good"]
    assert file.problems == [f"{file.path}.journal: {len(lines)} damaged line(s) left out"]


def test_a_damaged_file_is_reported_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    file = TimingCacheFile(path)
    file.record("kept", ONE)
    for number, name in enumerate(["cache.json.bad", "cache.json.bad1"]):
        damaged = b'{"format_version": %d, damage' % number
        path.write_bytes(damaged)
        assert file.load().query_keys() == ["kept"]
        assert (tmp_path / name).read_bytes() == damaged
        assert not path.exists()
        assert f"the file was put aside as {name}" in file.problems[-1]
        assert "malformed" in file.problems[-1]
    path.write_bytes(damaged)
    file.merge_and_save(make_cache({"new": ONE}))
    assert (tmp_path / "cache.json.bad2").read_bytes() == damaged
    assert TimingCache(path.read_bytes()).query_keys() == ["kept", "new"]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (bytes((8, 10, 18, 7)) + b"a model", "an ONNX model"),
        ((300).to_bytes(8, "little") + b'{"a', "a plan"),
        (b"PK\x03\x04", "a zip archive, as PyTorch and NumPy write them"),
        (b"import numpy\n", "another kind of file"),
        (b'{"name": "package"}', "another kind of file"),
    ],
)
def test_a_file_of_another_kind_is_an_error_and_left_alone(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "mine"
    path.write_bytes(content)
    file = TimingCacheFile(path)
    for use in (file.load, lambda: file.merge_and_save(make_cache({"a": ONE}))):
        with pytest.raises(TimingCacheError, match=f"this is {kind} and not a timing cache"):
            use()
    assert path.read_bytes() == content
    assert not list(tmp_path.glob("*.bad*"))


def test_a_temporary_file_left_by_a_crash_is_swept(tmp_path: Path) -> None:
    file = TimingCacheFile(tmp_path / "cache.json")
    with replacing(tmp_path / "cache.json"):
        (stray,) = (path for path in tmp_path.iterdir() if path.suffix == ".tmp")
    stray.write_bytes(b"half a ca")
    file.merge_and_save(make_cache({"a": ONE}))
    assert names_in(tmp_path) == ["cache.json", "cache.json.lock"]


@posix_only
@pytest.mark.parametrize("suffix", ["", ".journal"])
@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "device", "folder"])
def test_what_is_no_regular_file_is_an_error_and_left_alone(tmp_path: Path, suffix: str, kind: str) -> None:
    path, target = tmp_path / "cache.json", tmp_path / "target"
    place = path.with_name(path.name + suffix)
    target.write_bytes(b"not a cache")
    make_odd_file(place, kind, target)
    before = place.lstat().st_mode
    file = TimingCacheFile(path)
    for use in (file.load, lambda: file.merge_and_save(make_cache({"a": ONE}))):
        with pytest.raises(TimingCacheError, match=r"it is (a link|not a regular file)"):
            use()
    if suffix:
        with pytest.raises(TimingCacheError, match=r"it is (a link|not a regular file)"):
            file.record("b", ONE)
    assert place.lstat().st_mode == before
    assert target.read_bytes() == b"not a cache"
    assert not list(tmp_path.glob("*.bad*"))


@posix_only
def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    TimingCacheFile(tmp_path / "link" / "cache.json").merge_and_save(make_cache({"a": ONE}))
    assert TimingCache((tmp_path / "real" / "cache.json").read_bytes()).query_keys() == ["a"]


def test_a_lock_that_is_held_is_an_error_in_time(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with filelock.FileLock(f"{path}.lock"):
            holding.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    holding.wait(30)
    try:
        with pytest.raises(TimingCacheError, match=r"another process has held the lock for 0.1 s"):
            TimingCacheFile(path, lock_timeout_s=0.1).record("k", ONE)
    finally:
        done.set()
        holder.join()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TimingCacheError, match="cannot be written") as caught:
        TimingCacheFile(tmp_path / "file" / "cache.json").merge_and_save(TimingCache())
    assert str(tmp_path) in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(TimingCacheError, match="not a regular file"):
        TimingCacheFile(tmp_path / "folder").load()


def test_a_read_only_cache_is_read_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(make_cache({"a": ONE}).serialize())
    # What the file system says of a folder, and not the folder, because nothing is read-only for an administrator.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert TimingCacheFile(path).load().query_keys() == ["a"]
    assert names_in(tmp_path) == ["cache.json"]
    path.write_bytes(b"damage")
    with pytest.raises(TimingCacheError, match="malformed"):
        TimingCacheFile(path).load()
    assert path.read_bytes() == b"damage"


# several processes

WRITER = """
import sys
from dovetail.build.tune.cache import TimingCache, TimingCacheFile, TimingValue

path, name, mode, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
file, cache = TimingCacheFile(path), TimingCache()
print("ready", flush=True)
for number in range(count):
    key, value = f"{name}-{number}", TimingValue(time_us=float(number))
    cache.update(key, value)
    if mode == "record" or (mode == "both" and number % 3):
        file.record(key, value)
    else:
        file.merge_and_save(cache)
    print(number, flush=True)
assert file.problems == [], file.problems
"""


def start_writer(path: Path, name: str, mode: str, count: int) -> subprocess.Popen[str]:
    source = str(Path(dovetail.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, mode, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    )


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    writers = [start_writer(path, f"w{i}", "both", 60) for i in range(4)]
    reader, seen = TimingCacheFile(path), 0
    while any(writer.poll() is None for writer in writers):
        now = len(reader.load())
        assert now >= seen, "entries never vanish"
        seen = now
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    expected = {f"w{i}-{n}": TimingValue(time_us=float(n)) for i in range(4) for n in range(60)}
    assert entries_of(reader.load()) == expected
    assert reader.problems == []


@pytest.mark.parametrize("mode", ["record", "save"])
@pytest.mark.parametrize("after", [0, 7, 20])
def test_a_killed_build_loses_no_timing(tmp_path: Path, mode: str, after: int) -> None:
    path = tmp_path / "cache.json"
    with start_writer(path, "w", mode, 1_000_000) as writer:
        assert writer.stdout is not None
        while writer.stdout.readline().strip() != str(after):
            assert writer.poll() is None
        writer.kill()
        said = [line for line in writer.stdout.read().splitlines() if line.isdigit()]
    last = max([after, *map(int, said[:-1])])
    file = TimingCacheFile(path)
    loaded = file.load()
    assert {f"w-{n}" for n in range(last + 1)} <= set(loaded.query_keys())
    assert not any("put aside" in problem for problem in file.problems)
    file.record("next", ONE)
    merged = file.merge_and_save(TimingCache())
    assert set(merged.query_keys()) == {*loaded.query_keys(), "next"}
