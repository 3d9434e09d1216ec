"""Weights in other files: whatever a model says, nothing outside its folder is read, and nothing hangs or crashes.

Every refused case runs against a folder with a secret beside it; a case that got at the secret would import.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from dovetail.errors import ModelError
from dovetail.network.importer import files, tensors
from dovetail.network.importer.files import map_file, open_under, read_range
from dovetail.network.importer.importer import import_model

SECRET = struct.pack("<4f", 6, 6, 6, 6)
WEIGHTS = struct.pack("<4f", 1, 2, 3, 4)
needs_links = pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="makes links and pipes")


@pytest.fixture(params=["read", "mapped"])
def folder(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, with a secret of the right size beside it; small tensors are read, large ones mapped."""
    if request.param == "mapped":
        monkeypatch.setattr(tensors, "_MAPPED", 1)
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(SECRET)
    (inside / "w.bin").write_bytes(WEIGHTS)
    (inside / "sub" / "w.bin").write_bytes(WEIGHTS)
    return inside


def tensor_in(entries: dict[str, str] | list[tuple[str, str]], name: str = "w", dims: Any = (4,)) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL, dims=dims)
    for key, value in entries.items() if isinstance(entries, dict) else entries:
        tensor.external_data.add(key=key, value=value)
    return tensor


def model_with(*tensors: onnx.TensorProto, attribute: bool = False) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    last, nodes = "x", []
    for index, tensor in enumerate(tensors):
        if attribute:
            nodes.append(helper.make_node("Constant", [], [tensor.name], value=tensor))
        out = "y" if index == len(tensors) - 1 else f"t{index}"
        nodes.append(helper.make_node("Add", [last, tensor.name], [out]))
        last = out
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=[] if attribute else list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def save(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def load(folder: Path, location: str, **entries: str) -> ir.Model:
    return import_model(save(folder, model_with(tensor_in({"location": location, **entries}))))


def weights_of(model: ir.Model, name: str = "w") -> list[float]:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return list(tensor.numpy().tolist())


# what is allowed


@pytest.mark.parametrize("location", ["w.bin", "./w.bin", "sub/w.bin", "sub//w.bin", "./sub/./w.bin", "w.bin/"])
def test_files_in_the_folder(folder: Path, location: str) -> None:
    assert weights_of(load(folder, location)) == [1, 2, 3, 4]


def test_offset_and_length(folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"\xff" * 8 + WEIGHTS + b"\xff")
    assert weights_of(load(folder, "w.bin", offset="8", length="16")) == [1, 2, 3, 4]
    assert weights_of(load(folder, "w.bin", offset="8")) == [1, 2, 3, 4]


def test_tensors_in_attributes_and_bodies_are_read_too(folder: Path) -> None:
    model = import_model(save(folder, model_with(tensor_in({"location": "w.bin"}), attribute=True)))
    tensor = model.graph[0].attributes["value"].as_tensor()
    assert isinstance(tensor, ir.Tensor)
    assert tensor.numpy().tolist() == [1, 2, 3, 4]


def test_tied_weights_share_one_range(folder: Path) -> None:
    entries = {"location": "w.bin"}
    model = import_model(save(folder, model_with(tensor_in(entries, "a"), tensor_in(entries, "b"))))
    first, second = (model.graph.initializers[name].const_value for name in "ab")
    assert first is not None
    assert second is not None
    assert np.shares_memory(first.numpy(), second.numpy())


def test_unknown_keys_are_ignored(folder: Path) -> None:
    assert weights_of(load(folder, "w.bin", prepacked_0="x", __class__="y", basepath="/etc")) == [1, 2, 3, 4]


def test_packed_types(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes([0x21, 0x03]))
    tensor = tensor_in({"location": "w.bin"}, dims=[3])
    tensor.data_type = TensorProto.UINT4
    proto = model_with(tensor)
    del proto.graph.node[:]
    proto.graph.node.append(helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT))
    assert [int(number) for number in weights_of(import_model(save(folder, proto)))] == [1, 2, 3]


def test_bools_are_bools(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes([0, 1, 2, 255]))
    tensor = tensor_in({"location": "w.bin"})
    tensor.data_type = TensorProto.BOOL
    proto = model_with(tensor)
    del proto.graph.node[:]
    proto.graph.node.append(helper.make_node("Not", ["w"], ["y"]))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    assert weights_of(import_model(save(folder, proto))) == [False, True, True, True]


