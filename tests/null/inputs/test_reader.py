"""The reader: every kind of text that ``--inputs`` takes, alone and together, and what is wrong with others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dovetail.errors import InputError, UsageError
from dovetail.inputs.image_options import ImageOptions
from dovetail.inputs.reader import InputReader, open_inputs
from dovetail.inputs.specs import InputSpec
from tests.support.dims import read_dims

X = InputSpec(name="x", dtype="float32", dims=read_dims(["n", 3]))
Y = InputSpec(name="y", dtype="int64", dims=read_dims([]))
IMAGE = InputSpec(name="image", dtype="float32", dims=read_dims(["n", 3, "h", "w"]))
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
LOADER = """
import numpy as np

def load_data():
    for index in range(3):
        yield {"x": np.full((index + 1, 3), index, np.float32)}

def broken():
    yield {"x": np.zeros((1, 3), np.float32)}
    1 / 0

def strange():
    yield {"q": 1}

def objects():
    yield {"x": [{}]}

def number():
    return 3

def mapping():
    return {"x": 1}

def arrays():
    yield [1, 2]

def nothing():
    return []
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", ARRAY)
    np.savez("all.npz", x=ARRAY, y=np.int64(3))
    ARRAY.tofile("x.bin")
    Path("x.json").write_text(json.dumps(ARRAY.tolist()))
    Path("all.json").write_text(json.dumps({"x": ARRAY.tolist(), "y": 3}))
    Path("several.json").write_text(json.dumps([{"x": [[1, 2, 3]]}, {"x": [[4, 5, 6]], "y": 7}]))
    Path("loader.py").write_text(LOADER)
    Path("data").mkdir()
    for name in ("b", "a"):
        np.save(f"data/{name}.npy", np.full((1, 3), ord(name), np.float32))
    return tmp_path


def read(*texts: str, specs: tuple[InputSpec, ...] = (X, Y), **options: Any) -> InputReader:
    return open_inputs(texts, specs, **options)


def first(*texts: str, specs: tuple[InputSpec, ...] = (X, Y), **options: Any) -> dict[str, Any]:
    return next(iter(read(*texts, specs=specs, **options)))


@pytest.mark.parametrize(
    "texts",
    [
        ("x:x.npy", "y=3"),
        ("all.npz",),
        ("all.json",),
        ("x:x.json", "y=3"),
        ("x:x.bin", "y=3"),
        ("x=[[0,1,2],[3,4,5]]", "y=3"),
        ("y=3", "x:x.npy"),
    ],
    ids=" ".join,
)
def test_the_same_values_from_everything(texts: tuple[str, ...]) -> None:
    values = first(*texts)
    assert list(values) == ["x", "y"]
    np.testing.assert_array_equal(values["x"], ARRAY)
    assert values["x"].dtype == np.float32
    assert values["y"] == 3
    assert values["y"].shape == ()


@pytest.mark.parametrize("text", ["x.npy", "x.json", "x.bin", "x:x.npy", "x=[[0,1,2],[3,4,5]]"])
def test_the_only_input_needs_no_name(text: str) -> None:
    np.testing.assert_array_equal(first(text, specs=(X,))["x"], ARRAY)


def test_values_by_name_for_the_only_input() -> None:
    Path("named.json").write_text('{"x": [[1, 2, 3]]}')
    assert first("named.json", specs=(X,))["x"].tolist() == [[1, 2, 3]]


