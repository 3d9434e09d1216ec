"""Inputs from elsewhere: types that NumPy lacks come by DLPack; what is no array of numbers is called what it is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import dovetail as dt
from dovetail.dlpack import export_dlpack
from dovetail.host_arrays import address_of


class Tensor:
    """An array of a framework that knows bfloat16, as torch gives it."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **others: Any) -> Any:
        return export_dlpack(address_of(self.array), self.array.shape, self.array.dtype, (1, 0), self)


def _engine(dtype: dt.DataType) -> dt.Engine:
    network = dt.Builder().create_network()
    x = network.add_input("x", dtype, (2, 3))
    network.mark_output(network.add_identity(x).get_output(0))
    return dt.compile(network)


def test_a_bfloat16_tensor_is_taken() -> None:
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    with _engine(dt.bfloat16) as engine:
        np.testing.assert_array_equal(engine(Tensor(values)), values)


def test_a_bfloat16_tensor_for_another_type_is_named() -> None:
    with _engine(dt.float32) as engine, pytest.raises(dt.InputError) as caught:
        engine(Tensor(np.zeros((2, 3), ml_dtypes.bfloat16)))
    assert "expected float32, got bfloat16\n  fix: convert it to float32 first" in str(caught.value)


def test_an_array_of_objects_is_named() -> None:
    with (
        _engine(dt.float32) as engine,
        pytest.raises(dt.InputError, match="an array of Python objects, not of numbers"),
    ):
        engine(np.array([[1, 2, 3], [4, 5, {}]], object))


@pytest.mark.parametrize("given", ["model.onnx", b"\x08\x0a", None])
def test_support_is_asked_of_a_model(given: Any) -> None:
    with pytest.raises(dt.UsageError, match=r"an onnx_ir\.Model") as caught:
        dt.find_support(given)
    assert "onnx_ir." in str(caught.value)


def test_support_says_why() -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    node = ir.Node("", "Relu", [x])
    model = ir.Model(ir.Graph([x], node.outputs, nodes=[node], opset_imports={"": 21}), ir_version=10)
    (found,) = dt.find_support(model, providers=["cpu"])
    assert (found.provider, found.reason) == ("cpu", "it is the first that takes it")


def test_files_in_the_wrong_place_are_called_what_they_are(tmp_path: Any) -> None:
    plan = tmp_path / "a.plan"
    with _engine(dt.float32) as engine:
        engine.save(plan)
    for source in (plan, plan.read_bytes()):
        with pytest.raises(dt.ModelError, match=r"this is a plan.*\n.*load it with dovetail\.load"):
            dt.compile(source)
    model = bytes((8, 10, 18, 1)) + b"x" * 20
    (tmp_path / "m.onnx").write_bytes(model)
    with pytest.raises(dt.PlanError, match=r"this is an ONNX model and not a plan\n.*dovetail\.compile"):
        dt.load(tmp_path / "m.onnx")
    with pytest.raises(dt.PlanError, match="this is an ONNX model and not a plan"):
        dt.Runtime().deserialize_cuda_engine(model)
