"""The plan container: what is written comes back, aligned, and the safetensors library reads the same."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PlanCorruptError, PlanError, ResourceError, UsageError
from dovetail.plan import _header
from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes, verify_blob, write_plan

NO_BUILD = "the safetensors library has no build for this Python"
safetensors = pytest.importorskip("safetensors", reason=NO_BUILD)
pytest.importorskip("safetensors.numpy", reason=NO_BUILD)

MANIFEST = b'{"steps":["a \\"quoted\\" name"],"unit":"\xc2\xb5s"}'
NATIVE = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
    "C64": np.complex64,
}
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files: FIFOs, links, size limits")


def _blob(name: str, array: np.ndarray, dtype: str = "F32") -> Blob:
    return Blob(name=name, dtype=dtype, shape=array.shape, data=array)


def _filler(size_bytes: int) -> bytes:
    return np.random.default_rng(size_bytes).bytes(size_bytes)


WEIGHT = _blob("w", np.arange(6, dtype=np.float32).reshape(2, 3))

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12).filter(
    lambda name: not name.startswith("_pad.")
)


@st.composite
def blobs(draw: st.DrawFn) -> list[Blob]:
    made = []
    for name in draw(st.lists(names, unique=True, max_size=8)):
        dtype = draw(st.sampled_from(sorted(_header.DTYPE_BYTES)))
        shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))
        size_bytes = int(np.prod(shape, dtype=np.int64)) * _header.DTYPE_BYTES[dtype]
        made.append(Blob(name=name, dtype=dtype, shape=shape, data=_filler(size_bytes)))
    return made


class TestRoundTrip:
    @given(manifest=st.text(st.characters(exclude_categories=["Cs"])), made=blobs())
    def test_what_is_written_comes_back(self, manifest: str, made: list[Blob]) -> None:
        raw = plan_bytes(manifest.encode(), made)
        with PlanFile.from_bytes(raw) as file:
            assert file.manifest == manifest.encode()
            assert file.size_bytes == len(raw)
            assert [(i.name, i.dtype, i.shape) for i in file.blobs.values()] == [
                (b.name, b.dtype, b.shape) for b in made
            ]
            for blob in made:
                info = file.blobs[blob.name]
                assert bytes(file.blob(blob.name)) == blob.data == raw[info.begin : info.end]
                assert info.size_bytes == len(bytes(blob.data))
                assert info.begin % 64 == 0
            file.verify_padding()

    @given(made=blobs())
    def test_the_library_reads_the_same(self, made: list[Blob]) -> None:
        read = dict(safetensors.deserialize(plan_bytes(MANIFEST, made)))
        pads = [read.pop(name) for name in list(read) if name.startswith("_pad.")]
        assert {pad["dtype"] for pad in pads} <= {"U8"}
        assert {n: (e["dtype"], tuple(e["shape"]), bytes(e["data"])) for n, e in read.items()} == {
            blob.name: (blob.dtype, blob.shape, blob.data) for blob in made
        }

    @settings(max_examples=10)
    @given(sizes=st.lists(st.sampled_from([0, 1, 63, 64, 65, 4096, 2**20 - 1, 2**20, 2**20 + 1]), max_size=5))
    def test_offsets_in_the_file_are_aligned(self, sizes: list[int]) -> None:
        made = [Blob(name=f"b{i}", dtype="U8", shape=(n,), data=bytes(n)) for i, n in enumerate(sizes)]
        raw = plan_bytes(b"{}", made)
        large = any(size > 2**20 for size in sizes)
        assert (8 + int.from_bytes(raw[:8], "little")) % (4096 if large else 64) == 0
        with PlanFile.from_bytes(raw) as file:
            for info in file.blobs.values():
                assert info.begin % (4096 if info.size_bytes > 2**20 else 64) == 0

    def test_mapped_arrays_are_aligned_in_memory(self, tmp_path: Path) -> None:
        big = np.zeros(2**20 + 4, np.uint8)
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT, _blob("big", big, "U8"), _blob("tail", big[:100], "U8")])
        with PlanFile.open(tmp_path / "m.plan") as file:
            addresses = {name: np.frombuffer(file.blob(name), np.uint8).ctypes.data for name in file.blobs}
        assert addresses["big"] % 4096 == 0
        assert [addresses[name] % 64 for name in ("w", "tail")] == [0, 0]

    def test_native_types_through_the_numpy_reader(self, tmp_path: Path) -> None:
        arrays = {dtype: np.arange(7).astype(kind) for dtype, kind in NATIVE.items()}
        write_plan(tmp_path / "m.plan", MANIFEST, [_blob(dtype, array, dtype) for dtype, array in arrays.items()])
        loaded = safetensors.numpy.load((tmp_path / "m.plan").read_bytes())
        with safetensors.safe_open(tmp_path / "m.plan", "numpy") as opened, PlanFile.open(tmp_path / "m.plan") as file:
            assert opened.metadata()["dovetail.manifest"].encode() == MANIFEST
            assert opened.metadata()["dovetail.manifest.sha256"] == hashlib.sha256(MANIFEST).hexdigest()
            assert opened.metadata()["dovetail.container"] == "1"
            for dtype, array in arrays.items():
                ours = np.frombuffer(file.blob(dtype), array.dtype)
                for theirs in (loaded[dtype], opened.get_tensor(dtype), ours):
                    np.testing.assert_array_equal(theirs, array, strict=True)

    @pytest.mark.parametrize(
        ("dtype", "kind"),
        [("BF16", ml_dtypes.bfloat16), ("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2)],
    )
    def test_types_that_numpy_lacks(self, dtype: str, kind: type) -> None:
        array = np.linspace(-2, 2, 10).reshape(2, 5).astype(kind)
        with PlanFile.from_bytes(plan_bytes(MANIFEST, [_blob("x", array, dtype)])) as file:
            back = np.frombuffer(file.blob("x"), kind).reshape(file.blobs["x"].shape)
            np.testing.assert_array_equal(back, array)

    @pytest.mark.parametrize("data", [np.array(3, "f4"), memoryview(np.array([3], "f4")), ctypes.c_float(3)])
    def test_scalars_and_views_are_written_as_bytes(self, data: np.ndarray) -> None:
        raw = plan_bytes(MANIFEST, [Blob(name="x", dtype="F32", shape=(), data=data)])
        with PlanFile.from_bytes(raw) as file:
            assert bytes(file.blob("x")) == struct.pack("<f", 3)

    def test_an_empty_array_with_strides_is_written(self) -> None:
        array = np.zeros((4, 0, 3), np.float32)
        with PlanFile.from_bytes(plan_bytes(MANIFEST, [_blob("x", array)])) as file:
            assert file.blobs["x"].shape == (4, 0, 3)
            assert file.blob("x").nbytes == 0

    def test_the_same_plan_gives_the_same_bytes(self) -> None:
        assert plan_bytes(MANIFEST, [WEIGHT]) == plan_bytes(MANIFEST, [WEIGHT])

    def test_the_header_may_be_spelled_by_another_writer(self) -> None:
        text = json.dumps(
            {
                "w": {"data_offsets": [0, 4], "shape": [1], "dtype": "F32"},
                "__metadata__": {
                    "dovetail.manifest": "{}",
                    "dovetail.manifest.sha256": hashlib.sha256(b"{}").hexdigest(),
                    "dovetail.container": "1",
                },
            },
            indent=2,
        ).encode()
        text = text.ljust(64 * 8 - 8)
        with PlanFile.from_bytes(len(text).to_bytes(8, "little") + text + b"abcd") as file:
            assert bytes(file.blob("w")) == b"abcd"


class TestForeignFiles:
    def test_a_plain_safetensors_file_is_not_a_plan(self) -> None:
        with pytest.raises(PlanCorruptError, match="no metadata, so it is not a plan"):
            PlanFile.from_bytes(safetensors.numpy.save({"w": np.zeros(3)}))
        with pytest.raises(PlanCorruptError, match="no container version, so it is not a plan"):
            PlanFile.from_bytes(safetensors.numpy.save({"w": np.zeros(3)}, {"format": "np"}))

    def test_a_file_of_the_library_is_refused_for_its_alignment(self) -> None:
        metadata = {
            "dovetail.manifest": "{}",
            "dovetail.manifest.sha256": hashlib.sha256(b"{}").hexdigest(),
            "dovetail.container": "1",
        }
        raw = safetensors.numpy.save({"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}, metadata)
        with pytest.raises(
            PlanCorruptError, match="blob is not aligned in the file; expected a multiple of 64"
        ) as info:
            PlanFile.from_bytes(raw)
        assert info.value.where in {"plan bytes, tensor 'a'", "plan bytes, tensor 'b'"}
        assert info.value.fix == "only Dovetail writes plans: build the plan again"


class TestWriting:
    @pytest.mark.parametrize(
        ("blob", "what"),
        [
            (Blob(name="", dtype="U8", shape=(0,), data=b""), "blob name is not allowed; got an empty name"),
            (Blob(name="a\0", dtype="U8", shape=(0,), data=b""), "blob name is not allowed; got a NUL character"),
            (Blob(name="a" * 4097, dtype="U8", shape=(0,), data=b""), "got 4097 characters, over 4096"),
            (Blob(name="_pad.x", dtype="U8", shape=(0,), data=b""), "a name that the container uses itself"),
            (Blob(name="__metadata__", dtype="U8", shape=(0,), data=b""), "a name that the container uses itself"),
            (Blob(name="\ud800", dtype="U8", shape=(0,), data=b""), "a blob name is not Unicode text"),
            (Blob(name="a", dtype="F4", shape=(0,), data=b""), "blob type is unknown"),
            (Blob(name="a", dtype="U8", shape=(-1,), data=b""), "blob shape is not made of sizes"),
            (Blob(name="a", dtype="U8", shape=(True,), data=b"1"), "blob shape is not made of sizes"),
            (Blob(name="a", dtype="U8", shape=(0, 2**62, 4), data=b""), "blob shape is not allowed; got over"),
            (Blob(name="a", dtype="U8", shape=(1,) * 65, data=b"1"), "blob shape is not allowed; got rank 65"),
            (Blob(name="a", dtype="U8", shape=(3,), data=b"1"), "does not fill its type and shape; expected 3 bytes"),
            (Blob(name="a", dtype="F32", shape=(2, 3), data=WEIGHT.data.T), "data cannot be viewed as bytes"),
            (Blob(name="a", dtype="F32", shape=(2,), data=np.zeros(2, ">f4")), "data cannot be viewed as bytes"),
            (Blob(name="a", dtype="U8", shape=(8,), data=np.array([None])), "data cannot be viewed as bytes"),
            (Blob(name="a", dtype="U8", shape=(2,), data=memoryview(b"1234")[::2]), "data cannot be viewed as bytes"),
            (Blob(name="a", dtype="F32", shape=(2,), data=memoryview(np.zeros(2, ">f4"))), "values are big-endian"),
            (Blob(name="a", dtype="U8", shape=(2,), data="12"), "data cannot be viewed as bytes"),
        ],
    )
    def test_a_blob_that_no_reader_would_take_is_refused(self, blob: Blob, what: str) -> None:
        with pytest.raises(UsageError, match=what):
            plan_bytes(MANIFEST, [blob])

    def test_two_blobs_of_one_name_are_refused(self) -> None:
        with pytest.raises(UsageError, match="two blobs have one name"):
            plan_bytes(MANIFEST, [WEIGHT, WEIGHT])

    def test_a_manifest_that_is_not_text_is_refused(self) -> None:
        with pytest.raises(UsageError, match="manifest is not UTF-8"):
            plan_bytes(b"\xff", [])

    def test_limits_are_the_readers_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_header, "MAX_TENSORS", 1)
        with pytest.raises(UsageError, match="too many tensors for one plan; expected <= 1, got 3"):
            plan_bytes(MANIFEST, [WEIGHT, _blob("v", np.zeros(1, np.float32))])
        monkeypatch.setattr(_header, "MAX_HEADER_BYTES", 128)
        with pytest.raises(UsageError, match="manifest is too long for one plan; expected <= 128 bytes"):
            plan_bytes(MANIFEST, [WEIGHT])

    def test_a_path_and_a_stream_get_the_same_bytes(self, tmp_path: Path) -> None:
        stream = io.BytesIO()
        write_plan(stream, MANIFEST, [WEIGHT])
        write_plan(str(tmp_path / "m.plan"), MANIFEST, [WEIGHT])
        assert stream.getvalue() == (tmp_path / "m.plan").read_bytes() == plan_bytes(MANIFEST, [WEIGHT])

    def test_a_stream_may_take_less_than_it_is_given(self) -> None:
        class Slow(io.BytesIO):
            def write(self, data: memoryview) -> int:
                return super().write(data[:7])

        stream = Slow()
        write_plan(stream, MANIFEST, [WEIGHT])
        assert stream.getvalue() == plan_bytes(MANIFEST, [WEIGHT])

    def test_a_stream_that_takes_nothing_is_refused(self) -> None:
        class Full(io.BytesIO):
            def write(self, data: memoryview) -> int:
                return 0

        with pytest.raises(UsageError, match="stream takes no bytes"):
            write_plan(Full(), MANIFEST, [WEIGHT])


class TestAtomicWriting:
    @posix_only
    def test_a_full_disk_leaves_the_old_plan_and_nothing_else(self, tmp_path: Path) -> None:
        import resource

        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        before = (tmp_path / "m.plan").read_bytes()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        try:
            with pytest.raises(ResourceError, match="plan cannot be written"):
                write_plan(tmp_path / "m.plan", MANIFEST, [_blob("big", np.zeros(100_000, np.uint8), "U8")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (tmp_path / "m.plan").read_bytes() == before
        assert list(tmp_path.iterdir()) == [tmp_path / "m.plan"]

    def test_an_interrupt_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        assert list(tmp_path.iterdir()) == []

    def test_a_refused_blob_touches_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError):
            write_plan(tmp_path / "m.plan", b"\xff", [])
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(PlanError, match=r"missing.*plan cannot be written.*\n.*fix"):
            write_plan(tmp_path / "missing" / "m.plan", MANIFEST, [WEIGHT])

    def test_what_is_not_a_file_is_left_alone(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="target is not a regular file"):
            write_plan(tmp_path, MANIFEST, [WEIGHT])
        with pytest.raises(UsageError, match="path has a NUL character"):
            write_plan("a\0b", MANIFEST, [WEIGHT])

    @posix_only
    def test_a_link_is_followed_and_a_device_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("m.plan")
        write_plan(tmp_path / "link", MANIFEST, [WEIGHT])
        assert (tmp_path / "link").is_symlink()
        assert not (tmp_path / "m.plan").is_symlink()
        with PlanFile.open(tmp_path / "link") as file:
            assert file.manifest == MANIFEST
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UsageError, match="target is not a regular file"):
            write_plan(tmp_path / "pipe", MANIFEST, [WEIGHT])

    @posix_only
    def test_who_may_read_is_decided_by_the_umask(self, tmp_path: Path) -> None:
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        (tmp_path / "plain").touch()
        assert (tmp_path / "m.plan").stat().st_mode == (tmp_path / "plain").stat().st_mode

    @posix_only
    def test_a_mapped_plan_survives_its_replacement(self, tmp_path: Path) -> None:
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        with PlanFile.open(tmp_path / "m.plan") as file:
            write_plan(tmp_path / "m.plan", b"{}", [])
            assert bytes(file.blob("w")) == WEIGHT.data.tobytes()
        with PlanFile.open(tmp_path / "m.plan") as file:
            assert file.blobs == {}


class TestOpenFile:
    def test_blobs_are_read_only_views_without_a_copy(self, tmp_path: Path) -> None:
        raw = bytearray(plan_bytes(MANIFEST, [WEIGHT]))
        with PlanFile.from_bytes(raw) as file:
            view = file.blob("w")
            assert view.readonly
            assert view.format == "B"
            raw[file.blobs["w"].begin] = 99
            assert view[0] == 99
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        with PlanFile.open(tmp_path / "m.plan") as file:
            assert not np.frombuffer(file.blob("w"), np.float32).flags.writeable
            with pytest.raises(TypeError):
                file.blobs["x"] = file.blobs["w"]

    def test_a_buffer_can_be_resized_after_close(self) -> None:
        raw = bytearray(plan_bytes(MANIFEST, [WEIGHT]))
        with PlanFile.from_bytes(raw), pytest.raises(BufferError):
            raw.append(0)
        raw.append(0)

    @pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="counts open files in /dev/fd")
    def test_arrays_keep_the_map_alive_and_the_last_one_closes_it(self, tmp_path: Path) -> None:
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        gc.collect()  # maps that other tests left to the collector
        before = len(list(Path("/dev/fd").iterdir()))
        with PlanFile.open(tmp_path / "m.plan") as file:
            array = np.frombuffer(file.blob("w"), np.float32)
        del file
        gc.collect()
        np.testing.assert_array_equal(array, np.arange(6, dtype=np.float32))
        del array
        gc.collect()
        assert len(list(Path("/dev/fd").iterdir())) == before

    def test_a_closed_file_says_so(self, tmp_path: Path) -> None:
        write_plan(tmp_path / "m.plan", MANIFEST, [WEIGHT])
        file = PlanFile.open(tmp_path / "m.plan")
        file.close()
        file.close()
        assert file.manifest == MANIFEST
        for use in (lambda: file.blob("w"), file.verify_padding):
            with pytest.raises(UsageError, match="plan file is closed"):
                use()

    def test_a_blob_that_is_not_there_is_named(self) -> None:
        with PlanFile.from_bytes(plan_bytes(MANIFEST, [WEIGHT])) as file, pytest.raises(PlanCorruptError) as info:
            file.blob("v")
        assert str(info.value).startswith("plan bytes: plan has no such blob; expected 'v', got 1 others")

    def test_importing_the_module_does_not_import_numpy(self) -> None:
        code = "import sys, dovetail.plan.container; sys.exit('numpy' in sys.modules)"
        subprocess.run(
            [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )


class TestDigests:
    @pytest.mark.parametrize("data", [b"", b"abc", np.arange(1000.0), np.ones(3, ml_dtypes.bfloat16)])
    def test_digests_are_the_plain_ones(self, data: bytes | np.ndarray) -> None:
        plain = data if isinstance(data, bytes) else data.tobytes()
        assert digest_blob(data, "sha256") == hashlib.sha256(plain).hexdigest()
        assert digest_blob(data, "xxh3") == xxhash.xxh3_128(plain).hexdigest()

    @pytest.mark.parametrize("algorithm", ["sha256", "xxh3"])
    def test_a_damaged_blob_is_named(self, algorithm: str) -> None:
        digest = digest_blob(b"weights", algorithm)
        verify_blob("w", b"weights", algorithm, digest)
        for wrong in (digest.upper(), digest[:-1], ""):
            with pytest.raises(PlanCorruptError, match=f"blob 'w': blob does not match its {algorithm} digest"):
                verify_blob("w", b"weights", algorithm, wrong)
        with pytest.raises(PlanCorruptError, match="does not match"):
            verify_blob("w", b"weightz", algorithm, digest)

    def test_an_unknown_algorithm_is_named(self) -> None:
        with pytest.raises(UsageError, match="digest algorithm is unknown; expected sha256 or xxh3, got 'md5'"):
            digest_blob(b"", "md5")
        with pytest.raises(PlanCorruptError, match="digest algorithm is unknown"):
            verify_blob("w", b"", "md5", "")
