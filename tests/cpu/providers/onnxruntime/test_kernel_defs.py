"""What is read from ONNX Runtime's registry must be what its sessions do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dovetail.provider.schemas.op_schemas import read_schemas

onnxruntime = pytest.importorskip("onnxruntime", reason="the provider needs it")

from dovetail.providers.onnxruntime.kernel_defs import (  # noqa: E402
    max_opset,
    read_kernel_defs,
    schema_version,
    supported_opset,
    supports,
)

UNARY = ("Relu", "Neg", "Abs", "Sin", "Softmax", "IsNaN", "Celu", "Erf", "Floor", "Not", "Identity", "Swish", "Mish")
TYPES = ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool")


def _runs(op: str, dtype: str, opset: int) -> bool:
    """Whether a session takes a lone node, without the casts and bodies by which ONNX Runtime helps itself."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    out = TensorProto.BOOL if op == "IsNaN" else kind
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [2])],
        [helper.make_tensor_value_info("y", out, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if "onnxruntime" not in type(error).__module__:
            raise
        return False
    return True


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("opset", [13, 21, 26])
def test_supports_says_what_sessions_do(op: str, opset: int) -> None:
    opset = min(opset, max_opset())
    for dtype in TYPES:
        constraint = "T1" if op == "IsNaN" else "V" if op == "Identity" and opset >= 14 else "T"
        said = supports(op, "", opset, {constraint: dtype})
        if said:
            schema = next(s for s in reversed(read_schemas(op, "")) if s.since <= opset)
            assert dtype not in schema.types.get(constraint, ()) or _runs(op, dtype, opset), dtype
        elif dtype != "float16" and schema_version(op, "", opset) is not None:
            has_body = any(schema.has_body for schema in read_schemas(op, ""))
            assert has_body or not _runs(op, dtype, opset), dtype


def test_kernel_defs_are_whole_and_named_as_numpy_names_types() -> None:
    defs = read_kernel_defs()
    assert len(defs) > 1000
    assert {"", "ai.onnx.ml", "com.microsoft"} <= {definition.domain for definition in defs}
    relu = [definition for definition in defs if definition.op == "Relu" and definition.covers(14)]
    assert {dtype for definition in relu for dtype in definition.types["T"]} >= {"float32", "float64", "int8"}
    sequence = next(definition for definition in defs if definition.op == "SequenceAt")
    assert "seq(tensor(float))" in sequence.types["S"]
    assert "object" in sequence.types["T"]
    assert read_kernel_defs() is not defs  # the caller may change its list


def test_every_def_serves_a_schema_and_names_its_constraints() -> None:
    for definition in read_kernel_defs():
        served = [
            schema for schema in read_schemas(definition.op, definition.domain) if definition.covers(schema.since)
        ]
        if definition.domain != "com.microsoft.nchwc":
            assert served, definition
        known = {name for schema in served for name in schema.types}
        # What is no constraint is an input whose type the schema fixes.
        assert served == [] or definition.types.keys() - known <= {"shape", "indices", "axis", "X"}, definition


@pytest.mark.parametrize(
    ("op", "domain", "opset", "types", "expected"),
    [
        ("Relu", "", 28, {"T": "float32"}, True),
        ("Relu", "ai.onnx", 14, {"T": "float32"}, True),
        ("Relu", "", 28, {"T": "uint8"}, False),
        ("Relu", "", 28, {}, True),
        ("Constant", "", 13, {}, True),
        ("Nothing", "", 13, {}, False),
        ("Gelu", "com.microsoft", 1, {"T": "float32"}, True),
        ("Swish", "", 24, {"T": "float32"}, False),
    ],
)
def test_supports(op: str, domain: str, opset: int, types: dict[str, str], expected: bool) -> None:
    assert supports(op, domain, opset, types) is expected


def test_the_newest_opset_is_one_that_sessions_take_and_the_next_is_not() -> None:
    newest = max_opset()
    assert _runs("Relu", "float32", newest)
    assert not _runs("Relu", "float32", newest + 1)
    assert max_opset("ai.onnx") == newest
    assert max_opset("ai.onnx.ml") >= 5
    assert max_opset("com.microsoft") == 1


def test_a_model_of_a_newer_opset_is_stamped_with_the_newest_that_is_taken() -> None:
    newest = max_opset()
    if onnx.defs.onnx_opset_version() <= newest:
        pytest.skip("this ONNX Runtime takes every opset that this onnx has")
    changed = sorted(
        schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain and schema.since_version > newest
    )
    opset = onnx.defs.onnx_opset_version()
    assert supported_opset([("Relu", opset), ("Add", opset)]).opset == newest
    choice = supported_opset([("Relu", opset), *((op, opset) for op in changed)])
    assert (choice.opset, list(choice.changed)) == (None, changed)


def test_an_opset_that_is_taken_is_kept_or_lowered() -> None:
    assert supported_opset([("Relu", 13), ("Add", 13)]).opset == 13
    assert supported_opset([("Softmax", 11), ("Relu", 6)]).opset == 11
    assert supported_opset([]).opset == max_opset()
    # Of functions that were inlined: each keeps the schema it had, where one opset has both.
    assert supported_opset([("Add", 13), ("Sin", 21)]).opset == 13
    assert supported_opset([("Add", 6), ("Gelu", 20)]) == supported_opset([("Gelu", 20), ("Add", 6)])
    assert supported_opset([("Add", 6), ("Gelu", 20)]).changed == ("Add",)
    assert supported_opset([("TreeEnsemble", 5)], "ai.onnx.ml").opset == 5
    assert supported_opset([("Gelu", 1)], "com.microsoft").opset == 1
    assert supported_opset([("NoSuchOp", 13)]).changed == ("NoSuchOp",)