def test_a_request_of_a_server() -> None:
    tensors = [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": list(range(6))}, {"name": "y", "data": 3}]
    Path("request.json").write_text(json.dumps({"inputs": tensors}))
    np.testing.assert_array_equal(first("request.json")["x"], ARRAY)
    tensors[0]["shape"] = [2, 4]
    Path("request.json").write_text(json.dumps({"inputs": tensors}))
    with pytest.raises(InputError, match="shape and data do not fit"):
        read("request.json")


def test_a_number_is_the_scalar_or_fills_the_shape() -> None:
    values = first("x=2", "y=16000", shapes={"x": (2, 3)})
    assert values["x"].tolist() == [[2, 2, 2]] * 2
    assert values["y"] == 16000
    assert [dim.name for dim in read("x=2").find_unset(read("x=2").first())] == ["n"]


def test_ranges_take_the_shape_of_what_is_given() -> None:
    z = InputSpec(name="z", dtype="uint8", dims=read_dims(["n", 5]))
    values = first("x:x.npy", "z:uniform(7,9)", specs=(X, z))
    assert values["z"].shape == (2, 5)
    assert set(np.unique(values["z"])) <= {7, 8, 9}


def test_the_size_of_raw_bytes_tells_the_others() -> None:
    z = InputSpec(name="z", dtype="float32", dims=read_dims(["n"]))
    values = first("x:x.bin", specs=(z, X))
    assert values["z"].shape == (2,)
    np.testing.assert_array_equal(first("x:x.bin", shapes={"x": (2, 3)})["x"], ARRAY)


def test_names_may_have_colons_and_equals() -> None:
    specs = tuple(InputSpec(name=name, dtype="int64", dims=()) for name in ("a", "a:0", "a=b"))
    values = first("a:0=1", "a=b=2", "a=3", specs=specs)
    assert {name: int(value) for name, value in values.items()} == {"a": 3, "a:0": 1, "a=b": 2}


def test_texts_need_no_quotes() -> None:
    words = InputSpec(name="w", dtype="object", dims=read_dims([2]))
    assert first('w=["a","b"]', specs=(words,))["w"].tolist() == ["a", "b"]
    assert first("w=hello", specs=(words,))["w"].tolist() == ["hello", "hello"]


def test_a_folder_is_a_sample_a_file() -> None:
    Path("data/notes.txt").write_text("")
    Path("data/.hidden.npy").write_text("")
    reader = read("x:data", "y=1")
    assert (reader.is_single, reader.count) == (False, 2)
    assert reader.skipped == (str(Path("data/notes.txt")),)
    samples = list(reader.samples())
    assert [sample.name for sample in samples] == ["a", "b"]
    assert [values["x"][0, 0] for values in reader] == [ord("a"), ord("b")]
    assert [sample.name for sample in read("data", specs=(X,)).samples()] == ["a", "b"]


def test_folders_go_together_by_name() -> None:
    Path("more").mkdir()
    for name, value in (("a", 1), ("b", 2)):
        Path(f"more/{name}.json").write_text(str(value))
    assert [int(values["y"]) for values in read("x:data", "y:more")] == [1, 2]
    Path("more/c.json").write_text("3")
    with pytest.raises(InputError, match="'c' is in one of them only"):
        read("x:data", "y:more")


def test_files_that_differ_in_their_kind_keep_it() -> None:
    Path("data/a.json").write_text("[[1, 2, 3]]")
    assert [sample.name for sample in read("x:data").samples()] == ["a.json", "a.npy", "b"]


def test_a_folder_of_files_for_all_inputs() -> None:
    Path("all").mkdir()
    np.savez("all/one.npz", x=ARRAY, y=np.int64(1))
    Path("all/two.json").write_text('{"x": [[1, 2, 3]], "y": 2}')
    assert [int(values["y"]) for values in read("all")] == [1, 2]
    np.save("all/three.npy", ARRAY)
    with pytest.raises(InputError, match="this is one value, and the model has several inputs") as caught:
        list(read("all"))
    assert "x:all" in str(caught.value)


def test_images_by_name() -> None:
    Path("photos").mkdir()
    for name in ("p", "q"):
        Image.new("RGB", (8, 6), "red").save(f"photos/{name}.png")
    reader = read("image:photos", specs=(IMAGE,), images={"image": ImageOptions(resize=(4, 5))})
    assert [values["image"].shape for values in reader] == [(1, 3, 4, 5)] * 2


def test_several_samples_of_one_file() -> None:
    reader = read("several.json")
    assert [sample.name for sample in reader.samples()] == ["several-000000", "several-000001"]
    assert int(list(reader)[1]["y"]) == 7


@pytest.mark.parametrize("text", ["loader.py", "loader.py:load_data"])
def test_a_loader_yields_samples(text: str) -> None:
    reader = read(text, "y=5")
    assert (reader.is_single, reader.count) == (False, None)
    assert [values["x"].shape for values in reader] == [(1, 3), (2, 3), (3, 3)]
    assert [sample.name for sample in reader.samples()] == ["000000", "000001", "000002"]


def test_a_loader_imports_what_lies_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sub").mkdir()
    Path("sub/beside_the_loader.py").write_text("import numpy as np\nX = np.ones((4, 3), np.float32)\n")
    Path("sub/load.py").write_text(
        "from dataclasses import dataclass\nfrom beside_the_loader import X\n"
        "@dataclass\nclass Row:\n    x: object\n"
        "def load_data():\n    yield {'x': Row(X).x}\n"
    )
    before = list(sys.path)
    assert first("sub/load.py")["x"].shape == (4, 3)
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "beside_the_loader")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "it raised ZeroDivisionError: division by zero (line 10 of "),
        ("strange", "'q' is no input; expected x, y"),
        ("objects", "this is no array; expected float32"),
        ("number", "this yields no samples"),
        ("mapping", "this yields no samples"),
        ("arrays", "this is no sample"),
        ("nothing", "the data loader yields no samples"),
        ("missing", "there is no function 'missing' in it"),
    ],
)
def test_a_loader_that_is_wrong(function: str, message: str) -> None:
    with pytest.raises((InputError, UsageError)) as caught:
        list(read(f"loader.py:{function}"))
    assert message in str(caught.value)


