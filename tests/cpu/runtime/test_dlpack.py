"""Capsules of DLPack: memory that is given out and taken in, and who keeps it alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.dlpack import ImportedTensor, export_dlpack, import_dlpack
from dovetail.errors import InputError, UsageError
from dovetail.exchange import as_dlpack, view_dlpack
from dovetail.host_arrays import address_of, array_at

CPU = (1, 0)


class Owner:
    """Something that memory belongs to."""


class Exporter:
    """An object whose array others take over."""

    def __init__(
        self, array: Any, owner: object = None, *, is_old: bool = False, device: tuple[int, int] = CPU
    ) -> None:
        self.array, self.owner, self.is_old, self.device = array, owner, is_old, device
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if self.is_old and options:
            raise TypeError("no such options")
        self.streams.append(stream)
        kept = (self.array, self.owner)
        shape, dtype = self.array.shape, self.array.dtype
        return export_dlpack(address_of(self.array), shape, dtype, self.device, kept, **_versions(options))


def _versions(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name == "max_version"}


def _view(imported: ImportedTensor) -> Any:
    return array_at(imported.address, imported.shape, imported.dtype)


@pytest.mark.parametrize("is_old", [False, True], ids=["versioned", "plain"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex64"])
def test_numpy_takes_what_is_given_out(dtype: str, is_old: bool) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    taken = np.from_dlpack(Exporter(array, is_old=is_old))
    np.testing.assert_array_equal(taken, array)
    assert taken.dtype == array.dtype
    assert taken.ctypes.data == array.ctypes.data


@pytest.mark.parametrize("is_old", [False, True], ids=["versioned", "plain"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_what_is_given_out_is_taken_in(dtype: Any, is_old: bool) -> None:
    exporter = Exporter(np.arange(6).reshape(1, 6).astype(dtype), is_old=is_old, device=(12, 3))
    imported = import_dlpack(exporter, 7)
    assert (imported.shape, imported.dtype, imported.device) == ((1, 6), np.dtype(dtype), (12, 3))
    assert exporter.streams == [7]
    np.testing.assert_array_equal(_view(imported), exporter.array)


def test_numpys_own_arrays_are_taken_in() -> None:
    for array in (np.arange(12.0).reshape(3, 4), np.array(5), np.empty((0, 3)), np.arange(8)[2:6], np.ones((1, 4)).T):
        imported = import_dlpack(array)
        assert imported.shape == array.shape
        np.testing.assert_array_equal(_view(imported), array)


def test_read_only_memory_is_told() -> None:
    array = np.arange(3)
    array.flags.writeable = False
    assert import_dlpack(array).is_read_only


def test_elements_that_do_not_lie_row_by_row_are_refused() -> None:
    with pytest.raises(InputError, match="row by row"):
        import_dlpack(np.arange(12).reshape(3, 4).T)


def test_what_is_no_capsule_is_refused() -> None:
    class Liar:
        def __dlpack__(self, **options: Any) -> Any:
            return object()

    with pytest.raises(InputError, match="no capsule"):
        import_dlpack(Liar())


def test_a_capsule_is_taken_over_once() -> None:
    class Twice:
        capsule = Exporter(np.arange(3)).__dlpack__()

        def __dlpack__(self, **options: Any) -> Any:
            return self.capsule

    imported = import_dlpack(Twice())
    with pytest.raises(InputError, match="no capsule"):
        import_dlpack(Twice())
    assert imported.shape == (3,)


def test_memory_lives_as_long_as_whoever_took_it_over() -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    imported = import_dlpack(Exporter(np.arange(3), owner))
    taken = np.from_dlpack(Exporter(np.arange(3), owner))
    del owner
    gc.collect()
    assert gone() is not None
    del imported
    assert gone() is not None
    del taken
    assert gone() is None


def test_a_capsule_that_nobody_took_over_lets_go_of_its_memory() -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    exporter: Any = Exporter(np.arange(3), owner, device=(12, 0))
    with pytest.raises((RuntimeError, BufferError)):  # an exception is on its way when the capsule goes
        np.from_dlpack(exporter)
    del owner, exporter
    gc.collect()
    import_dlpack(Exporter(np.arange(3)))
    assert gone() is None


def test_types_that_dlpack_does_not_have() -> None:
    with pytest.raises(BufferError, match="no type for int4"):
        Exporter(np.zeros(2, ml_dtypes.int4)).__dlpack__()


EVERY_TYPE = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)


@pytest.mark.parametrize("dtype", EVERY_TYPE)
@pytest.mark.parametrize("form", ["rows", "columns", "every other", "reversed", "scalar", "empty"])
def test_every_type_and_layout_is_exchanged_without_a_copy(dtype: str, form: str) -> None:
    rows = np.arange(24).reshape(4, 6).astype(np.dtype(dtype))
    array = {
        "rows": rows,
        "columns": rows.T,
        "every other": rows[:, ::2],
        "reversed": rows[::-1],
        "scalar": rows[0, 0, ...],
        "empty": rows[:0],
    }[form]
    taken = view_dlpack(as_dlpack(np.asarray(array)))
    assert (taken.dtype, taken.shape) == (array.dtype, array.shape)
    assert taken.tobytes() == array.tobytes()
    if array.size:
        assert np.shares_memory(taken, rows) or form == "scalar"


def test_shared_memory_lives_as_long_as_the_view() -> None:
    class Held(np.ndarray[Any, Any]):
        """An array that can be watched."""

    array = np.ones(1000, ml_dtypes.bfloat16).view(Held)
    watch, view = weakref.ref(array), view_dlpack(as_dlpack(array))
    del array
    gc.collect()
    assert watch() is not None
    assert float(view.astype(np.float32).sum()) == 1000.0
    del view
    gc.collect()
    assert watch() is None


def test_read_only_memory_stays_so() -> None:
    array = np.ones(3, ml_dtypes.bfloat16)
    array.flags.writeable = False
    assert not view_dlpack(as_dlpack(array)).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        as_dlpack(array).__dlpack__()
    with pytest.raises(BufferError, match="lies on the host"):
        as_dlpack(array).__dlpack__(dl_device=(2, 0))
    assert np.from_dlpack(as_dlpack(np.ones(3)), copy=True).flags.writeable


def test_what_is_no_array_and_no_type_of_dlpack_is_told() -> None:
    with pytest.raises(UsageError, match="expected a NumPy array, got list"):
        as_dlpack([1])  # type: ignore[arg-type]
    with pytest.raises(BufferError, match="no type for int4"):
        as_dlpack(np.ones(3, ml_dtypes.int4)).__dlpack__()
    split = np.zeros(4, [("a", "i1"), ("b", "i2")])["b"]
    with pytest.raises(BufferError, match="a whole number of elements apart"):
        as_dlpack(split).__dlpack__()
