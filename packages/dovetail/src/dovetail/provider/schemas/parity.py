"""What two providers cover, side by side: operators, domains, versions and types, and how much of ONNX each has.

Pure functions over kernels. A version is one at which an operator's schema changed, so two registries that cut their
ranges differently still compare; types are compared by constraint at the versions that both serve. ONNX itself takes
part as a provider that has every version and type (``cover_onnx``). Reading schemas needs onnx.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dovetail.provider.schemas.op_declarations import OpDeclaration
from dovetail.provider.schemas.op_schemas import onnx_operator_set, read_schemas

__all__ = [
    "STATUSES",
    "Coverage",
    "DomainCounts",
    "OpCoverage",
    "ParityReport",
    "ParityRow",
    "RegisteredKernel",
    "TypeDifference",
    "compare",
    "cover_kernels",
    "cover_onnx",
]

STATUSES: Final = ("same", "versions", "types", "only_a", "only_b")
"""What a row can be: covered alike, at other versions, with other types, or by one provider alone."""


class RegisteredKernel(Protocol):
    """What a registry must tell of a kernel."""

    @property
    def op(self) -> str:
        """The operator."""
        ...

    @property
    def domain(self) -> str:
        """Its domain."""
        ...

    @property
    def since(self) -> int:
        """The first version."""
        ...

    @property
    def types(self) -> Mapping[str, frozenset[str]]:
        """Constraint -> types; one that is not named takes all."""
        ...

    def covers(self, version: int, /) -> bool:
        """Whether it serves the schema that starts at a version."""
        ...


Types = Mapping[str, frozenset[str]]


@dataclass(frozen=True, kw_only=True)
class OpCoverage:
    """What a provider has of one operator."""

    types: Mapping[int, Types]
    """Schema version that is served -> constraint -> types."""

    @property
    def versions(self) -> tuple[int, ...]:
        """The schema versions that are served, oldest first."""
        return tuple(sorted(self.types))


Coverage = Mapping[tuple[str, str], OpCoverage]
"""Domain and operator -> what there is of it."""


@dataclass(frozen=True, kw_only=True)
class TypeDifference:
    """Types of one constraint at one version that only one of two providers takes."""

    version: int
    constraint: str
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ParityRow:
    """One operator in both providers."""

    domain: str
    op: str
    a: OpCoverage | None
    b: OpCoverage | None
    known: tuple[int, ...]
    """Every version of the operator's schema."""
    is_onnx: bool
    """Whether ONNX has the operator."""
    has_body: bool
    """Whether its newest version has a function body, so that it runs without a kernel."""
    type_differences: tuple[TypeDifference, ...] = ()

    @property
    def differs_in_versions(self) -> bool:
        """Whether both have it, at other versions."""
        return self.a is not None and self.b is not None and self.a.versions != self.b.versions

    @property
    def status(self) -> str:
        """One of ``STATUSES``; versions come before types."""
        if self.b is None:
            return "only_a"
        if self.a is None:
            return "only_b"
        if self.differs_in_versions:
            return "versions"
        return "types" if self.type_differences else "same"


@dataclass(frozen=True, kw_only=True)
class DomainCounts:
    """Operators of one domain, or of all."""

    domain: str | None
    """None for all of them."""
    onnx: int
    """How many ONNX has."""
    a: int
    b: int
    a_of_onnx: int
    b_of_onnx: int
    both: int
    only_a: int
    only_b: int
    differing_versions: int
    differing_types: int


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """Two providers side by side, by domain and operator."""

    a: str
    b: str
    rows: tuple[ParityRow, ...]
    """What at least one of the two has."""
    total: DomainCounts
    domains: tuple[DomainCounts, ...]


def cover_kernels(kernels: Iterable[RegisteredKernel]) -> Coverage:
    """What a registry covers, one type set a version and constraint."""
    by_op: dict[tuple[str, str], list[RegisteredKernel]] = {}
    for kernel in kernels:
        by_op.setdefault((kernel.domain, kernel.op), []).append(kernel)
    return {key: found for key, of_op in by_op.items() if (found := _cover_op(*key, of_op)).types}


