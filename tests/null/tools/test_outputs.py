"""Outputs in files, folders of results, weights from files, and elements that are not finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import InputError, UsageError
from dovetail.inputs.specs import InputSpec
from dovetail.tools.refit.weight_files import read_weights
from dovetail.tools.results.odd_elements import find_odd_elements
from dovetail.tools.results.result_folder import JOURNAL, ResultFolder, digest_feeds
from dovetail.tools.results.saved_outputs import pack_outputs, read_outputs


def spec_of(name: str, dtype: str, kind: str = "") -> InputSpec:
    return InputSpec(name=name, dtype=dtype, dims=None, type=kind)


def test_outputs_of_every_kind_come_back(tmp_path: Path) -> None:
    outputs = {
        "y": np.arange(4, dtype=np.float32),
        "narrow": np.arange(3).astype(ml_dtypes.bfloat16),
        "words": np.array(["a", "bc"], object),
        "list": [np.zeros(2, np.float32), np.ones((1, 3), np.float32)],
        "maps": [{"a": 0.25, "b": 0.75}, {"a": 0.5, "b": 0.5}],
        "map": {1: 0.5, 2: 0.25},
    }
    (tmp_path / "out.npz").write_bytes(pack_outputs(outputs))
    specs = [
        spec_of("y", "float32"),
        spec_of("narrow", "bfloat16"),
        spec_of("words", "object"),
        spec_of("list", "float32", "seq(tensor(float))"),
        spec_of("maps", "float32", "seq(map(string,tensor(float)))"),
        spec_of("map", "float32", "map(int64,tensor(float))"),
    ]
    found = read_outputs(tmp_path / "out.npz", specs)
    for name in ("y", "narrow", "words"):
        np.testing.assert_array_equal(found[name], outputs[name])
        assert found[name].dtype == outputs[name].dtype
    assert [item.shape for item in found["list"]] == [(2,), (1, 3)]
    assert found["maps"] == outputs["maps"]
    assert found["map"] == outputs["map"]
    with pytest.raises(InputError, match="output 'z' is not in the file"):
        read_outputs(tmp_path / "out.npz", [spec_of("z", "float32")])


def test_a_result_is_used_again_only_when_everything_is_as_it_was(tmp_path: Path) -> None:
    outputs = {"y": np.arange(3.0)}
    folder = ResultFolder(tmp_path / "out", option="--save-outputs")
    assert folder.find("a", "key") is None
    path = folder.write("a", "key", outputs)
    again = ResultFolder(tmp_path / "out", option="--save-outputs")
    assert again.find("a", "key") == path
    assert again.find("a", "other") is None
    assert again.find("b", "key") is None
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert again.find("a", "key") is None
    path.unlink()
    assert again.find("a", "key") is None


def test_a_journal_that_was_cut_off_or_is_not_ours_is_no_harm(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path, option="--save-outputs")
    folder.write("a", "key", {"y": np.zeros(1)})
    line = {"sample": "b", "key": "key", "file": "../../passwd", "digest": ""}
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(json.dumps(line).encode() + b"\n" + b"\xff\xfe\n[[[\n" + b'{"sample": "c", "ke')
    again = ResultFolder(tmp_path, option="--save-outputs")
    assert again.find("a", "key") is not None
    assert again.find("b", "key") is None


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".hidden", "x" * 300])
def test_results_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    path = ResultFolder(tmp_path / "out", option="--save-outputs").write(name, "key", {"y": np.zeros(1)})
    assert path.parent == tmp_path / "out"
    assert path.is_file()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--save-outputs: .* cannot be written"):
        ResultFolder(tmp_path / "file", option="--save-outputs").write("a", "key", {})


FEEDS = st.dictionaries(st.sampled_from("xyz"), hnp.arrays(st.sampled_from(["float32", "int8"]), (2,)), min_size=1)


@settings(max_examples=40, deadline=None)
@given(FEEDS, FEEDS)
def test_the_digest_is_of_what_is_run(first: dict[str, Any], second: dict[str, Any]) -> None:
    def plain(feeds: dict[str, Any]) -> list[Any]:
        return [(name, array.dtype.name, array.tobytes()) for name, array in feeds.items()]

    assert (digest_feeds("m", first) == digest_feeds("m", second)) == (plain(first) == plain(second))
    assert digest_feeds("m", first) != digest_feeds("n", first)


def test_objects_have_digests_too() -> None:
    feeds = {"s": [np.zeros(1)], "m": {"a": 1.0}, "w": np.array(["a"], object), "n": None}
    assert digest_feeds("", feeds) == digest_feeds("", dict(feeds))
    assert digest_feeds("", feeds) != digest_feeds("", feeds | {"m": {"a": 2.0}})


def test_what_is_not_finite_is_found_with_its_place() -> None:
    array = np.zeros((2, 3), np.float32)
    array[0, 1], array[1, 2] = np.nan, -np.inf
    narrow = np.array([np.inf, 1]).astype(ml_dtypes.bfloat16)
    outputs = {"y": array, "n": narrow, "s": [np.zeros(1), np.float64("nan")], "i": np.zeros(2, int), "o": None}
    found = find_odd_elements(outputs | {"w": np.array(["nan"], object), "e": np.zeros((0, 2))})
    assert [each.name for each in found] == ["y", "n", "s[1]"]
    assert (found[0].num_nan, found[0].num_inf) == (1, 1)
    assert found[0].describe() == "output 'y': 1 NaN and 1 infinite of 6 elements, at [0, 1] (nan), [1, 2] (-inf)"
    assert found[0].to_dict()["first"] == [{"index": [0, 1], "value": "nan"}, {"index": [1, 2], "value": "-inf"}]
    assert found[2].describe().endswith("1 NaN of 1 element, at []")
    many = find_odd_elements({"y": np.full(100, np.nan)})[0]
    assert many.describe() == "output 'y': 100 NaN of 100 elements, at [0], [1], [2], [3], [4], ..."


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_weights_from_files(tmp_path: Path, suffix: str) -> None:
    weights = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "h": np.ones(2, np.float16), "b": np.array(True)}
    path = tmp_path / f"weights{suffix}"
    if suffix == ".npz":
        np.savez(path, **weights)
    else:
        safetensors.numpy.save_file(weights, path)
    found = read_weights(path)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_bfloat16_weights(tmp_path: Path) -> None:
    data = np.arange(4).astype(ml_dtypes.bfloat16)
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data.tobytes())
    found = read_weights(tmp_path / "w.safetensors")["w"]
    assert found.dtype == data.dtype
    np.testing.assert_array_equal(found, data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=100), st.booleans())
def test_bad_safetensors_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes, cut: bool) -> None:
    whole = safetensors.numpy.save({"w": np.zeros(4, np.float32)})
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    path.write_bytes(whole[: len(content)] if cut else content)
    with pytest.raises(InputError, match=r"w\.safetensors.*this is no safetensors file"):
        read_weights(path)


def test_other_files_are_no_weights(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"")
    with pytest.raises(InputError, match=r"this is no file of weights; expected .onnx, .npz, .safetensors"):
        read_weights(tmp_path / "w.pt")
