"""The check of a kernel registry against operator schemas: a misspelt constraint is an error and not a silent miss.

A kernel is judged against every version of its operator that its range covers. Operators of ONNX and ONNX Runtime have
schemas; any other must be declared beside its kernel (``KernelRegistry.register(..., declaration=)``). Part of building
and testing: it needs onnx, which is imported when a check runs.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import ProviderError
from dovetail.near_names import find_near
from dovetail.provider.kernels import Kernel
from dovetail.provider.schemas.op_declarations import AttributeDeclaration, OpDeclaration
from dovetail.provider.schemas.op_schemas import read_schemas, schema_domains, schema_ops

__all__ = ["RegistryProblem", "check_registry", "require_valid_registry"]

_GIVEN_BY_THE_RUNTIME: Final = frozenset(("num_outputs",))
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class RegistryProblem:
    """One way in which a kernel's registration does not fit its operator."""

    kernel: Kernel
    what: str
    expected: str
    got: str
    fix: str

    def __str__(self) -> str:
        kernel = self.kernel
        until = "" if kernel.until is None else kernel.until
        where = f"kernel {kernel.domain or 'ai.onnx'}::{kernel.op} {kernel.since}-{until}"
        return f"{where}: {self.what}; expected {self.expected}, got {self.got}\n  fix: {self.fix}"


def require_valid_registry(kernels: Iterable[Kernel], provider: str) -> None:
    """Raise one error that lists every problem.

    Raises:
        ProviderError: There is one.
    """
    problems = check_registry(kernels)
    if problems:
        raise ProviderError(
            f"{len(problems)} registration(s) do not fit their operators:\n" + "\n".join(map(str, problems)),
            where=f"provider '{provider}'",
        )


def check_registry(kernels: Iterable[Kernel]) -> list[RegistryProblem]:
    """Judge every kernel of a registry.

    >>> from dovetail.provider.kernels import KernelRegistry
    >>> registry = KernelRegistry("demo")
    >>> @registry.register("Neg", since=6, types={"TT": ("float32",)})
    ... def neg(x): return -x
    >>> [problem.what for problem in check_registry(registry)]
    ["the operator has no type constraint 'TT'"]
    """
    known = list(kernels)
    declared = _declarations_of(known)
    return [problem for kernel in known for problem in _check_kernel(kernel, declared)]


_Declared = dict[str, dict[str, dict[int, OpDeclaration]]]


def _declarations_of(kernels: Iterable[Kernel]) -> _Declared:
    declared: _Declared = {}
    for kernel in kernels:
        if kernel.declaration is not None:
            of_op = declared.setdefault(kernel.domain, {}).setdefault(kernel.op, {})
            of_op[kernel.declaration.since] = kernel.declaration
    return declared


def _check_kernel(kernel: Kernel, declared: _Declared) -> list[RegistryProblem]:
    schemas = read_schemas(kernel.op, kernel.domain)
    of_op = declared.get(kernel.domain, {}).get(kernel.op, {})
    if not schemas and not of_op:
        return [_unknown(kernel, declared)]
    if kernel.declaration is not None and (problem := _check_declaration(kernel, kernel.declaration, bool(schemas))):
        return [problem]
    versions = schemas or tuple(of_op[since] for since in sorted(of_op))
    return list(_KernelCheck(kernel, versions).problems())


def _unknown(kernel: Kernel, declared: _Declared) -> RegistryProblem:
    domains = sorted({*schema_domains(), *declared})
    if kernel.domain not in domains:
        near = find_near(kernel.domain, domains, count=1)
        return RegistryProblem(
            kernel=kernel,
            what=f"the domain '{kernel.domain}' is not known",
            expected=f"'{near[0]}'" if near else ", ".join(repr(domain) for domain in domains),
            got=repr(kernel.domain),
            fix="correct the domain, or declare the operator: register(..., declaration=OpDeclaration(...))",
        )
    ops = [*schema_ops(kernel.domain), *declared.get(kernel.domain, ())]
    near = find_near(kernel.op, ops)
    return RegistryProblem(
        kernel=kernel,
        what=f"the domain has no operator '{kernel.op}'",
        expected=" or ".join(near) or f"an operator of '{kernel.domain or 'ai.onnx'}'",
        got=kernel.op,
        fix="correct the name, or declare the operator in a domain of your own",
    )


