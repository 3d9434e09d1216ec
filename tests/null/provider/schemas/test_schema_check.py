"""The check of registrations against schemas: each way to be wrong gives the one problem that says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.errors import ProviderError
from dovetail.provider.kernels import KernelRegistry
from dovetail.provider.schemas.op_declarations import AttributeDeclaration, OpDeclaration
from dovetail.provider.schemas.schema_check import RegistryProblem, check_registry, require_valid_registry

FLIP = OpDeclaration(
    op="Flip",
    domain="acme",
    min_inputs=1,
    max_inputs=1,
    types={"T": frozenset({"float32"})},
    attributes={"axis": AttributeDeclaration(required=True), "wrap": AttributeDeclaration(default=1)},
)


def neg(x: Any) -> Any:
    return -x


def flip(x: Any, *, axis: int, wrap: int = 1) -> Any:
    return x


def _problems(op: str, function: Callable[..., Any] = neg, **registration: Any) -> list[RegistryProblem]:
    registry = KernelRegistry("test")
    registry.register(op, **registration)(function)
    return check_registry(registry)


def _problem(op: str, function: Callable[..., Any] = neg, **registration: Any) -> RegistryProblem:
    (problem,) = _problems(op, function, **registration)
    assert problem.kernel.op == op
    assert problem.fix
    return problem


@pytest.mark.parametrize(
    "registration",
    [
        {"since": 6, "types": {"T": ("float32", "int8")}},
        {"since": 6, "until": 12, "types": {"T": ("float32",)}},
        {"since": 13},
    ],
)
def test_right_registrations_have_no_problem(registration: dict[str, Any]) -> None:
    assert _problems("Neg", **registration) == []


def test_misspelt_constraint() -> None:
    problem = _problem("Neg", since=6, types={"U": ("float32",)})
    assert problem.what == "the operator has no type constraint 'U'"
    assert (problem.expected, problem.got, problem.fix) == ("T", "U", "rename it to 'T'")


def test_constraint_that_only_some_versions_have() -> None:
    def scatter(data: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
        return data

    def power(x: Any, y: Any) -> Any:
        return x

    assert _problems("ScatterElements", scatter, since=11, types={"Tind": ("int64",)}) == []
    problem = _problem("Pow", power, since=7, types={"T1": ("float32",)})
    assert problem.what == "the operator has no type constraint 'T1' at version 7"


def test_type_that_no_covered_version_allows() -> None:
    problem = _problem("Neg", since=6, types={"T": ("float32", "uint8", "object")})
    assert problem.what == "type constraint 'T' never allows object, uint8"
    assert _problem("Neg", since=6, until=12, types={"T": ("bfloat16",)}).expected.startswith("float16, float32")
    assert _problems("Neg", since=6, types={"T": ("bfloat16",)}) == []


@pytest.mark.parametrize(
    ("since", "until", "what", "fix"),
    [
        (7, None, "the range starts at version 7, where the schema does not change", "register with since=6"),
        (6, 11, "the range ends at version 11, right before no change of the schema", "register with until=12"),
        (13, 20, "the range ends at version 20, right before no change of the schema", "leave until out"),
    ],
)
def test_range_that_ends_within_a_version(since: int, until: int | None, what: str, fix: str) -> None:
    problem = _problem("Neg", since=since, until=until)
    assert (problem.what, problem.fix) == (what, fix)
    assert "1, 6, 13" in problem.expected


def test_range_before_the_operator() -> None:
    def where(condition: Any, x: Any, y: Any) -> Any:
        return x

    assert _problem("Where", where, since=1).fix == "register with since=9"


def test_range_that_runs_into_a_deprecated_version() -> None:
    def upsample(x: Any, scales: Any, *, mode: str = "nearest") -> Any:
        return x

    assert _problem("Upsample", upsample, since=9).fix == "register with until=9"
    assert _problems("Upsample", upsample, since=9, until=9) == []


def test_unknown_domain() -> None:
    problem = _problem("Gelu", domain="com.microsft", since=1)
    assert problem.what == "the domain 'com.microsft' is not known"
    assert problem.expected == "'com.microsoft'"


def test_unknown_operator() -> None:
    problem = _problem("Softmaxx", since=13)
    assert problem.what == "the domain has no operator 'Softmaxx'"
    assert "Softmax" in problem.expected


def test_unknown_attribute() -> None:
    def softmax(x: Any, *, axes: int = -1) -> Any:
        return x

    problem = _problem("Softmax", softmax, since=13)
    assert problem.what == "the operator has no attribute 'axes'"
    assert problem.expected == "'axis'"


def test_required_attribute_that_is_not_taken() -> None:
    problem = _problem("Concat", lambda *inputs: inputs[0], since=4)
    assert problem.what == "the required attribute 'axis' of versions 4, 11, 13 is not taken"


def test_default_of_another_version() -> None:
    def softmax(x: Any, *, axis: int = 1) -> Any:
        return x

    problem = _problem("Softmax", softmax, since=13)
    assert problem.what == "the default of attribute 'axis' is another than that of version 13"
    assert (problem.expected, problem.got) == ("-1", "1")
    assert _problems("Softmax", softmax, since=1, until=12) == []


def test_attribute_without_a_default_that_nodes_may_leave_out() -> None:
    def softmax(x: Any, *, axis: int) -> Any:
        return x

    problem = _problem("Softmax", softmax, since=13)
    assert problem.what == "the kernel needs attribute 'axis', which a node of version 13 may leave out"


def test_too_few_inputs() -> None:
    def clip(x: Any, low: Any = None) -> Any:
        return x

    assert _problem("Clip", clip, since=11).expected == "3 positional parameters"
    assert _problem("Max", neg, since=8).fix == "take *inputs"


def test_optional_inputs_must_have_defaults() -> None:
    def clip(x: Any, low: Any, high: Any) -> Any:
        return x

    problem = _problem("Clip", clip, since=11)
    assert (problem.expected, problem.got) == ("at most 1 parameters without a default", "3")


def test_contrib_operators_have_schemas_too() -> None:
    def gelu(x: Any) -> Any:
        return x

    assert _problems("Gelu", gelu, domain="com.microsoft", since=1, types={"T": ("float32",)}) == []
    assert _problem("Gelu", gelu, domain="com.microsoft", since=1, types={"V": ("float32",)}).expected == "T"


def test_operator_of_our_own_is_checked_by_its_declaration() -> None:
    declared = {"domain": "acme", "since": 1, "declaration": FLIP}
    assert _problems("Flip", flip, types={"T": ("float32",)}, **declared) == []
    assert _problem("Flip", flip, types={"S": ("float32",)}, **declared).expected == "T"
    assert _problem("Flip", lambda x, *, axis: x, **declared | {"since": 2}).fix == "register with since=1"
    assert _problem("Flip", neg, **declared).what == "the required attribute 'axis' of version 1 is not taken"
    assert _problem("Flip", flip, domain="acme", since=1).what == "the domain 'acme' is not known"


def test_declaration_of_another_operator() -> None:
    problem = _problem("Flop", flip, domain="acme", since=1, declaration=FLIP)
    assert (problem.expected, problem.got) == ("acme::Flop", "acme::Flip")


def test_declaration_beside_a_schema() -> None:
    problem = _problem("Neg", since=6, declaration=FLIP)
    assert problem.what == "the operator is declared although it has a schema"


def test_all_problems_are_in_one_error() -> None:
    registry = KernelRegistry("test")
    registry.register("Neg", since=7)(neg)
    registry.register("Abss", since=6)(neg)
    with pytest.raises(ProviderError, match=r"(?s)provider 'test': 2 registration.*ai\.onnx::Neg 7-.*ai\.onnx::Abss"):
        require_valid_registry(registry, "test")


def test_importing_the_check_does_not_import_onnx() -> None:
    modules = "dovetail.provider.schemas.schema_check, dovetail.provider.schemas.parity"
    code = f"import sys, {modules}; sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
