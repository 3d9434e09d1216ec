"""The hostile host notices writes, reads, misuse and changes, and says exactly where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.expr import Constant, DimensionOperation, Symbol
from dovetail.plugin.check.host.hostile import ForbiddenDesc, GuardedBuffer, HostContext, HostExprBuilder
from dovetail.plugin.check.host.tensors import decode, difference, encode
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.check.state import buffers_of, changes, state_of
from dovetail.plugin.fields import PluginField
from dovetail.types import DataType, PluginTensorDesc, TensorFormat, TensorRTPhase
from tests.null.plugin.check.good import Parts, Scale


def _whole(buffer: GuardedBuffer) -> np.ndarray[Any, Any]:
    block = buffer.body.base
    assert isinstance(block, np.ndarray)
    return block


@given(data=st.data(), nbytes=st.integers(0, 300), value=st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_one_byte_outside_is_always_seen(data: st.DataObject, nbytes: int, value: int) -> None:
    buffer = GuardedBuffer("output 0", nbytes, fill=0xA5)
    offset = data.draw(st.integers(-4096, nbytes + 4095))
    _whole(buffer)[buffer.address - _whole(buffer).ctypes.data + offset] ^= value
    assert (buffer.damage() is None) == (0 <= offset < nbytes)


def test_damage_names_the_place() -> None:
    buffer = GuardedBuffer("output 1", 8, fill=0)
    assert buffer.address % 256 == 0
    start = buffer.address - _whole(buffer).ctypes.data
    _whole(buffer)[start - 3] ^= 0xFF
    assert buffer.damage() == "1 bytes before the start of output 1, the nearest at byte -3"
    _whole(buffer)[start + 10] ^= 0xFF
    assert buffer.damage() == "1 bytes after the end of output 1, the first at byte 10"


@pytest.mark.parametrize("attribute", ["desc", "min", "opt", "max"])
def test_reading_a_forbidden_descriptor_is_noted(attribute: str) -> None:
    reads: list[str] = []
    getattr(ForbiddenDesc(3, reads), attribute)
    assert reads == [f"in_out[3].{attribute}"]


def test_a_forbidden_descriptor_holds_nothing_valid() -> None:
    desc = ForbiddenDesc(1, []).desc
    assert isinstance(desc, PluginTensorDesc)
    assert desc.type is None
    assert desc.format is None
    assert not desc.dims.is_valid


def test_comparing_or_copying_a_forbidden_descriptor_is_reading_it() -> None:
    reads: list[str] = []
    desc = ForbiddenDesc(2, reads)
    assert desc == desc.copy()
    assert reads == ["in_out[2].desc", "in_out[2].desc"]
    reads.clear()
    repr(desc)
    assert reads == []


def test_arithmetic_on_size_tensors_is_noted_and_goes_on() -> None:
    builder = HostExprBuilder()
    size = builder.declare_size_tensor(1, Constant(2), Symbol("n"))
    assert builder.operation(DimensionOperation.SUM, size, Constant(1)) is not None
    builder.declare_size_tensor(2, size, Symbol("n"))
    assert [text.split("(")[0] for text in builder.misuse] == [
        "exprBuilder.operation",
        "exprBuilder.declare_size_tensor",
    ]


def test_contexts_note_their_uses() -> None:
    uses: list[str] = []
    first, second = HostContext("first", uses), HostContext("second", uses)
    allocator = first.gpu_allocator
    assert allocator is not None
    assert second.error_recorder is not None
    assert allocator.deallocate(allocator.allocate(16, 16, 0))
    assert uses == ["first", "second", "first", "first"]


def _specimen(plugin: Any) -> Specimen:
    return examine(plugin, TensorRTPhase.BUILD, made_by="the test")


class Tool:
    """An object of the author's own."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 1


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda p: setattr(p, "alpha", 2.0), "self.alpha: 1.0 -> 2.0"),
        (lambda p: p.listed.append(3), "self.listed: ('list', 2) -> ('list', 3)"),
        (lambda p: p.named.update(a=2), "self.named['a']: 1 -> 2"),
        (lambda p: p.tool.__init__() or setattr(p.tool, "size", 2), "self.tool.size: 1 -> 2"),
        (lambda p: p.weights.__setitem__(0, 5), "self.weights: array float64(3,) #"),
        (lambda p: setattr(p, "new", None), "self.new: (not set) -> None"),
        (lambda p: p.field.buffer.__setitem__(0, 5), "self.field: ('f', 'UNKNOWN', "),
    ],
)
def test_a_change_is_found_by_its_path(change: Any, path: str) -> None:
    plugin: Any = Scale()
    plugin.listed, plugin.named, plugin.tool, plugin.weights = [1, 2], {"a": 1}, Tool(), np.zeros(3)
    plugin.field = PluginField("f", np.zeros(2, np.int8))
    plugin.loop, plugin.lock = plugin, __import__("threading").Lock()
    specimen = _specimen(plugin)
    before = state_of(specimen)
    assert changes(before, state_of(specimen)) == []
    change(plugin)
    found = changes(before, state_of(specimen))
    assert found
    assert found[0].startswith(path)


def test_the_walk_goes_into_separate_capabilities_and_finds_buffers() -> None:
    plugin: Any = Parts(0.5)
    specimen = _specimen(plugin)
    specimen.runtime.table = memoryview(bytearray(4))
    specimen.build.kernel = np.zeros(2)
    paths = [path for path, _ in buffers_of(specimen)]
    assert len(paths) == 2
    assert any(path.endswith(".table") for path in paths)
    assert any(path.endswith(".kernel") for path in paths)


@pytest.mark.parametrize(
    ("dtype", "off", "is_same"),
    [
        (DataType.FLOAT, 0.9e-4, True),
        (DataType.FLOAT, 1.2e-4, False),
        (DataType.HALF, 1.9e-2, True),
        (DataType.HALF, 3e-2, False),
        (DataType.INT8, 1, True),
        (DataType.INT8, 2, False),
        (DataType.INT32, 1, False),
    ],
)
def test_tolerances(dtype: DataType, off: float, is_same: bool) -> None:
    expected = np.ones((2, 2), dtype.numpy)
    got = expected.copy()
    got[1, 0] += got.dtype.type(off)
    found = difference(got, expected, dtype)
    assert (found is None) == is_same
    assert found is None or found.startswith("element (1, 0) is ")


def test_special_numbers_agree_with_themselves_alone() -> None:
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert difference(special, special, DataType.FLOAT) is None
    assert difference(np.zeros(3, np.float32), special, DataType.FLOAT) is not None
    assert difference(np.zeros(2, np.float32), special, DataType.FLOAT) == "shape (2,) instead of (3,)"


@pytest.mark.parametrize("layout", [TensorFormat.LINEAR, TensorFormat.CHW32, TensorFormat.HWC8, TensorFormat.CHW4])
def test_tensors_survive_their_bytes(layout: TensorFormat) -> None:
    array = np.arange(2 * 3 * 4 * 5, dtype=np.float16).reshape(2, 3, 4, 5)
    assert np.array_equal(decode(encode(array, DataType.HALF, layout), DataType.HALF, layout, array.shape), array)