def _check_declaration(kernel: Kernel, declaration: OpDeclaration, has_schema: bool) -> RegistryProblem | None:
    if has_schema:
        return RegistryProblem(
            kernel=kernel,
            what="the operator is declared although it has a schema",
            expected="no declaration",
            got=f"one for {declaration.domain}::{declaration.op}",
            fix="leave the declaration out, or use a domain of your own",
        )
    if (declaration.domain, declaration.op) != (kernel.domain, kernel.op):
        return RegistryProblem(
            kernel=kernel,
            what="the declaration is of another operator",
            expected=f"{kernel.domain}::{kernel.op}",
            got=f"{declaration.domain}::{declaration.op}",
            fix="register the kernel with the declaration of its own operator",
        )
    return None


class _KernelCheck:
    """The judgement of one kernel against the versions of its operator."""

    def __init__(self, kernel: Kernel, versions: Sequence[OpDeclaration]) -> None:
        self._kernel = kernel
        self._versions = versions
        self._starts = [version.since for version in versions]
        self._covered = [
            version for version, end in zip(versions, self._ends(), strict=True) if self._meets(version, end)
        ]

    def _ends(self) -> list[float]:
        return [*(start - 1 for start in self._starts[1:]), math.inf]

    def _meets(self, version: OpDeclaration, end: float) -> bool:
        until = math.inf if self._kernel.until is None else self._kernel.until
        return version.since <= until and end >= self._kernel.since

    def problems(self) -> Iterator[RegistryProblem]:
        """Everything that is wrong, the range first."""
        yield from self._check_range()
        yield from self._check_types()
        yield from self._check_attributes()
        yield from self._check_inputs()

    # the range

    def _check_range(self) -> Iterator[RegistryProblem]:
        since, until = self._kernel.since, self._kernel.until
        versions = ", ".join(map(str, self._starts))
        if since not in self._starts:
            start = max((start for start in self._starts if start < since), default=self._starts[0])
            yield self._problem(
                f"the range starts at version {since}, where the schema does not change",
                f"one of {versions}",
                str(since),
                f"register with since={start}",
            )
        if until is not None and until + 1 not in self._starts:
            later = [start - 1 for start in self._starts if start > max(until, since)]
            yield self._problem(
                f"the range ends at version {until}, right before no change of the schema",
                f"one less than one of {versions}",
                str(until),
                f"register with until={later[0]}" if later else "leave until out",
            )
        yield from self._check_deprecated()

    def _check_deprecated(self) -> Iterator[RegistryProblem]:
        # A kernel that starts at a deprecated version was written for it; one that runs into it was not.
        old = [version.since for version in self._covered[1:] if version.deprecated]
        if old:
            yield self._problem(
                f"the operator is deprecated from version {old[0]} on",
                f"until={old[0] - 1} or less",
                f"until={self._kernel.until}",
                f"register with until={old[0] - 1}",
            )

    # types

    def _check_types(self) -> Iterator[RegistryProblem]:
        for name, dtypes in self._kernel.types.items():
            lacking = [version for version in self._covered if name not in version.types]
            if lacking:
                yield self._unknown_constraint(name, lacking)
            else:
                yield from self._check_dtypes(name, dtypes)

    def _unknown_constraint(self, name: str, lacking: Sequence[OpDeclaration]) -> RegistryProblem:
        names = sorted(lacking[-1].types)
        where = "" if len(lacking) == len(self._covered) else f" at version {lacking[0].since}"
        return self._problem(
            f"the operator has no type constraint '{name}'{where}",
            " or ".join(names) or "no constraint",
            name,
            f"rename it to '{names[0]}'" if len(names) == 1 and not where else "correct types=, or split the range",
        )

    def _check_dtypes(self, name: str, dtypes: frozenset[str]) -> Iterator[RegistryProblem]:
        """A type must be allowed by a covered version; older ones of the range may allow fewer, as schemas grow."""
        allowed = frozenset[str]().union(*(version.types[name] for version in self._covered))
        if dtypes - allowed:
            yield self._problem(
                f"type constraint '{name}' never allows {', '.join(sorted(dtypes - allowed))}",
                ", ".join(sorted(allowed)),
                ", ".join(sorted(dtypes)),
                "leave those types out",
            )

    # attributes

    def _check_attributes(self) -> Iterator[RegistryProblem]:
        known = {name for version in self._covered for name in version.attributes}
        for name in sorted(self._kernel.attributes - known - _GIVEN_BY_THE_RUNTIME):
            near = find_near(name, known, count=1)
            yield self._problem(
                f"the operator has no attribute '{name}'",
                f"'{near[0]}'" if near else ", ".join(sorted(known)) or "no attributes",
                name,
                "correct the name of the keyword-only parameter, or make it no keyword",
            )
        yield from self._check_required()
        for parameter in inspect.signature(self._kernel.function).parameters.values():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                yield from self._check_default(parameter)

    def _check_required(self) -> Iterator[RegistryProblem]:
        lacking: dict[str, list[OpDeclaration]] = {}
        for version in self._covered:
            for name, attribute in version.attributes.items():
                if attribute.required and name not in self._kernel.attributes:
                    lacking.setdefault(name, []).append(version)
        for name, versions in lacking.items():
            yield self._problem(
                f"the required attribute '{name}' of {_name(versions)} is not taken",
                f"a keyword-only parameter '{name}'",
                ", ".join(sorted(self._kernel.attributes)) or "no attributes",
                f"add the parameter, or register a range without {_name(versions)}",
            )

    def _check_default(self, parameter: inspect.Parameter) -> Iterator[RegistryProblem]:
        """What a kernel takes for an attribute that a node leaves out must be what the schema says it is."""
        other = [version for version in self._covered if _differs(parameter, version.attributes.get(parameter.name))]
        if other and parameter.default is inspect.Parameter.empty:
            yield self._problem(
                f"the kernel needs attribute '{parameter.name}', which a node of {_name(other)} may leave out",
                "a default",
                "no default",
                "give the parameter the schema's default, or None and an error that says what is missing",
            )
        elif other:
            default = other[0].attributes[parameter.name].default
            yield self._problem(
                f"the default of attribute '{parameter.name}' is another than that of {_name(other)}",
                repr(default),
                repr(parameter.default),
                "give the parameter the schema's default",
            )

    # inputs

    def _check_inputs(self) -> Iterator[RegistryProblem]:
        parameters = inspect.signature(self._kernel.function).parameters.values()
        positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        if not any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
            yield from self._check_room(len(positional))
        needed = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
        fewer = [version for version in self._covered if version.min_inputs < needed]
        if fewer:
            yield self._problem(
                f"the kernel needs more inputs than a node of {_name(fewer)} must have",
                f"at most {min(version.min_inputs for version in fewer)} parameters without a default",
                str(needed),
                "let the parameters of optional inputs default to None",
            )

    def _check_room(self, room: int) -> Iterator[RegistryProblem]:
        most = {
            version.since: math.inf if version.max_inputs is None else version.max_inputs for version in self._covered
        }
        wider = [version for version in self._covered if most[version.since] > room]
        if wider:
            wanted = max(most.values())
            yield self._problem(
                f"the kernel takes fewer inputs than {_name(wider)} has",
                "*inputs" if wanted == math.inf else f"{wanted} positional parameters",
                str(room),
                "take *inputs" if wanted == math.inf else "add parameters that default to None",
            )

    def _problem(self, what: str, expected: str, got: str, fix: str) -> RegistryProblem:
        return RegistryProblem(kernel=self._kernel, what=what, expected=expected, got=got, fix=fix)


def _name(versions: Sequence[OpDeclaration]) -> str:
    plural = "s" if len(versions) > 1 else ""
    return f"version{plural} {', '.join(str(version.since) for version in versions)}"


def _differs(parameter: inspect.Parameter, attribute: AttributeDeclaration | None) -> bool:
    if attribute is None or attribute.required:
        return False
    if parameter.default is inspect.Parameter.empty:
        return True
    # A kernel without a value of its own decides by other facts, such as the rank.
    is_open = parameter.default is None or attribute.default is None
    return not is_open and not _same_value(parameter.default, attribute.default)


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same_value, one, other))
    if isinstance(one, float) or isinstance(other, float):  # schemas hold single precision
        return (
            isinstance(one, int | float) and isinstance(other, int | float) and math.isclose(one, other, rel_tol=1e-6)
        )
    return bool(one == other)
