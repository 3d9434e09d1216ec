"""Plan files that lie about their blobs, and plans that carry code: what loading imports, and when."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.errors import PlanCorruptError, PlanError, PlanTrustError, PlanVersionError
from dovetail.plan.compatibility import check_plan
from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes
from dovetail.plan.inspect import inspect_plan
from tests.support.attack_plans import IMPORTED, Json, Target, target

LIB = "library:carried_library"


@pytest.fixture(autouse=True)
def _nothing_imported_yet() -> Iterator[None]:
    target("library")
    IMPORTED.clear()
    modules = set(sys.modules)
    yield
    assert not {name for name in set(sys.modules) - modules if "carried" in name}


@cache
def _two_weights() -> bytes:
    """A plan with two weights of one shape."""
    names, arrays = ("a", "b"), (np.arange(8, dtype=np.float32), np.arange(8, 16, dtype=np.float32))
    nodes = [helper.make_node("Add", ["x", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["y"])]
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [8])] for name in ("x", "y")]
    constants = [numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True)]
    graph = helper.make_graph(nodes, "weights", *ports, constants)
    return dt.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), providers=["cpu"]
    ).serialize()


def _parts(raw: bytes) -> tuple[Json, dict[str, Blob]]:
    with PlanFile.from_bytes(raw) as file:
        blobs = {
            info.name: Blob(name=info.name, dtype=info.dtype, shape=info.shape, data=bytes(file.blob(info.name)))
            for info in file.blobs.values()
        }
        return json.loads(file.manifest), blobs


def _join(manifest: Json, blobs: dict[str, Blob]) -> bytes:
    return plan_bytes(json.dumps(manifest).encode(), list(blobs.values()))


def _with_data(blob: Blob, data: bytes, shape: tuple[int, ...] | None = None) -> Blob:
    return Blob(name=blob.name, dtype=blob.dtype, shape=blob.shape if shape is None else shape, data=data)


def _both_ways(raw: bytes, folder: Path, *, host_code: bool = False) -> PlanError:
    """Check that a file is refused alike by path and as bytes, and return the error."""
    path = folder / "attack.plan"
    path.write_bytes(raw)
    with pytest.raises(PlanError) as by_path:
        dt.load(path, host_code=host_code)
    runtime = dt.Runtime()
    runtime.engine_host_code_allowed = host_code
    with pytest.raises(PlanError) as as_bytes:
        runtime.deserialize_cuda_engine(raw)
    assert type(by_path.value) is type(as_bytes.value)
    assert by_path.value.what == as_bytes.value.what
    assert not IMPORTED
    return by_path.value


# files


def test_swapped_blobs_are_found(tmp_path: Path) -> None:
    manifest, blobs = _parts(_two_weights())
    a, b = (blobs[name] for name in ("a", "b"))
    swapped = {"a": _with_data(a, bytes(b.data)), "b": _with_data(b, bytes(a.data))}
    assert "does not match its xxh3 digest" in _both_ways(_join(manifest, swapped), tmp_path).what
    renamed = {
        name: Blob(name=other, dtype=b.dtype, shape=b.shape, data=blobs[name].data) for name, other in ("ab", "ba")
    }
    assert "does not match its xxh3 digest" in _both_ways(_join(manifest, renamed), tmp_path).what


def test_a_blob_more_or_less_is_found(tmp_path: Path) -> None:
    manifest, blobs = _parts(_two_weights())
    assert _both_ways(_join(manifest, {"a": blobs["a"]}), tmp_path).what == "is not in the file"
    extra = Blob(name="c", dtype="U8", shape=(1,), data=b"c")
    error = _both_ways(_join(manifest, {**blobs, "c": extra}), tmp_path)
    assert error.what == "the file has blobs that the manifest does not name"


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    raw = _two_weights()
    for part in range(64):
        assert type(_both_ways(raw[: len(raw) * part // 64], tmp_path)) is PlanCorruptError


def test_a_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    raw, rng = _two_weights(), random.Random(0)
    whole = dt.Runtime().deserialize_cuda_engine(raw).manifest
    for _ in range(200):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path = tmp_path / "flipped.plan"
        path.write_bytes(damaged)
        try:
            engine = dt.load(path)
        except PlanError:
            continue
        # What is left is space between or after the tokens of the header, which says nothing.
        assert engine.manifest == whole


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b'"dovetail.container":"1"', b'"dovetail.container":"2"', PlanVersionError),
        (b'"dovetail.container":"1"', b'"dovetail.container":"" ', PlanVersionError),
        (b'"dovetail.container":"1"', b'"dovetail.cantoiner":"1"', PlanCorruptError),
        (b'"dovetail.manifest.sha256"', b'"dovetail.manifest.sha512"', PlanCorruptError),
    ],
)
def test_other_versions_and_keys_of_the_file(old: bytes, new: bytes, expected: type[PlanError], tmp_path: Path) -> None:
    assert type(_both_ways(_two_weights().replace(old, new, 1), tmp_path)) is expected


@pytest.mark.parametrize("path", [".", "no.plan", "no/such/folder.plan", "nul\0.plan", ""])
def test_paths_that_hold_no_plan(path: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        dt.load(f"{tmp_path}/{path}")


# code in plans


def _library(edit: Callable[[Json, dict[str, Blob]], object]) -> bytes:
    manifest, blobs = _parts(target("library").raw)
    edit(manifest, blobs)
    return _join(manifest, blobs)


def _repack(manifest: Json, blobs: dict[str, Blob], name: str, payload: bytes) -> None:
    """Carry other bytes under a name, with a right digest."""
    blobs[name] = Blob(name=name, dtype="U8", shape=(len(payload),), data=payload)
    manifest["blobs"][name] = {
        "kind": "library",
        "dtype": "uint8",
        "shape": [len(payload)],
        "algorithm": "sha256",
        "digest": digest_blob(payload, "sha256"),
    }


def test_code_is_imported_only_with_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOVETAIL_HOST_CODE", "DOVETAIL_TRUST", "DOVETAIL_ENGINE_HOST_CODE_ALLOWED"):
        monkeypatch.setenv(name, "1")
    assert type(_both_ways(target("library").raw, tmp_path)) is PlanTrustError
    with dt.load(tmp_path / "attack.plan", host_code=True) as engine:
        assert len(IMPORTED) == 1
        np.testing.assert_allclose(engine(np.ones((2, 3), np.float32)), 3.0)


def test_looking_into_a_plan_imports_nothing(tmp_path: Path) -> None:
    path = tmp_path / "library.plan"
    path.write_bytes(target("library").raw)
    assert "carries the plugin library" in " ".join(check_plan(path).notes)
    assert inspect_plan(path)
    assert not IMPORTED


@pytest.mark.parametrize("host_code", [False, True])
@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda m, b: m["libraries"].append(m["libraries"][0]), id="a blob named twice"),
        pytest.param(
            lambda m, b: m["libraries"].append({"name": "second", "blob": LIB}), id="a second name for a blob"
        ),
        pytest.param(
            lambda m, b: m["libraries"].append({"name": "ghost", "blob": "ghost"}), id="a record without a blob"
        ),
        pytest.param(lambda m, b: m.pop("libraries"), id="a blob without a record"),
        pytest.param(lambda m, b: m["blobs"][LIB].update(kind="weights"), id="a library that says it is weights"),
        pytest.param(lambda m, b: m["blobs"][LIB].update(kind="kernel"), id="a library that says it is device code"),
        pytest.param(lambda m, b: m["blobs"][LIB].update(stripped=True, digest=""), id="a library that is not here"),
        pytest.param(lambda m, b: b.pop(LIB), id="a library whose bytes are missing"),
    ],
)
def test_libraries_and_blobs_that_do_not_fit_are_damage(
    edit: Callable[[Json, dict[str, Blob]], object], host_code: bool, tmp_path: Path
) -> None:
    assert type(_both_ways(_library(edit), tmp_path, host_code=host_code)) is PlanCorruptError


def test_weights_that_say_they_are_a_library_are_not_imported(tmp_path: Path) -> None:
    manifest, blobs = _parts(_two_weights())
    manifest["libraries"] = [{"name": "weights", "blob": "a"}]
    manifest["blobs"]["a"].update(kind="library", dtype="uint8", shape=[32], algorithm="sha256")
    manifest["blobs"]["a"]["digest"] = digest_blob(bytes(blobs["a"].data), "sha256")
    assert type(_both_ways(_join(manifest, blobs), tmp_path, host_code=True)) is PlanCorruptError


def _flip(data: Any) -> bytes:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def test_damaged_code_is_not_imported(tmp_path: Path) -> None:
    raw = _library(lambda m, b: b.update({LIB: _with_data(b[LIB], _flip(b[LIB].data))}))
    error = _both_ways(raw, tmp_path, host_code=True)
    assert "does not match its sha256 digest" in error.what


PAYLOADS: dict[str, Callable[[Json, str, str], Any]] = {
    "another type": lambda whole, name, source: {**whole, "type": "dovetail-library/9"},
    "unknown field": lambda whole, name, source: {**whole, "run": "now"},
    "no source": lambda whole, name, source: {**whole, "sources": {}},
    "a path that climbs": lambda whole, name, source: {**whole, "sources": {f"../{name}": source}},
    "an absolute path": lambda whole, name, source: {**whole, "sources": {f"/{name}": source}},
    "two files": lambda whole, name, source: {**whole, "sources": {name: source, "b.py": source}},
    "a list": lambda whole, name, source: [whole],
}


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_payload_that_is_no_library_is_not_imported(kind: str, tmp_path: Path) -> None:
    def edit(manifest: Json, blobs: dict[str, Blob]) -> None:
        whole = json.loads(bytes(blobs[LIB].data))
        ((name, source),) = whole["sources"].items()
        _repack(manifest, blobs, LIB, json.dumps(PAYLOADS[kind](whole, name, source)).encode())

    assert type(_both_ways(_library(edit), tmp_path, host_code=True)) is PlanCorruptError


@pytest.mark.parametrize("kind", ["digest", "payload", "weights"])
def test_one_library_is_not_imported_when_something_else_is_damaged(kind: str, tmp_path: Path) -> None:
    def edit(manifest: Json, blobs: dict[str, Blob]) -> None:
        if kind == "weights":
            weights, others = _parts(_two_weights())
            manifest["blobs"]["a"] = weights["blobs"]["a"]
            blobs["a"] = _with_data(others["a"], _flip(others["a"].data))
            return
        _repack(manifest, blobs, "second", b"nothing" if kind == "payload" else bytes(blobs[LIB].data))
        manifest["libraries"].append({"name": "second", "blob": "second"})
        if kind == "digest":
            blobs["second"] = _with_data(blobs["second"], _flip(blobs["second"].data))

    assert type(_both_ways(_library(edit), tmp_path, host_code=True)) is PlanCorruptError


def test_code_of_an_engine_that_fails_later_is_gone_again() -> None:
    plan: Target = target("library")
    runtime, _ = plan.runtime()
    before = set(sys.modules)
    with pytest.raises(dt.PluginError, match="no creator is registered"):
        runtime.deserialize_cuda_engine(
            plan.changed(lambda m: m["programs"][0]["steps"][0]["plugin"].update(name="Unknown"))
        )
    assert len(IMPORTED) == 1
    assert not set(sys.modules) - before
