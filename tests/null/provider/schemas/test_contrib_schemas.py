"""The table of schemas that ONNX Runtime adds: what it holds, how it is looked up, and that it is what was exported."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
from importlib import resources
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from dovetail.provider.schemas.contrib_schemas import contrib_schemas, find_contrib_schema, onnxruntime_version

TOOL = Path(__file__).resolve().parents[4] / "tools/export_schemas"
TABLE = resources.files("dovetail.provider.schemas").joinpath("contrib_schemas.json")


def _load_tool() -> Any:
    loader = importlib.machinery.SourceFileLoader("export_schemas", str(TOOL))
    spec = importlib.util.spec_from_loader("export_schemas", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_the_committed_table_is_what_the_tool_writes() -> None:
    if onnxruntime.__version__ != onnxruntime_version():
        pytest.skip(f"the table is of onnxruntime {onnxruntime_version()}, not {onnxruntime.__version__}")
    assert _load_tool().make_table() == TABLE.read_text(encoding="utf-8")


def test_the_table_is_small_and_sorted() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    rows = [(row["domain"], row["op"], row["since_version"]) for row in json.loads(text)["schemas"]]
    assert rows == sorted(set(rows))


def test_the_domains_and_what_is_left_to_plugins() -> None:
    names = {(schema.domain, schema.name) for schema in contrib_schemas()}
    assert {domain for domain, _ in names} == {"", "com.microsoft", "com.ms.internal.nhwc"}
    assert ("", "SimplifiedLayerNormalization") in names
    assert ("", "EfficientNMS_TRT") not in names


def test_matmul_n_bits() -> None:
    schema = find_contrib_schema("MatMulNBits", "com.microsoft", 1)
    assert schema is not None
    assert [formal.name for formal in schema.inputs[:3]] == ["A", "B", "scales"]
    option = onnx.defs.OpSchema.FormalParameterOption
    assert [formal.option for formal in schema.inputs[:4]] == [option.Single] * 3 + [option.Optional]
    assert schema.inputs[1].types == {"tensor(uint8)"}
    assert schema.attributes["K"].required
    assert schema.attributes["K"].type == onnx.defs.OpSchema.AttrType.INT
    assert (schema.min_input, schema.min_output, schema.max_output, schema.deprecated) == (3, 1, 1, False)
    assert schema.attributes["bits"].default_value.i == 4


def test_a_version_is_the_greatest_that_is_not_newer() -> None:
    since = [
        getattr(find_contrib_schema("MaxPool", "com.ms.internal.nhwc", n), "since_version", None) for n in range(15)
    ]
    assert since == [None, 1, 1, 1, 1, 1, 1, 1, 8, 8, 10, 11, 12, 12, 12]
    crop = find_contrib_schema("Crop", "ai.onnx", 11)
    assert crop is not None
    assert (crop.domain, crop.deprecated) == ("", True)
    assert find_contrib_schema("NoSuchOp", "com.microsoft", 1) is None


def test_a_schema_is_made_once_and_can_be_a_key() -> None:
    first = find_contrib_schema("Gelu", "com.microsoft", 1)
    assert first is find_contrib_schema("Gelu", "com.microsoft", 7)
    assert len({first, find_contrib_schema("QuickGelu", "com.microsoft", 1)}) == 2


def test_a_variadic_input_has_its_least_count() -> None:
    schema = find_contrib_schema("QLinearConcat", "com.microsoft", 1)
    assert schema is not None
    assert (schema.inputs[-1].min_arity, schema.inputs[-1].is_homogeneous) == (1, False)
    assert schema.max_input == onnx.defs.get_schema("Concat").max_input


def test_every_row_reads_back_as_onnx_runtime_has_it() -> None:
    if onnxruntime.__version__ != onnxruntime_version():
        pytest.skip(f"the table is of onnxruntime {onnxruntime_version()}, not {onnxruntime.__version__}")
    theirs = {(s.domain, s.name, s.since_version): s for s in get_all_operator_schema()}
    for ours in contrib_schemas():
        other = theirs[ours.domain, ours.name, ours.since_version]
        for mine, formal in zip((*ours.inputs, *ours.outputs), [*other.inputs, *other.outputs], strict=True):
            assert (mine.name, mine.type_str, mine.types) == (formal.name, formal.typeStr, formal.types)
            assert mine.option.name == formal.option.name
        for name, attribute in ours.attributes.items():
            known = other.attributes[name]
            assert (attribute.type.name, attribute.required) == (known.type.name, known.required)
            default = onnx.AttributeProto.FromString(known._default_value)
            assert attribute.default_value == (default if known._default_value else onnx.AttributeProto())
        assert ours.attributes.keys() == other.attributes.keys()


def test_the_members_are_those_of_the_schemas_of_onnx() -> None:
    ours, theirs = find_contrib_schema("FusedConv", "com.microsoft", 1), onnx.defs.get_schema("Conv")
    assert ours is not None

    def is_subset(a: Any, b: Any, extra: set[str]) -> bool:
        return set(vars(a)) - extra <= {name for name in dir(b) if not name.startswith("_")}

    assert is_subset(ours, theirs, set())
    assert is_subset(ours.inputs[0], theirs.inputs[0], set())
    assert is_subset(ours.type_constraints[0], theirs.type_constraints[0], set())
    assert is_subset(ours.attributes["group"], theirs.attributes["group"], {"default"})
