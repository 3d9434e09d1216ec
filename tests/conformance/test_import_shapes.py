"""Node tests that onnx ships, imported: what import says of types and shapes must hold for the expected outputs.

Every fourth generator module is used, and those of operators whose shapes once came out wrong.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as node_cases
import onnx_ir as ir
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from dovetail.errors import UnsupportedOpError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.importer import import_model

ALWAYS = ("concat", "if", "loop", "reshape", "scan", "split", "squeeze", "unique")


class Silent(ILogger):
    """Drops everything."""

    def log(self, severity: Severity, msg: str) -> None:
        """Nothing."""


def load_cases() -> list[Any]:
    folder = Path(node_cases.__path__[0])
    names = sorted(info.name for info in pkgutil.iter_modules([str(folder)]) if not info.ispkg)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        for name in {*names[::4], *(name for name in ALWAYS if name in names)}:
            importlib.import_module(f"{node_cases.__name__}.{name}")
    return [case for case in node_cases._NodeTestCases if case.model is not None]


def arrays_of(values: Any) -> list[Any]:
    """The arrays among the values; None for sequences and optionals, which have no shape."""
    return [
        numpy_helper.to_array(value)
        if isinstance(value, onnx.TensorProto)
        else np.asarray(value)
        if isinstance(value, np.ndarray | np.generic)
        else None
        for value in values
    ]


def test_types_and_shapes_hold() -> None:
    imported, wrong = 0, []
    for case in load_cases():
        try:
            model = import_model(case.model, logger=Silent())
        except UnsupportedOpError:
            continue
        imported += 1
        for _, expected in case.data_sets or ():
            for value, array in zip(model.graph.outputs, arrays_of(expected), strict=True):
                if array is None or not isinstance(value.type, ir.TensorType):
                    continue
                dims = list(value.shape) if value.shape is not None else [None] * array.ndim
                fits = len(dims) == array.ndim and all(
                    not isinstance(dim, int) or dim == size for dim, size in zip(dims, array.shape, strict=True)
                )
                if not fits or (value.dtype is not None and value.dtype.numpy() != array.dtype):
                    wrong.append(
                        f"{case.name}: {value.name} {value.dtype} {value.shape}, got {array.dtype} {array.shape}"
                    )
    assert not wrong, "\n".join(wrong)
    assert imported > 400


def test_whole_models() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="simple")
    counts = {"imported": 0, "unsupported": 0}
    for case in cases:
        try:
            import_model(Path(case.model_dir) / "model.onnx" if case.model_dir else case.model, logger=Silent())
            counts["imported"] += 1
        except UnsupportedOpError:
            counts["unsupported"] += 1
    assert counts["imported"] >= 5, counts
