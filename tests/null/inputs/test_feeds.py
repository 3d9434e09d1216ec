"""Inputs that are made up, and inputs in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dovetail.errors import InputError, UsageError
from dovetail.inputs.array_files import pack_arrays, read_array, read_arrays
from dovetail.inputs.feeds import make_feeds
from dovetail.inputs.sizes import find_unset
from dovetail.inputs.specs import InputSpec
from tests.support.dims import read_dims

X = InputSpec(name="x", dtype="float32", dims=read_dims(["n", 4]))
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\\[]\0", exclude_categories=["Cs"]), min_size=1)
DTYPES = st.sampled_from(["float32", "float16", "int64", "int8", "bool", "uint16", "float64"])


def test_sizes_of_a_name_agree() -> None:
    specs = [
        X,
        InputSpec(name="y", dtype="int64", dims=read_dims(["n"])),
        InputSpec(name="z", dtype="bool", dims=read_dims([None, 2])),
    ]
    feeds = make_feeds(specs, shapes={"x": (5, 4)})
    assert [value.shape for value in feeds.values()] == [(5, 4), (5,), (1, 2)]
    assert [value.dtype.name for value in feeds.values()] == ["float32", "int64", "bool"]
    assert set(feeds["y"].tolist()) <= {0, 1}
    given = make_feeds(specs, given={"y": np.zeros(7, np.int64)})
    assert given["x"].shape == (7, 4)


def test_sizes_that_nobody_set_are_found() -> None:
    specs = [
        X,
        InputSpec(name="y", dtype="int64", dims=read_dims(["n", "m", "n", None])),
        InputSpec(name="z", dtype="bool", dims=read_dims(["n", "k"]), tuned=[3, 4]),
        InputSpec(name="r", dtype="float32", dims=None),
        InputSpec(name="m", dtype="float32", dims=None, type="map(string,tensor(float))"),
        InputSpec(name="s", dtype="int64", dims=read_dims([2]), is_shape=True),
        InputSpec(name="a,b", dtype="float32", dims=read_dims(["q"])),
    ]
    found = [(dim.input, dim.axis, dim.name) for dim in find_unset(specs)]
    assert found[:3] == [("x", 0, "n"), ("y", 1, "m"), ("y", 3, None)]
    assert found[3:] == [("r", None, None), ("s", None, None), ("a,b", 0, "q")]
    told = [dim.describe() for dim in find_unset(specs)]
    assert "a scalar is taken" in told[3]
    assert "--inputs s:FILE.npy" in told[4]
    assert told[5].endswith("(--shapes \"'a,b':1\")")
    assert [dim.name for dim in find_unset(specs[:2], shapes={"x": (5, 4)})] == ["m", None]
    assert find_unset(specs[:1], given={"x": np.zeros((1, 4))}) == []


def test_the_seed_decides() -> None:
    first, same, other = (make_feeds([X], seed=seed)["x"] for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).any()


def test_shape_inputs_are_not_left_to_chance() -> None:
    open_spec = InputSpec(name="s", dtype="int64", dims=read_dims([2]), is_shape=True)
    tuned = InputSpec(name="s", dtype="int64", dims=read_dims([2]), is_shape=True, contents=[3, 4])
    assert make_feeds([open_spec])["s"].tolist() == [1, 1]
    assert make_feeds([tuned])["s"].tolist() == [3, 4]


def test_objects() -> None:
    specs = [
        InputSpec(name="s", dtype="float32", dims=None, type="seq(tensor(float))"),
        InputSpec(name="t", dtype="object", dims=read_dims([3]), type="tensor(string)"),
        InputSpec(name="o", dtype="int64", dims=None, type="optional(tensor(int64))"),
    ]
    feeds = make_feeds(specs)
    assert isinstance(feeds["s"], list)
    assert feeds["t"].shape == (3,)
    assert all(isinstance(word, str) for word in feeds["t"])
    assert feeds["o"].dtype == np.int64


@pytest.mark.parametrize(
    ("kind", "dtype", "key_type", "element_type"),
    [
        ("map(int64,tensor(float))", "float32", int, float),
        ("map(string,tensor(int64))", "int64", str, int),
        ("map(int64,tensor(string))", "object", int, str),
    ],
)
def test_maps(kind: str, dtype: str, key_type: type, element_type: type, tmp_path: Path) -> None:
    spec = InputSpec(name="m", dtype=dtype, dims=None, type=kind)
    (made,) = make_feeds([spec]).values()
    assert {type(key) for key in made} == {key_type}
    assert {type(element) for element in made.values()} == {element_type}
    (tmp_path / "inputs.npz").write_bytes(pack_arrays({"m": made}))
    assert read_arrays(tmp_path / "inputs.npz", [spec]) == {"m": made}
    (several,) = make_feeds([InputSpec(name="m", dtype=dtype, dims=None, type=f"seq({kind})")]).values()
    assert [entries.keys() for entries in several] == [made.keys()] * len(several)


@pytest.mark.parametrize(
    "arrays",
    [
        {"m.keys": np.arange(2)},
        {"m.values": np.arange(2)},
        {"m.keys": np.arange(2), "m.values": np.arange(3)},
        {"m.keys": np.ones((1, 2)), "m.values": np.ones((1, 2))},
    ],
)
def test_half_a_map_is_named(arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **arrays)
    spec = InputSpec(name="m", dtype="float32", dims=None, type="map(int64,tensor(float))")
    with pytest.raises(InputError, match="no map for input 'm'; expected two vectors of one length"):
        read_arrays(tmp_path / "inputs.npz", [spec])


def test_an_array_may_be_called_keys(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", **{"m.keys": np.arange(2)})
    specs = [
        InputSpec(name="m.keys", dtype="int64", dims=read_dims([2])),
        InputSpec(name="m", dtype="float32", dims=None),
    ]
    assert read_arrays(tmp_path / "inputs.npz", specs)["m.keys"].tolist() == [0, 1]


def test_a_wrong_rank_is_named() -> None:
    with pytest.raises(InputError, match="input 'x': wrong number of dimensions; expected 2, got 3"):
        make_feeds([X], shapes={"x": (3,)})


def test_bfloat16_survives_a_file(tmp_path: Path) -> None:
    array = np.arange(4).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array)
    loaded = read_array(tmp_path / "x.npy", InputSpec(name="x", dtype="bfloat16", dims=read_dims([4])))
    assert loaded.dtype == array.dtype
    np.testing.assert_array_equal(loaded, array)


def test_an_empty_array_can_be_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 4), np.float32))
    assert read_array(tmp_path / "x.npy", X).shape == (0, 4)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))),
        max_size=3,
    )
)
def test_what_is_packed_comes_back(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("pack") / "inputs.npz"
    path.write_bytes(pack_arrays(values))
    specs = [InputSpec(name=name, dtype=array.dtype.name, dims=None) for name, array in values.items()]
    loaded = read_arrays(path, specs)
    assert loaded.keys() == values.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype


def test_sequences_strings_and_narrow_types_come_back(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    items = [np.zeros(2, np.float32), np.ones((1, 3), np.float32)]
    words, narrow = np.array(["a", ""], object), np.arange(3).astype(ml_dtypes.bfloat16)
    path.write_bytes(pack_arrays({"s": items, "w": words, "b": narrow, "none": None}))
    specs = [
        InputSpec(name="s", dtype="float32", dims=None, type="seq(tensor(float))"),
        InputSpec(name="w", dtype="object", dims=read_dims([2]), type="tensor(string)"),
        InputSpec(name="b", dtype="bfloat16", dims=read_dims([3])),
    ]
    loaded = read_arrays(path, specs)
    assert [item.shape for item in loaded["s"]] == [(2,), (1, 3)]
    assert loaded["w"].dtype == object
    assert loaded["w"].tolist() == ["a", ""]
    assert loaded["b"].dtype == narrow.dtype


def test_files_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "one.npy", np.zeros(2))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    np.savez(tmp_path / "other.npz", q=np.zeros(1))
    for name, kind, text in (
        ("text.npz", InputError, "this is not a .npz file"),
        ("objects.npz", InputError, "an array of Python objects"),
        ("one.npy", InputError, "this is one array without a name"),
        ("none.npz", InputError, "the file cannot be read"),
        ("other.npz", UsageError, "array 'q' is no input"),
    ):
        with pytest.raises(kind, match=text):
            read_arrays(tmp_path / name, [X])


def test_a_small_file_that_becomes_a_large_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "inputs.npz"
    np.savez_compressed(path, x=np.zeros((1 << 18, 4), np.float32))
    assert read_arrays(path, [X])["x"].shape == (1 << 18, 4)
    monkeypatch.setattr("dovetail.inputs.array_files._MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match="its arrays are far larger than the file"):
        read_arrays(path, [X])
    np.savez(path, x=np.zeros((1 << 18, 4), np.float32))
    assert read_arrays(path, [X])["x"].shape == (1 << 18, 4)


def test_nothing_is_made_up_for_an_absurd_size() -> None:
    spec = InputSpec(name="x", dtype="int64", dims=read_dims([2**31 - 1]))
    with pytest.raises(InputError, match="nothing of this size is made up"):
        make_feeds([spec])