def test_a_model_reached_through_a_link_is_its_owner_s_choice(folder: Path, tmp_path: Path) -> None:
    save(folder, model_with(tensor_in({"location": "w.bin"})))
    (tmp_path / "alias").symlink_to(folder, target_is_directory=True)
    assert weights_of(import_model(tmp_path / "alias" / "m.onnx")) == [1, 2, 3, 4]


def test_a_relative_path_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(folder, model_with(tensor_in({"location": "w.bin"})))
    monkeypatch.chdir(folder)
    assert weights_of(import_model("m.onnx")) == [1, 2, 3, 4]


# names that leave the folder


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "sub/../../secret.bin",
        "./../secret.bin",
        "..",
        "sub/..",
        "sub/../w.bin",
        "..\\secret.bin",
        "sub\\..\\..\\secret.bin",
        "/etc/passwd",
        "//etc/passwd",
        "C:\\secret.bin",
        "C:secret.bin",
        "\\\\server\\share\\secret.bin",
        "\\secret.bin",
        "",
        ".",
        "/",
        "./",
        "w.bin\0.txt",
        "\0",
        "missing.bin",
        "W.BIN" if os.name == "posix" else "missing2.bin",
        "sub",
        "w.bin/x",
        "x" * 5000,
        "a/" * 3000 + "w.bin",
        "file:///etc/passwd",
        "~/secret.bin",
        "$HOME/secret.bin",
        "%2e%2e/secret.bin",
        " w.bin",
        "w.bin ",
        "sub\\w.bin" if os.name == "posix" else "missing3.bin",
        "..%00/w.bin",
        ".../secret.bin",
        "\u2025/secret.bin",
        "w\u200b.bin",
        "/proc/self/environ",
        "/dev/stdin",
        "sub/../sub/../../secret.bin",
        "./" * 2000 + "../secret.bin",
        "w.bin\n",
        "http://example.org/w.bin",
        "*",
    ],
)
def test_locations_that_are_refused(folder: Path, location: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(folder, location)
    assert len(str(caught.value)) < 600


def test_an_absolute_path_to_the_right_file_is_refused_too(folder: Path) -> None:
    with pytest.raises(ModelError, match="absolute"):
        load(folder, str(folder / "w.bin"))


# links and other things that are no files


def make_file_link(folder: Path) -> str:
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    return "link.bin"


def make_relative_link(folder: Path) -> str:
    (folder / "link.bin").symlink_to("../secret.bin")
    return "link.bin"


def make_inner_link(folder: Path) -> str:
    (folder / "link.bin").symlink_to("w.bin")
    return "link.bin"


def make_folder_link(folder: Path) -> str:
    (folder / "out").symlink_to(folder.parent, target_is_directory=True)
    return "out/secret.bin"


def make_chain(folder: Path) -> str:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to(folder.parent / "secret.bin")
    return "a"


def make_loop(folder: Path) -> str:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    return "a"


def make_dangling(folder: Path) -> str:
    (folder / "a").symlink_to("nowhere")
    return "a"


def make_hard_link(folder: Path) -> str:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    return "hard.bin"


def make_inner_hard_link(folder: Path) -> str:
    os.link(folder / "w.bin", folder / "sub" / "hard.bin")
    return "sub/hard.bin"


def make_pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


def make_socket(folder: Path) -> str:
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(folder / "s"))
    server.close()
    return "s"


def make_unreadable(folder: Path) -> str:
    (folder / "w.bin").chmod(0)
    return "w.bin"


LINKS = [
    make_file_link,
    make_relative_link,
    make_inner_link,
    make_folder_link,
    make_chain,
    make_loop,
    make_dangling,
    make_hard_link,
    make_inner_hard_link,
    make_pipe,
    make_socket,
]