def cover_onnx() -> Coverage:
    """The operator set of ONNX as if a provider had all of it; deprecated versions are left out."""
    covered = {
        key: OpCoverage(types={schema.since: schema.types for schema in schemas if not schema.deprecated})
        for key, schemas in onnx_operator_set().items()
    }
    return {key: found for key, found in covered.items() if found.types}


def _cover_op(domain: str, op: str, kernels: Sequence[RegisteredKernel]) -> OpCoverage:
    schemas = read_schemas(op, domain)
    if not schemas:  # nobody describes it but the kernels
        return OpCoverage(types={kernel.since: kernel.types for kernel in kernels})
    types = {}
    for schema in schemas:
        serving = [kernel for kernel in kernels if kernel.covers(schema.since)]
        if serving and not schema.deprecated:
            types[schema.since] = _join_types(schema, serving)
    return OpCoverage(types=types)


def _join_types(schema: OpDeclaration, kernels: Sequence[RegisteredKernel]) -> Types:
    """What kernels take together, of what the schema allows."""
    return {
        name: allowed & frozenset[str]().union(*(kernel.types.get(name, allowed) for kernel in kernels))
        for name, allowed in schema.types.items()
    }


def compare(
    a: Coverage, b: Coverage, *, names: tuple[str, str] = ("a", "b"), domain: str | None = None, op: str | None = None
) -> ParityReport:
    """Two providers side by side.

    Args:
        a: What the first covers.
        b: What the second covers.
        names: What they are called.
        domain: Only this domain.
        op: Only this operator.
    """
    onnx = onnx_operator_set()
    keys = [key for key in {*a, *b} if domain in (None, key[0]) and op in (None, key[1])]
    rows = tuple(_make_row(key, a.get(key), b.get(key), is_onnx=key in onnx) for key in sorted(keys))
    asked = [key for key in onnx if domain in (None, key[0]) and op in (None, key[1])]
    domains = sorted({row.domain for row in rows} | {key[0] for key in asked})
    return ParityReport(
        a=names[0],
        b=names[1],
        rows=rows,
        total=_count(None, rows, len(asked)),
        domains=tuple(
            _count(of, [row for row in rows if row.domain == of], sum(key[0] == of for key in asked)) for of in domains
        ),
    )


def _make_row(key: tuple[str, str], a: OpCoverage | None, b: OpCoverage | None, *, is_onnx: bool) -> ParityRow:
    schemas = read_schemas(key[1], key[0])
    versions = {version for side in (a, b) if side is not None for version in side.versions}
    return ParityRow(
        domain=key[0],
        op=key[1],
        a=a,
        b=b,
        known=tuple(schema.since for schema in schemas) or tuple(sorted(versions)),
        is_onnx=is_onnx,
        has_body=bool(schemas) and schemas[-1].has_body,
        type_differences=() if a is None or b is None else tuple(_type_differences(a, b)),
    )


def _type_differences(a: OpCoverage, b: OpCoverage) -> Iterator[TypeDifference]:
    for version in sorted(a.types.keys() & b.types.keys(), reverse=True):
        one, other = a.types[version], b.types[version]
        for name in sorted(one.keys() & other.keys()):
            if one[name] != other[name]:
                yield TypeDifference(
                    version=version,
                    constraint=name,
                    only_a=tuple(sorted(one[name] - other[name])),
                    only_b=tuple(sorted(other[name] - one[name])),
                )


def _count(domain: str | None, rows: Sequence[ParityRow], onnx: int) -> DomainCounts:
    return DomainCounts(
        domain=domain,
        onnx=onnx,
        a=sum(row.a is not None for row in rows),
        b=sum(row.b is not None for row in rows),
        a_of_onnx=sum(row.a is not None and row.is_onnx for row in rows),
        b_of_onnx=sum(row.b is not None and row.is_onnx for row in rows),
        both=sum(row.a is not None and row.b is not None for row in rows),
        only_a=sum(row.status == "only_a" for row in rows),
        only_b=sum(row.status == "only_b" for row in rows),
        differing_versions=sum(row.differs_in_versions for row in rows),
        differing_types=sum(bool(row.type_differences) for row in rows),
    )
