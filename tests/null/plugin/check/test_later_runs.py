"""Plugins that are right in their first run and wrong in a later one: every one is reported.

The plugins differ in the condition under which they clear memory, in the memory that they do not clear, and in its
element type. Clearing in every run is the only correct condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from dovetail.plugin.arrays import as_array
from dovetail.plugin.check import Report, check_creator
from dovetail.plugin.fields import PluginFieldType
from dovetail.types import DataType
from tests.null.plugin.check.corpus.layer import Layer, LayerCreator

_MARK = 0x5AFE
ELEMENTS = {"float32": np.float32, "float16": np.float16, "float64": np.float64, "int32": np.int32, "int8": np.int8}


class Accumulates(Layer):
    """y = gain * x, over a sum that is kept in the workspace or in the output."""

    FIELDS: ClassVar[Any] = {"gain": (PluginFieldType.FLOAT32, 1.0)}
    element: Any = np.float32
    when: str = "always"
    uses_output = False

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.runs = self.runs_of_shape = 0
        self.address = 0
        self.shapes: set[Any] = set()

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        self.runs_of_shape = 0

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 0 if self.uses_output else 8 + int(np.prod(tuple(in_[0].max))) * 8

    def must_clear(self, address: int, mark: Any, shape: Any) -> bool:
        """Return whether this run clears its memory."""
        return {
            "always": True,
            "never": False,
            "first run": self.runs == 0,
            "once a shape": self.runs_of_shape == 0,
            "once an address": address != self.address,
            "new shapes": shape not in self.shapes,
            "every second run": self.runs % 2 == 0,
            "first runs": self.runs < 3,
            "no mark": mark is None or mark[0] != _MARK,
        }[self.when]

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        shape = tuple(input_desc[0].dims)
        if not x.size:
            return
        if self.uses_output:
            mark, total, address = None, y, outputs[0]
        else:
            raw = (np.ctypeslib.ctypes.c_char * (8 + x.size * 8)).from_address(workspace)
            mark = np.frombuffer(raw, np.int64, 1)
            total, address = np.frombuffer(raw, self.element, x.size, 8).reshape(x.shape), workspace
        if self.must_clear(address, mark, shape):
            total[...] = 0
            if self.when == "no mark":
                mark[0] = _MARK
        self.runs, self.runs_of_shape, self.address = self.runs + 1, self.runs_of_shape + 1, address
        self.shapes = self.shapes | {shape}
        with np.errstate(all="ignore"):
            total += (self.gain * x).astype(total.dtype)
            y[...] = total.astype(y.dtype)


def make_plugin(when: str, element: str = "float32", *, uses_output: bool = False) -> LayerCreator:
    values: dict[str, Any] = {"when": when, "element": ELEMENTS[element], "uses_output": uses_output}
    if element.startswith("int"):
        values["TYPES"] = (DataType.INT32,)
    return LayerCreator(type("Accumulates", (Accumulates,), values))


def check(creator: LayerCreator) -> Report:
    return check_creator(creator, shapes=["2x3", "4x3"], isolate=False)


CONDITIONS = ("first run", "once a shape", "once an address", "new shapes", "every second run", "first runs", "no mark")


@pytest.mark.parametrize("when", CONDITIONS)
@pytest.mark.parametrize("element", ["float32", pytest.param("float16", marks=pytest.mark.slow), "int32"])
def test_a_workspace_that_is_not_cleared_in_every_run_is_reported(when: str, element: str) -> None:
    report = check(make_plugin(when, element))
    assert {"R45", "R47", "R48", "R54"} & set(report.failed_ids), report.render()


@pytest.mark.parametrize("when", [each for each in CONDITIONS if each != "no mark"])
def test_an_output_that_is_not_cleared_in_every_run_is_reported(when: str) -> None:
    report = check(make_plugin(when, uses_output=True))
    assert {"R45", "R47"} & set(report.failed_ids), report.render()


@pytest.mark.parametrize(
    ("element", "uses_output"), [*((element, False) for element in ELEMENTS), ("float32", True), ("int32", True)]
)
def test_memory_that_is_cleared_in_every_run_is_not_reported(element: str, *, uses_output: bool) -> None:
    report = check(make_plugin("always", element, uses_output=uses_output))
    assert not {"R45", "R46", "R47", "R48", "R54", "R69"} & set(report.failed_ids), report.render()


class TabledOnce(Layer):
    """y = x * table, whose table is written to the workspace under a condition."""

    FIELDS: ClassVar[Any] = {"gain": (PluginFieldType.FLOAT32, 1.5)}
    must_write: Callable[[Any, Any], bool] = staticmethod(lambda self, mark: True)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.runs = 0

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return 16

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x, y = as_array(inputs[0], input_desc[0]), as_array(outputs[0], output_desc[0])
        raw = (np.ctypeslib.ctypes.c_char * 16).from_address(workspace)
        mark, table = np.frombuffer(raw, np.int64, 1), np.frombuffer(raw, np.float64, 1, 8)
        if type(self).must_write(self, mark):
            mark[0], table[0] = _MARK, self.gain
        self.runs += 1
        with np.errstate(all="ignore"):
            np.multiply(x, np.float32(table[0]), out=y)


@pytest.mark.parametrize(
    ("must_write", "rules"),
    [
        (lambda self, mark: self.runs == 0, {"R47"}),
        (lambda self, mark: mark[0] != _MARK, {"R69"}),
        (lambda self, mark: True, set()),
    ],
    ids=["once an object", "unless marked", "always"],
)
def test_a_table_that_stays_in_the_workspace_is_reported(must_write: Any, rules: set[str]) -> None:
    layer = type("TabledOnce", (TabledOnce,), {"must_write": staticmethod(must_write)})
    report = check_creator(LayerCreator(layer), shapes=["2x3"])
    assert set(report.failed_ids) & {"R45", "R47", "R48", "R54", "R69"} == rules, report.render()