@needs_links
@pytest.mark.timeout(20)
@pytest.mark.parametrize("trap", LINKS)
def test_traps_in_the_folder(folder: Path, trap: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket must be short
    with pytest.raises(ModelError):
        load(folder, trap(folder))


@needs_links
@pytest.mark.parametrize("trap", [trap for trap in LINKS if trap is not make_socket])
def test_traps_where_folders_cannot_be_opened(
    folder: Path, trap: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_HAS_DIR_FD", False)
    with pytest.raises(ModelError):
        load(folder, trap(folder))
    (folder / "plain.bin").write_bytes(WEIGHTS)
    assert weights_of(load(folder, "plain.bin")) == [1, 2, 3, 4]


@needs_links
@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read(folder: Path) -> None:
    with pytest.raises(ModelError, match="cannot be opened"):
        load(folder, make_unreadable(folder))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no device files")
def test_a_device(folder: Path) -> None:
    with pytest.raises(ModelError, match="not a regular file"), open_under("/dev", "zero"):
        pass
    assert folder.exists()


@needs_links
def test_a_file_exchanged_while_it_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def exchange(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).endswith("w.bin"):
            (folder / "w.bin").unlink()
            (folder / "w.bin").symlink_to(folder.parent / "secret.bin")
        return real_open(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(ModelError):
        load(folder, "w.bin")
    (folder / "w.bin").unlink()
    (folder / "w.bin").write_bytes(WEIGHTS)
    monkeypatch.setattr(files, "_HAS_DIR_FD", False)
    with pytest.raises(ModelError):
        load(folder, "w.bin")


# ranges


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        ("-1", "16"),
        ("0", "-16"),
        ("1", "16"),
        ("16", "16"),
        ("17", None),
        ("0", "15"),
        ("0", "17"),
        ("0", "0"),
        ("99999999999999999999", "16"),
        ("18446744073709551600", "16"),
        ("9223372036854775807", "16"),
        ("0", "1125899906842624"),
        ("1e3", "16"),
        ("0x0", "16"),
        (" 0", "16"),
        ("", "16"),
        ("0", ""),
        ("\u0660", "16"),
        ("1" * 400, "16"),
        ("+0", "16"),
        ("1_0", "6"),
    ],
)
def test_ranges_that_are_refused(folder: Path, offset: str, length: str | None) -> None:
    entries = {"offset": offset} | ({} if length is None else {"length": length})
    with pytest.raises(ModelError):
        load(folder, "w.bin", **entries)


def test_ranges_that_overlap_in_part(folder: Path) -> None:
    (folder / "w.bin").write_bytes(WEIGHTS * 2)
    given = [tensor_in({"location": "w.bin", "offset": str(4 * n)}, f"w{n}") for n in range(4)]
    with pytest.raises(ModelError) as caught:
        import_model(save(folder, model_with(*given)))
    assert str(caught.value).count("overlaps") == 3


def test_ranges_that_overlap_under_two_spellings(folder: Path) -> None:
    (folder / "w.bin").write_bytes(WEIGHTS * 2)
    given = [tensor_in({"location": "w.bin"}, "a"), tensor_in({"location": "./w.bin", "offset": "4"}, "b")]
    with pytest.raises(ModelError, match="overlaps"):
        import_model(save(folder, model_with(*given)))


def test_a_huge_tensor_in_a_small_file_allocates_nothing(folder: Path) -> None:
    tensor = tensor_in({"location": "w.bin"}, dims=[2**40, 2**20])
    with pytest.raises(ModelError, match="outside the file"):
        import_model(save(folder, model_with(tensor)))


def test_a_file_that_shrinks_while_it_is_read(folder: Path) -> None:
    class Shrinking:
        """A file that is cut after its size was looked at."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def fileno(self) -> int:
            return int(self.file.fileno())

        def seek(self, offset: int) -> None:
            os.truncate(folder / "w.bin", 4)
            self.file.seek(offset)

        def readinto(self, view: Any) -> int:
            return int(self.file.readinto(view))

    with open_under(folder, "w.bin") as file, pytest.raises(ModelError, match="changed while it was read"):
        read_range(Shrinking(file), 0, 16, where="test")  # type: ignore[arg-type]


def test_keys_given_twice(folder: Path) -> None:
    tensor = tensor_in([("location", "w.bin"), ("location", "../secret.bin")])
    with pytest.raises(ModelError, match="'location' twice"):
        import_model(save(folder, model_with(tensor)))


def test_a_negative_dimension(folder: Path) -> None:
    with pytest.raises(ModelError, match="negative dimension"):
        import_model(save(folder, model_with(tensor_in({"location": "w.bin"}, dims=[-4]))))


def test_a_file_that_changes_while_it_is_mapped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.mmap.mmap

    def cut(number: int, length: int, **named: Any) -> Any:
        mapped = real(number, length, **named)
        os.truncate(folder / "w.bin", 4)
        return mapped

    monkeypatch.setattr(files.mmap, "mmap", cut)
    with open_under(folder, "w.bin") as file, pytest.raises(ModelError, match="changed while it was read"):
        map_file(file, where="test")


def test_a_mapped_range_beyond_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_MAPPED", 1)
    given = [
        tensor_in({"location": "w.bin", "length": "16"}, "a"),
        tensor_in({"location": "w.bin", "offset": "16"}, "b"),
    ]
    with pytest.raises(ModelError, match="outside the file"):
        import_model(save(folder, model_with(*given)))


def test_an_empty_file_and_an_empty_tensor(folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="outside the file"):
        load(folder, "w.bin")
    proto = model_with(tensor_in({"location": "w.bin"}, dims=[0]))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    assert weights_of(import_model(save(folder, proto))) == []


def test_a_sparse_file_costs_nothing(folder: Path) -> None:
    """A file that claims to be huge is mapped; only what is used is read."""
    with (folder / "w.bin").open("wb") as file:
        file.truncate(1 << 40)
    assert weights_of(load(folder, "w.bin", offset=str((1 << 40) - 16))) == [0, 0, 0, 0]


def test_weights_are_read_only_where_they_are_mapped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_MAPPED", 1)
    tensor = load(folder, "w.bin").graph.initializers["w"].const_value
    assert tensor is not None
    assert not tensor.numpy().flags.writeable


# other places where a tensor can hide


def external(name: str = "w", location: str = "../secret.bin") -> onnx.TensorProto:
    return tensor_in({"location": location}, name)


def hide_in_body(model: onnx.ModelProto) -> None:
    y = helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])
    body = helper.make_graph([helper.make_node("Neg", ["w"], ["b"])], "body", [], [y], initializer=[external()])
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))


def hide_in_function(model: onnx.ModelProto) -> None:
    constant = helper.make_node("Constant", [], ["r"], value=external())
    function = helper.make_function("acme", "F", ["a"], ["r"], [constant], [helper.make_opsetid("", 21)])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    model.graph.node.append(helper.make_node("F", ["x"], ["z"], domain="acme"))


def hide_in_unused_function(model: onnx.ModelProto) -> None:
    hide_in_function(model)
    del model.graph.node[-1]


def hide_in_list(model: onnx.ModelProto) -> None:
    node = helper.make_node("Foo", ["x"], ["z"])
    node.attribute.add(name="t", type=onnx.AttributeProto.TENSORS).tensors.append(external())
    model.graph.node.append(node)


def hide_in_unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Foo", ["x"], ["z"], t=external()))


def hide_in_sparse(model: onnx.ModelProto) -> None:
    indices = helper.make_tensor("i", TensorProto.INT64, [4], [0, 1, 2, 3])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(external(), indices, [8]))


def hide_in_sparse_attribute(model: onnx.ModelProto) -> None:
    indices = helper.make_tensor("i", TensorProto.INT64, [4], [0, 1, 2, 3])
    sparse = helper.make_sparse_tensor(external(), indices, [8])
    model.graph.node.append(helper.make_node("Constant", [], ["z"], sparse_value=sparse))


def hide_in_strings(model: onnx.ModelProto) -> None:
    tensor = external()
    tensor.data_type = TensorProto.STRING
    model.graph.initializer.append(tensor)


def hide_behind_raw_data(model: onnx.ModelProto) -> None:
    tensor = external()
    tensor.raw_data = WEIGHTS
    model.graph.initializer.append(tensor)


def hide_in_small_type(model: onnx.ModelProto) -> None:
    tensor = external()
    tensor.data_type, tensor.dims[0] = TensorProto.INT4, 32
    model.graph.initializer.append(tensor)


HIDING = [
    hide_in_body,
    hide_in_function,
    hide_in_unused_function,
    hide_in_list,
    hide_in_unknown_operator,
    hide_in_sparse,
    hide_in_sparse_attribute,
    hide_in_strings,
    hide_behind_raw_data,
    hide_in_small_type,
]


@pytest.mark.parametrize("hide", HIDING)
def test_tensors_in_hiding(
    folder: Path, hide: Callable[[onnx.ModelProto], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model_with(tensor_in({"location": "w.bin"}, "own"))
    hide(proto)
    with pytest.raises(ModelError):
        import_model(save(folder, proto))
    monkeypatch.chdir(folder / "sub")
    with pytest.raises(ModelError):
        import_model(proto)
    with pytest.raises(ModelError):
        import_model(proto.SerializeToString())


@needs_links
@pytest.mark.parametrize("trap", LINKS)
def test_nothing_outside_is_read(folder: Path, trap: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be opened to look at what it is; its contents are taken only when it belongs to the folder."""
    monkeypatch.chdir(folder)
    secret = (folder.parent / "secret.bin").stat()
    seen: list[os.stat_result] = []

    def watch(real: Callable[..., Any]) -> Callable[..., Any]:
        def look(file: Any, *rest: Any, **named: Any) -> Any:
            seen.append(os.fstat(file.fileno()))
            return real(file, *rest, **named)

        return look

    monkeypatch.setattr(tensors, "read_range", watch(tensors.read_range))
    monkeypatch.setattr(tensors, "map_file", watch(tensors.map_file))
    locations = [trap(folder), "../secret.bin", "sub/../../secret.bin", str(folder.parent / "secret.bin"), "sub/w.bin"]
    for location in locations:
        try:
            load(folder, location)
        except ModelError:
            continue
    assert len(seen) <= 1
    assert not any(os.path.samestat(status, secret) for status in seen)


# where there is no folder


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize("kind", ["bytes", "proto"])
def test_a_model_from_memory_reads_no_files(
    folder: Path, kind: str, attribute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    proto = model_with(tensor_in({"location": "w.bin"}), attribute=attribute)
    before = proto.SerializeToString()
    with pytest.raises(ModelError, match="no folder to look in"):
        import_model(proto if kind == "proto" else proto.SerializeToString())
    assert proto.SerializeToString() == before


def test_an_ir_model_that_knows_its_folder_is_read_through_the_same_opener(folder: Path) -> None:
    path = save(folder, model_with(tensor_in({"location": "w.bin"})))
    assert weights_of(import_model(ir.load(path))) == [1, 2, 3, 4]
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(folder.parent / "secret.bin")
    with pytest.raises(ModelError, match="link"):
        import_model(ir.load(path))


def test_an_ir_model_without_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    model = ir.from_proto(model_with(tensor_in({"location": "w.bin"})))
    with pytest.raises(ModelError, match="no folder to look in"):
        import_model(model)


def test_all_bad_tensors_are_told_at_once(folder: Path) -> None:
    given = [tensor_in({"location": "../secret.bin"}, "a"), tensor_in({"location": "none"}, "b")]
    with pytest.raises(ModelError) as caught:
        import_model(save(folder, model_with(*given)))
    assert "2 problems" in str(caught.value)
    assert "tensor 'a'" in str(caught.value)
    assert "tensor 'b'" in str(caught.value)


def test_nothing_stays_open(folder: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("the system does not show open files")
    gc.collect()  # a map keeps its file open until the last array on it is gone
    before = len(list(Path("/proc/self/fd").iterdir()))
    for location in ("w.bin", "sub/w.bin", "../secret.bin", "none", "sub", "sub/none"):
        try:
            load(folder, location)
        except ModelError:
            continue
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@given(st.lists(st.sampled_from(["..", ".", "", "sub", "w.bin", "out", "\\", "C:", "\0", "secret.bin"]), max_size=6))
def test_no_spelling_leaves_the_folder(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    base = tmp_path_factory.getbasetemp() / "spelling"
    inside = base / "model"
    if not inside.exists():
        (inside / "sub").mkdir(parents=True)
        (inside / "w.bin").write_bytes(WEIGHTS)
        (inside / "sub" / "w.bin").write_bytes(WEIGHTS)
        (base / "secret.bin").write_bytes(SECRET)
        (inside / "out").symlink_to(base, target_is_directory=True)
    try:
        with open_under(inside, "/".join(parts)) as file:
            assert stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            assert file.read() == WEIGHTS
    except ModelError:
        return