def test_a_loader_that_cannot_be_imported() -> None:
    for text, name in (
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("def f(:", "SyntaxError"),
    ):
        Path("wrong.py").write_text(text)
        with pytest.raises(InputError, match=f"importing it raised {name}"):
            read("wrong.py")
    with pytest.raises(UsageError, match="there is no such file"):
        read("none.py")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("z=3",), "this names no input; expected name:file, name=value for one of x, y"),
        (("xx=3",), "did you mean 'x'?"),
        (("x=",), "this is no value"),
        (("x=x.npy",), "for a file write x:x.npy"),
        (("x=[1,2,3]",), "the value has another rank than the input; expected lists nested 2 deep, got 1"),
        (("x=[1,2,3]",), "fix: write x=[[1,2,3]]"),
        (("y=1.5",), "whole numbers of int64"),
        (("x:none.npy",), "the file cannot be read"),
        (("x:none.bin",), "the file cannot be read"),
        (("x:none.json",), "the file cannot be read"),
        (("x:none.png",), "the file cannot be read"),
        (("x:x.npy", "x=3"), "input 'x' has two values"),
        (("all.npz", "x:x.npy"), "input 'x' has two values"),
        (("loader.py", "x:x.npy"), "input 'x' has two values"),
        (("x:data", "x:x.npy"), "input 'x' has two values"),
        (("loader.py", "loader.py"), "there are two data loaders"),
        (("loader.py", "x:data"), "both several samples"),
        (("empty",), "the folder has no inputs"),
        (("x.npy",), "this names no input"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_told(texts: tuple[str, ...], message: str) -> None:
    Path("empty").mkdir()
    with pytest.raises((InputError, UsageError)) as caught:
        list(read(*texts))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("specs", "shapes", "message"),
    [
        ((X,), {"x": (3, 3)}, "expected 36 bytes for float32 3x3, got 24 bytes"),
        ((InputSpec(name="x", dtype="float32", dims=read_dims(["n", 5])),), {}, "a multiple of 20 bytes"),
        ((InputSpec(name="x", dtype="float32", dims=read_dims(["n", "m"])),), {}, "set it with --shapes x:1x1"),
        ((InputSpec(name="x", dtype="float32", dims=None),), {}, "of a known rank"),
        ((InputSpec(name="x", dtype="object", dims=read_dims([6])),), {}, "tensors of numbers"),
    ],
)
def test_raw_bytes_that_do_not_fit(specs: tuple[InputSpec, ...], shapes: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        first("x:x.bin", specs=specs, shapes=shapes)
    assert message in str(caught.value)
