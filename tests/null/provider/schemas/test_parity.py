"""Two registries side by side: by schema version and not by how their ranges are cut, and by what they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.schemas.op_schemas import onnx_operator_set, read_schemas
from dovetail.provider.schemas.parity import STATUSES, Coverage, ParityRow, compare, cover_kernels, cover_onnx


def _registry(*kernels: tuple[str, dict[str, Any]]) -> Coverage:
    registry = KernelRegistry("test")
    for op, registration in kernels:
        registry.register(op, **registration)(lambda x: x)
    return cover_kernels(registry)


def _row(a: Coverage, b: Coverage) -> ParityRow:
    (row,) = compare(a, b).rows
    return row


def test_versions_are_those_of_the_schema() -> None:
    whole = _registry(("Relu", {"since": 6}))
    cut = _registry(("Relu", {"since": 6, "until": 12}), ("Relu", {"since": 13}))
    assert whole["", "Relu"].versions == cut["", "Relu"].versions == (6, 13, 14)
    assert _row(whole, cut).status == "same"


def test_other_versions() -> None:
    row = _row(_registry(("Relu", {"since": 6})), _registry(("Relu", {"since": 6, "until": 13})))
    assert row.status == "versions"
    assert (row.a and row.a.versions, row.b and row.b.versions) == ((6, 13, 14), (6, 13))


def test_other_types() -> None:
    floats = {"T": ("float32", "float16")}
    row = _row(_registry(("Relu", {"since": 6})), _registry(("Relu", {"since": 6, "types": floats})))
    assert row.status == "types"
    assert [difference.version for difference in row.type_differences] == [14, 13, 6]
    assert row.type_differences[-1].only_a == ("float64",)
    assert row.type_differences[0].only_b == ()


def test_types_that_a_version_does_not_allow_are_no_difference() -> None:
    numbers = {"T": ("float16", "float32", "float64", "int8")}
    floats = {"T": ("float16", "float32", "float64")}
    a = _registry(("Relu", {"since": 6, "until": 12, "types": numbers}))
    assert _row(a, _registry(("Relu", {"since": 6, "until": 12, "types": floats}))).status == "same"


def test_one_alone_and_what_needs_no_kernel() -> None:
    report = compare(_registry(("Mish", {"since": 18})), _registry(("Neg", {"since": 6})))
    assert [(row.op, row.status, row.has_body) for row in report.rows] == [
        ("Mish", "only_a", True),
        ("Neg", "only_b", False),
    ]
    assert (report.total.only_a, report.total.only_b, report.total.both) == (1, 1, 0)


def test_operators_that_no_schema_describes() -> None:
    own = {"domain": "acme", "since": 1, "types": {"T": ("float32",)}}
    row = _row(_registry(("Flip", own)), _registry(("Flip", own | {"types": {"T": ("int8",)}})))
    assert (row.status, row.known, row.is_onnx) == ("types", (1,), False)


def test_onnx_has_all_of_itself() -> None:
    onnx = cover_onnx()
    report = compare(onnx, onnx, names=("onnx", "onnx"))
    assert {row.status for row in report.rows} == {"same"}
    assert report.total.a_of_onnx == report.total.both == len(onnx) > 200
    assert report.total.onnx >= len(onnx)
    assert ("", "Upsample") in onnx
    assert 10 not in onnx["", "Upsample"].versions  # deprecated there


def test_filters() -> None:
    onnx = cover_onnx()
    report = compare(onnx, {}, domain="ai.onnx.ml")
    assert {row.domain for row in report.rows} == {"ai.onnx.ml"}
    assert [counts.domain for counts in report.domains] == ["ai.onnx.ml"]
    assert [row.op for row in compare(onnx, {}, op="Relu").rows] == ["Relu"]
    assert compare(onnx, {}, domain="", op="TreeEnsemble").rows == ()


@dataclass(frozen=True)
class _OneSchema:
    """A kernel whose open range serves one schema alone, as ONNX Runtime's do."""

    op: str
    since: int
    domain: str = ""
    types: dict[str, frozenset[str]] = field(default_factory=dict)

    def covers(self, version: int, /) -> bool:
        return version == self.since


def test_a_kernel_says_itself_what_it_covers() -> None:
    assert cover_kernels([_OneSchema("Relu", 13)])["", "Relu"].versions == (13,)


@st.composite
def _registrations(draw: st.DrawFn) -> Coverage:
    kernels = []
    for op in draw(st.sets(st.sampled_from(["Relu", "Cast", "Softmax", "TopK"]), max_size=4)):
        starts = [schema.since for schema in read_schemas(op, "")]
        first = draw(st.integers(0, len(starts) - 1))
        last = draw(st.none() | st.integers(first, len(starts) - 1))
        until = None if last is None or last + 1 == len(starts) else starts[last + 1] - 1
        types = draw(st.none() | st.sets(st.sampled_from(["float32", "int8", "bfloat16"]), min_size=1))
        name = "T1" if op == "Cast" else "T"
        kernels.append((op, {"since": starts[first], "until": until, "types": types and {name: sorted(types)}}))
    return _registry(*kernels)


@settings(deadline=None, max_examples=60)
@given(_registrations(), _registrations())
def test_comparing_the_other_way_round_mirrors_everything(a: Coverage, b: Coverage) -> None:
    there, back = compare(a, b), compare(b, a)
    mirror = dict(zip(STATUSES, ("same", "versions", "types", "only_b", "only_a"), strict=True))
    assert [mirror[row.status] for row in there.rows] == [row.status for row in back.rows]
    assert (there.total.only_a, there.total.both) == (back.total.only_b, back.total.both)
    assert there.total.a == len(a)
    assert there.total.both + there.total.only_a == len(a)
    assert there.total.onnx == len(onnx_operator_set())
    for row, other in zip(there.rows, back.rows, strict=True):
        assert _sides(row) == [(one, two) for two, one in _sides(other)]


def _sides(row: ParityRow) -> Sequence[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(difference.only_a, difference.only_b) for difference in row.type_differences]
