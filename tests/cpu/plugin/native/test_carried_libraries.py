"""Plans that carry C++ plugin libraries: what allows them, where they lie, and when they go."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

import dovetail as dt
from dovetail.cli import main
from dovetail.errors import PlanCorruptError, PlanDeviceMismatchError, PlanTrustError, PluginError
from dovetail.plugin.libraries import load_packed_library, pack_library
from dovetail.plugin.registry import PluginRegistry
from tests.support.native_libraries import Compile

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    """Every engine takes the library with it: its mapping and its file descriptor."""
    gc.collect()
    before = _count_descriptors()
    yield
    gc.collect()
    assert not _is_mapped()
    assert _count_descriptors() == before


def _is_mapped() -> bool:
    return "memfd:dovetail-libprobe" in Path("/proc/self/maps").read_text(encoding="utf-8")


def _count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module")
def built(compile_library: Compile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of one probe that was built on the command line and carries its library."""
    folder = tmp_path_factory.mktemp("plans")
    node = helper.make_node("Probe", ["x"], ["y"], domain="trt.plugins", mode="")
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])] for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("trt.plugins", 1)]
    model, plan = folder / "probe.onnx", folder / "probe.plan"
    save(helper.make_model(helper.make_graph([node], "probe", *ports), opset_imports=opsets), model)
    library = str(compile_library("probe"))
    assert main(["build", str(model), "-o", str(plan), "--quiet", "--carry-plugins", library]) == 0
    return plan


@pytest.fixture
def plan(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copy(built, tmp_path))


def test_a_plan_brings_its_library(plan: Path) -> None:
    with dt.load(plan, host_code=True) as engine:
        assert _is_mapped()
        np.testing.assert_array_equal(engine(X), X)
        assert dt.get_plugin_registry().find_creator("Probe", "1") is None


def test_it_is_not_loaded_unless_host_code_is_allowed(plan: Path) -> None:
    with pytest.raises(PlanTrustError, match="carries the plugin library 'libprobe', which is code") as caught:
        dt.load(plan)
    assert "host_code=True" in str(caught.value)
    assert not _is_mapped()
    assert main(["run", str(plan)]) == 5


def test_engines_with_the_same_library_share_it(plan: Path) -> None:
    first, second = dt.load(plan, host_code=True), dt.load(plan, host_code=True)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    assert len({line.split()[4] for line in maps if "memfd:dovetail-libprobe" in line}) == 1
    first.close()
    del first
    gc.collect()
    np.testing.assert_array_equal(second(X), X)
    second.close()


def test_a_saved_engine_carries_it_on(plan: Path, tmp_path: Path) -> None:
    with dt.load(plan, host_code=True) as engine:
        engine.save(tmp_path / "again.plan")
    with dt.load(tmp_path / "again.plan", host_code=True) as engine:
        np.testing.assert_array_equal(engine(X), X)


@pytest.mark.parametrize("offset", [0, 5, 18, 4096])
def test_a_changed_library_is_refused(plan: Path, offset: int) -> None:
    raw = bytearray(plan.read_bytes())
    raw[raw.index(b"\x7fELF") + offset] ^= 1
    plan.write_bytes(raw)
    with pytest.raises(PlanCorruptError, match="does not match its sha256 digest"):
        dt.load(plan, host_code=True)
    assert not _is_mapped()


def test_the_memory_of_a_library_cannot_be_written(plan: Path) -> None:
    with dt.load(plan, host_code=True):
        links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
        (path,) = [link for link in links if "memfd:dovetail-libprobe" in str(link.readlink())]
        with pytest.raises(OSError, match="not permitted"), path.open("r+b", buffering=0) as file:
            file.write(b"x")


def test_a_library_for_another_machine_is_refused(compile_library: Compile) -> None:
    data = bytearray(compile_library("probe").read_bytes())
    data[18:20] = (21).to_bytes(2, "little")
    with pytest.raises(PlanDeviceMismatchError, match="compiled for another machine") as caught:
        load_packed_library("libprobe", bytes(data), PluginRegistry())
    assert "got machine 21, 64 bits, little-endian" in str(caught.value)


def test_files_that_are_no_shared_library_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.so"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(PluginError, match=r"cannot be carried in a plan: a plugin library is no shared library"):
        pack_library(path)
    path.write_bytes(b"INPUT(libother.so)")
    with pytest.raises(PluginError, match=r"cannot be carried in a plan: a plugin library is malformed"):
        pack_library(path)
    empty = b"\x7fELF\x02\x01" + bytes(10) + b"\x03\x00\x3e\x00" + bytes(44)
    with pytest.raises(PluginError, match="the file is no plugin library"):
        load_packed_library("libprobe", empty, PluginRegistry())


def test_a_library_that_stays_loaded_is_not_taken_for_another(compile_library: Compile) -> None:
    """One that is linked with -z nodelete keeps its path after its descriptor was given back."""
    lasting = pack_library(compile_library("spaces", "-Wl,-z,nodelete"))
    load_packed_library("lasting", lasting, PluginRegistry())
    gc.collect()
    library = load_packed_library("libprobe", pack_library(compile_library("probe")), PluginRegistry())
    assert [creator.name for creator in library.creators] == ["Probe"]
