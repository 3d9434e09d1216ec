"""Damaged and crafted plan files: each rule has its error, nothing else gets out, and nothing stays open.

`_load` does what the loader of a plan does with the container: it opens the file, checks the padding, and holds every
blob against what the manifest says of it. So damage anywhere in a file must come out as a `PlanError`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovetail.errors import PlanCorruptError, PlanError, PlanVersionError
from dovetail.plan import _header
from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes, verify_blob, write_plan

BLOBS = [
    Blob(name="conv.weight", dtype="F32", shape=(3, 5), data=bytes(range(60))),
    Blob(name="kernel.cubin", dtype="U8", shape=(100,), data=bytes(range(100, 200))),
    Blob(name="empty", dtype="I64", shape=(0, 4), data=b""),
    Blob(name="conv.bias", dtype="F32", shape=(3, 5), data=bytes(range(60, 120))),
]
RECORDS = {
    blob.name: {
        "dtype": blob.dtype,
        "shape": list(blob.shape),
        "algorithm": (algorithm := "sha256" if blob.dtype == "U8" else "xxh3"),
        "digest": digest_blob(blob.data, algorithm),
    }
    for blob in BLOBS
}
MANIFEST = json.dumps({"blobs": RECORDS, "producer": 'Dovetail "1"'}).encode()
PLAN = plan_bytes(MANIFEST, BLOBS)
DATA_START = 8 + int.from_bytes(PLAN[:8], "little")
HEADER: dict[str, Any] = json.loads(PLAN[8:DATA_START])
DATA = PLAN[DATA_START:]
MANIFEST_START = PLAN.index(b'dovetail.manifest":')
FD_FOLDER = Path("/dev/fd")


def _load(file: PlanFile) -> None:
    with file:
        file.verify_padding()
        records = json.loads(file.manifest)["blobs"]
        found = {i.name: (i.dtype, list(i.shape)) for i in file.blobs.values()}
        if found != {name: (record["dtype"], record["shape"]) for name, record in records.items()}:
            raise PlanCorruptError("blobs are not the manifest's")
        for name, record in records.items():
            verify_blob(name, file.blob(name), record["algorithm"], record["digest"])


def _count_open_files() -> int:
    return len(list(FD_FOLDER.iterdir())) if FD_FOLDER.is_dir() else 0


def _error_of(load: Callable[[], None]) -> PlanError:
    try:
        load()
    except PlanError as error:
        # The frames of a traceback hold views of the map.
        return error.with_traceback(None)
    pytest.fail("the file was taken for a whole plan")


def _refused(raw: bytes, folder: Path) -> PlanError:
    """Check that a file is refused alike from memory and from disk, leaving nothing open, and return the error."""
    path = folder / "attack.plan"
    path.write_bytes(raw)
    before = _count_open_files()
    from_memory = _error_of(lambda: _load(PlanFile.from_bytes(raw)))
    from_disk = _error_of(lambda: _load(PlanFile.open(path)))
    assert _count_open_files() <= before  # what earlier tests left may be collected meanwhile
    assert from_disk.what == from_memory.what
    assert type(from_disk) is type(from_memory)
    return from_disk


def _pack(header: bytes | dict[str, Any], data: bytes = DATA, *, alignment: int = 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % alignment)
    return len(text).to_bytes(8, "little") + text + data


def _edited(edit: Callable[[dict[str, Any]], object], data: bytes = DATA) -> bytes:
    header = copy.deepcopy(HEADER)
    edit(header)
    return _pack(header, data)


def _with(name: str, **fields: object) -> bytes:
    return _edited(lambda header: header[name].update(fields))


def _with_metadata(**fields: object) -> bytes:
    return _edited(
        lambda h: h["__metadata__"].update({f"dovetail.{k.replace('_', '.')}": v for k, v in fields.items()})
    )


def _renamed(old: str, new: str) -> bytes:
    return _edited(lambda header: header.update({new: header.pop(old)}))


def _replaced(old: bytes, new: bytes) -> bytes:
    text = PLAN[8:DATA_START].rstrip(b" ")
    assert text.count(old) == 1
    return _pack(text.replace(old, new))


def _length(value: int) -> bytes:
    return value.to_bytes(8, "little") + PLAN[8:]


def _with_manifest(manifest: str) -> bytes:
    return _with_metadata(manifest=manifest, manifest_sha256=hashlib.sha256(manifest.encode()).hexdigest())


ENTRY = b'"conv.weight":{"dtype":"F32","shape":[3,5],"data_offsets":[0,60]}'
FULL = len(DATA)

# What each rule says, and files that break that rule and keep those before it.
RULES: dict[str, list[bytes]] = {
    "file is too short to be a plan": [b"", b"{", PLAN[:7]],
    "header is over its size limit": [_length(2**64 - 1), _length(2**63), _length(100_000_001)],
    "header is longer than the file": [_length(len(PLAN)), _length(len(PLAN) - 7), PLAN[:8], _length(100_000_000)],
    "header is not one object padded with spaces": [
        _length(0),
        _pack(b"[]"),
        _pack(b" {}"),
        _pack(b"\xef\xbb\xbf{}"),
        _pack(b"{}\n"),
        _pack(b"{}\0"),
        _pack(b"null"),
        _length(DATA_START - 8 - PLAN[8:DATA_START].count(b" " * 3) - 64),
    ],
    "header is not UTF-8": [_pack(b'{"\xff":1}'), _pack(b'{"a":"\xed\xa0\x80"}'), _pack(b'{"a":"\xc0\x80"}')],
    "header is not a JSON object": [
        _pack(b"{a}"),
        _pack(b"{}{}"),
        _pack(b'{"a":01}'),
        _pack(b'{"a":NaN}'),
        _pack(b'{"a":1,}'),
        _pack(b"{'a':1}"),
        _pack(b'{"\\ud800":{}}'),
        _replaced(b'"dtype":"U8","shape":[100]', b'"dtype":"\\udc00","shape":[100]'),
        _pack(b'{"a":{}/**/}'),
        _pack(b"{1:{}}"),
    ],
    "header is nested too deeply": [
        _pack(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        _pack(b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}"),
        _replaced(b'"shape":[0,4]', b'"shape":' + b"[" * 100_000 + b"]" * 100_000),
        _replaced(b'"dovetail.container":"1"', b'"dovetail.container":' + b"[" * 100_000 + b"]" * 100_000),
    ],
    "file has no metadata, so it is not a plan": [_pack(b"{}", b""), _edited(lambda h: h.pop("__metadata__"))],
    "metadata is not strings by name": [
        _edited(lambda h, v=value: h.update(__metadata__=v))
        for value in (None, 1, "text", [], {"a": 1}, {"a": {}}, {"a": None})
    ]
    + [_with_metadata(container=1), _with_metadata(manifest={}), _with_metadata(manifest_sha256=True)],
    "file names no container version, so it is not a plan": [
        _edited(lambda h: h.update(__metadata__={})),
        _edited(lambda h: h["__metadata__"].pop("dovetail.container")),
    ],
    "plan has another container version": [
        _with_metadata(container=value) for value in ("2", "0", "", "1.0", " 1", "01")
    ],
    "metadata has a key missing or unknown": [
        _edited(lambda h: h["__metadata__"].pop("dovetail.manifest")),
        _edited(lambda h: h["__metadata__"].pop("dovetail.manifest.sha256")),
        _with_metadata(signature="0"),
        _edited(lambda h: h["__metadata__"].update(format="pt")),
    ],
    "entry is malformed": [
        _edited(lambda h, v=value: h.update(x=v))
        for value in (None, 1, "text", [], {}, [1, 2], {"dtype": "U8"}, {"a": {"b": {}}})
    ]
    + [_with("conv.weight", dtype=value) for value in (None, 1, ["F32"], {})]
    + [
        _with("conv.weight", shape=value)
        for value in (None, 15, "15", {}, [[3, 5]], ["3", 5], [True, 15], [3.0, 5], [None])
    ]
    + [_with("conv.weight", shape=value) for value in ([-3, -5], [-1], [2**63], [2**64], [10**400], [1e2])]
    + [
        _with("conv.weight", data_offsets=value)
        for value in (None, 60, [], [0], [0, 60, 60], [0, True], [0.0, 60], ["0", 60])
    ]
    + [
        _with("conv.weight", data_offsets=value)
        for value in ([-60, 0], [0, 2**63], [-(2**70), 60], [0, 60.5], {"0": 60})
    ]
    + [_with("conv.weight", extra=1), _edited(lambda h: h["conv.weight"].pop("shape"))],
    "header has a key twice in one object": [
        _replaced(ENTRY, ENTRY + b"," + ENTRY),
        _replaced(ENTRY, ENTRY.replace(b"[0,60]", b"[64,124]") + b"," + ENTRY),
        _replaced(ENTRY, ENTRY[:-1] + b',"dtype":"F32"}'),
        _replaced(ENTRY, ENTRY.replace(b'"shape"', b'"shape":[15],"shape"')),
        _replaced(ENTRY, ENTRY.replace(b'"data_offsets"', b'"data\\u005foffsets":[0,60],"data_offsets"')),
        _replaced(ENTRY, ENTRY + b"," + ENTRY.replace(b"conv", b"\\u0063onv")),
        _replaced(b'"dovetail.container":"1"', b'"dovetail.container":"1","dovetail.container":"1"'),
        _replaced(b'"dovetail.container":"1"', b'"dovetail.container":"2","dovetail.container":"1"'),
        _replaced(b'"__metadata__":', b'"__metadata__":{"dovetail.container":"1"},"__metadata__":'),
    ],
    "manifest does not match its sha256": [
        _with_metadata(manifest="{}"),
        _with_metadata(manifest=MANIFEST.decode() + " "),
        _with_metadata(manifest=""),
        _with_metadata(manifest_sha256=""),
        _with_metadata(manifest_sha256=hashlib.sha256(MANIFEST).hexdigest().upper()),
        _with_metadata(manifest_sha256=hashlib.sha256(b"").hexdigest()),
    ],
    "tensor name is not allowed": [_renamed("empty", name) for name in ("", "a\0b", "\0", "a" * 4097, "\u00e9" * 5000)],
    "tensor type is unknown": [
        _with("conv.weight", dtype=value)
        for value in ("", "f32", "F33", "F4", "F8_E8M0", "F32 ", "object", "__class__")
    ],
    "tensor shape is not allowed": [
        _with("empty", shape=[0, 2**62, 2**62]),
        _with("empty", shape=[2**63 - 1, 2]),
        _with("empty", shape=[2**32, 2**32]),
        _with("conv.weight", shape=[15] + [1] * 64),
        _with("conv.weight", shape=[2**62, 4, 15]),
    ],
    "tensor ends before it begins": [_with("conv.weight", data_offsets=[60, 0]), _with("empty", data_offsets=[64, 63])],
    "tensor type and shape do not fill its offsets": [
        _with("conv.weight", dtype="F64"),
        _with("conv.weight", dtype="F16"),
        _with("conv.weight", shape=[3, 6]),
        _with("conv.weight", shape=[]),
        _with("conv.weight", shape=[0]),
        _with("conv.weight", shape=[2**61]),
        _with("conv.weight", data_offsets=[0, 64]),
        _with("conv.weight", data_offsets=[4, 60]),
        _with("empty", shape=[1, 1]),
    ],
    "tensor overlaps another": [
        _with("conv.bias", data_offsets=[0, 60]),
        _with("kernel.cubin", data_offsets=[0, 100]),
        _with("kernel.cubin", data_offsets=[63, 163]),
        _with("empty", data_offsets=[70, 70]),
        _with("conv.bias", data_offsets=[FULL - 61, FULL - 1]),
        _edited(lambda h: h.update(copy={"dtype": "F32", "shape": [15], "data_offsets": [0, 60]})),
    ],
    "tensor has a hole before it": [
        _edited(lambda h: h.pop("conv.weight")),
        _edited(lambda h: h.pop("_pad.0")),
        _edited(lambda h: h.pop("kernel.cubin")),
        _with("conv.bias", data_offsets=[FULL - 56, FULL + 4]),
        _with("conv.bias", data_offsets=[2**63 - 61, 2**63 - 1]),
        _edited(lambda h: h.update(x={"dtype": "U8", "shape": [0], "data_offsets": [FULL + 64, FULL + 64]})),
    ],
    "tensor ends after the file": [
        PLAN[:-1],
        PLAN[:-60],
        PLAN[:DATA_START],
        _edited(lambda h: h.update(x={"dtype": "U8", "shape": [64], "data_offsets": [FULL, FULL + 64]})),
        _edited(lambda h: h.update(x={"dtype": "U8", "shape": [2**62], "data_offsets": [FULL, FULL + 2**62]})),
    ],
    "file has bytes after its last tensor": [
        PLAN + b"\0",
        PLAN + PLAN,
        PLAN + bytes(4096),
        PLAN + b"PK\x05\x06" + bytes(18),
        _edited(lambda h: h.pop("conv.bias")),
        _edited(lambda h: [h.pop(name) for name in list(h) if name != "__metadata__"]),
    ],
    "pad is not a short row of bytes": [
        _with("_pad.0", dtype="I8"),
        _with("_pad.0", shape=[2, 2]),
        _with("_pad.0", shape=[4, 1]),
        _with("_pad.0", dtype="F32", shape=[1]),
        _renamed("_pad.0", "_pad."),
        _renamed("_pad.0", "_pad.x"),
        _renamed("_pad.0", "_pad.-1"),
        _renamed("_pad.0", "_pad.\u0660"),
        _renamed("empty", "_pad.9"),
        _edited(
            lambda h: h.update({"_pad.9": {"dtype": "U8", "shape": [4096], "data_offsets": [FULL, FULL + 4096]}}),
            DATA + bytes(4096),
        ),
    ],
    "blob is not aligned in the file": [
        _pack(PLAN[8:DATA_START] + b" ", alignment=1),
        _pack(PLAN[8:DATA_START] + b" " * 32, alignment=1),
        _renamed("_pad.0", "stowaway"),
        _edited(lambda h: (h.pop("_pad.0"), h.update(a={"dtype": "U8", "shape": [4], "data_offsets": [60, 64]}))),
        _edited(lambda h: h.update(x={"dtype": "U8", "shape": [0], "data_offsets": [60, 60]})),
        _edited(
            lambda h: h.update(
                {
                    "_pad.8": {"dtype": "U8", "shape": [4], "data_offsets": [FULL, FULL + 4]},
                    "big": {"dtype": "U8", "shape": [2**20 + 1], "data_offsets": [FULL + 4, FULL + 5 + 2**20]},
                }
            ),
            DATA + bytes(5 + 2**20),
        ),
    ],
    "pad is not all zero": [
        PLAN.replace(bytes([59, 0, 0, 0, 0, 100]), bytes([59, 0, 0, 0, 1, 100])),
        PLAN.replace(bytes([59, 0, 0, 0, 0, 100]), b"\x3b#!/b\x64"),
    ],
    "blob does not match its xxh3 digest": [
        _edited(
            lambda h: (
                h["conv.weight"].update(data_offsets=list(h["conv.bias"]["data_offsets"])),
                h["conv.bias"].update(data_offsets=[0, 60]),
            )
        ),
        PLAN[:DATA_START] + b"\xff" + PLAN[DATA_START + 1 :],
        PLAN[:-1] + b"\xff",
    ],
    "blob does not match its sha256 digest": [PLAN.replace(bytes(range(100, 110)), bytes(range(101, 111)))],
    "blobs are not the manifest's": [
        _renamed("conv.weight", "conv.weighs"),
        _with("conv.weight", dtype="I32"),
        _with("conv.weight", shape=[5, 3]),
        _edited(lambda h: h.pop("empty")),
    ],
    "digest algorithm is unknown": [
        _with_manifest(MANIFEST.decode().replace("sha256", "md5")),
        _with_manifest(MANIFEST.decode().replace('"xxh3"', '""')),
    ],
}
RULE_CASES = [
    pytest.param(what, raw, id=f"{what.replace(' ', '-')}-{index}")
    for what, files in RULES.items()
    for index, raw in enumerate(files)
]


def test_the_plan_that_is_attacked_is_whole(tmp_path: Path) -> None:
    _load(PlanFile.from_bytes(PLAN))
    _load(PlanFile.from_bytes(_pack(HEADER)))
    (tmp_path / "m.plan").write_bytes(PLAN)
    _load(PlanFile.open(tmp_path / "m.plan"))
    assert "_pad.0" in HEADER


@pytest.mark.parametrize(("what", "raw"), RULE_CASES)
def test_each_rule_has_its_error(what: str, raw: bytes, tmp_path: Path) -> None:
    error = _refused(raw, tmp_path)
    assert error.what == what
    assert type(error) is (PlanVersionError if what == "plan has another container version" else PlanCorruptError)
    assert len(str(error)) < 2000
    if what != "blobs are not the manifest's":
        assert error.where
        assert error.fix


@pytest.mark.parametrize("part", range(64))
def test_a_file_cut_at_any_64th_is_refused(part: int, tmp_path: Path) -> None:
    _refused(PLAN[: len(PLAN) * part // 64], tmp_path)


FLIPS = {
    "length": [(position, bit) for position in range(8) for bit in range(8)],
    "header": [(position, position % 8) for position in range(8, DATA_START, 3)],
    "manifest": [(position, position % 7) for position in range(MANIFEST_START, MANIFEST_START + len(MANIFEST), 3)],
    "data": [(position, (position // 2) % 8) for position in range(DATA_START, len(PLAN), 2)],
}


@pytest.mark.parametrize("part", FLIPS)
def test_a_flipped_bit_is_found_wherever_it_is(part: str, tmp_path: Path) -> None:
    for position, bit in FLIPS[part]:
        damaged = bytearray(PLAN)
        damaged[position] ^= 1 << bit
        _refused(bytes(damaged), tmp_path)


def _random_edit(chooser: random.Random) -> bytes:
    raw = bytearray(PLAN)
    for _ in range(chooser.randint(1, 4)):
        at, count = chooser.randrange(len(raw)), chooser.randint(1, 8)
        kind = chooser.choice(["overwrite", "insert", "delete", "copy", "digits"])
        if kind == "overwrite":
            raw[at : at + count] = chooser.randbytes(count)
        elif kind == "insert":
            raw[at:at] = chooser.randbytes(count)
        elif kind == "delete":
            del raw[at : at + count]
        elif kind == "copy":
            source = chooser.randrange(len(raw))
            raw[at : at + 16] = raw[source : source + 16]
        else:
            at = chooser.choice([i for i, byte in enumerate(raw[:DATA_START]) if 48 <= byte < 58] or [0])
            raw[at : at + 1] = str(chooser.choice([0, 1, 9, 64, 2**31, 2**63, 2**64])).encode()
    return bytes(raw)


@pytest.mark.parametrize("seed", range(20))
def test_random_edits_are_refused(seed: int, tmp_path: Path) -> None:
    chooser = random.Random(seed)
    for _ in range(25):
        raw = _random_edit(chooser)
        if raw != PLAN:
            _refused(raw, tmp_path)


def test_too_many_tensors_are_refused_before_any_is_read(tmp_path: Path) -> None:
    metadata = json.dumps(HEADER["__metadata__"])
    tensors = ",".join(f'"{index}":0' for index in range(_header.MAX_TENSORS + 1))
    error = _refused(_pack(f'{{"__metadata__":{metadata},{tensors}}}'.encode()), tmp_path)
    assert error.what == "header has too many tensors"


def test_a_newer_version_is_told_before_rules_it_may_have_changed(tmp_path: Path) -> None:
    header = {"__metadata__": {"dovetail.container": "2", "new": "x"}, "w": {"codec": "zstd"}}
    assert isinstance(_refused(_pack(header, b"any data"), tmp_path), PlanVersionError)


def test_control_characters_of_a_file_do_not_reach_the_message(tmp_path: Path) -> None:
    for name in ("\x1b[2J", "a\nb", "\u202ecod", "a" * 4000):
        error = _refused(_edited(lambda h, n=name: h.update({n: {"dtype": "\x1b[31m", "\x1b": 1}})), tmp_path)
        assert str(error).isascii()
        assert "\x1b" not in str(error)
        assert str(error).count("\n") == 1
        assert len(str(error)) < 700


class TestFiles:
    @pytest.mark.skipif(os.name != "posix", reason="needs POSIX file kinds")
    def test_what_is_not_a_regular_file_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to("pipe")
        for path in (tmp_path, tmp_path / "pipe", tmp_path / "link", Path(os.devnull)):
            before = _count_open_files()
            with pytest.raises(PlanCorruptError, match="not a regular file"):
                PlanFile.open(path)
            assert _count_open_files() == before

    def test_a_path_that_leads_nowhere_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match=r"missing\.plan: plan cannot be read; got No such file"):
            PlanFile.open(tmp_path / "missing.plan")
        with pytest.raises(PlanError, match="path has a NUL character"):
            PlanFile.open("a\0b")

    @pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut short elsewhere")
    def test_a_file_cut_short_while_open_is_refused_and_not_touched(self, tmp_path: Path) -> None:
        write_plan(tmp_path / "m.plan", MANIFEST, BLOBS)
        with PlanFile.open(tmp_path / "m.plan") as file:
            os.truncate(tmp_path / "m.plan", 100)
            for use in (lambda: file.blob("conv.weight"), file.verify_padding):
                with pytest.raises(PlanCorruptError, match=r"file became shorter while open; expected .* got 100"):
                    use()

    @pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut short elsewhere")
    def test_a_blob_that_is_checked_in_the_file_may_be_cut_short_meanwhile(self, tmp_path: Path) -> None:
        weights = Blob(name="w", dtype="U8", shape=(1 << 20,), data=bytes(1 << 20))
        write_plan(tmp_path / "m.plan", MANIFEST, [weights])
        digest = digest_blob(weights.data, "xxh3")
        with PlanFile.open(tmp_path / "m.plan") as file:
            file.verify_in_file("w", "xxh3", digest)
            os.truncate(tmp_path / "m.plan", 1 << 19)
            with pytest.raises(PlanCorruptError, match=f"file became shorter while open; expected .* got {1 << 19}"):
                file.verify_in_file("w", "xxh3", digest)
            os.truncate(tmp_path / "m.plan", file.size_bytes)
            with pytest.raises(PlanCorruptError, match="blob 'w': blob does not match its xxh3 digest"):
                file.verify_in_file("w", "xxh3", digest[::-1])

    @pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut short elsewhere")
    @pytest.mark.parametrize("keep", [4, 100, DATA_START, len(PLAN) - 1])
    def test_a_file_cut_short_while_it_is_being_opened(
        self, keep: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "m.plan"
        path.write_bytes(PLAN)
        true_parse = _header.parse_header

        def cut_and_parse(*args: Any) -> _header.Header:
            os.truncate(path, keep)
            return true_parse(*args)

        monkeypatch.setattr("dovetail.plan.container.parse_header", cut_and_parse)
        with pytest.raises(PlanCorruptError, match="file became shorter while open"):
            PlanFile.open(path)

    def test_a_header_that_ends_early_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.plan"
        path.write_bytes(PLAN[:100])
        monkeypatch.setattr("dovetail.plan.container.data_start", lambda *_: DATA_START)
        with pytest.raises(PlanCorruptError, match="file became shorter while open"):
            PlanFile.open(path)
