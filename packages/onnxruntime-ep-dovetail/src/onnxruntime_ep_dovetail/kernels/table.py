"""The kernels of a back end as ONNX Runtime's registry lists them: operators, versions, and types by constraint.

A kernel of Dovetail's serves a range of versions; ONNX Runtime gets one definition for each version at which the
operator's schema changed, because names of constraints change there too, and because it takes a range without an end to
mean one version. What crosses to a kernel is memory, so types are tensors of numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import onnx_ir as ir

from dovetail.element_types import dtype_from_onnx_type
from dovetail.network.onnx_schema import find_schema
from dovetail.provider.interfaces import Provider
from dovetail.provider.kernels import Kernel
from onnxruntime_ep_dovetail.abi import KernelCreator, OrtError, OrtRuntime
from onnxruntime_ep_dovetail.graph.read import NHWC_DOMAIN
from onnxruntime_ep_dovetail.graph.values import number_of
from onnxruntime_ep_dovetail.session.options import EP_NAME

__all__ = [
    "CONTROL_FLOW",
    "KernelEntry",
    "is_control_flow",
    "knows_operator",
    "list_kernels",
    "make_registry",
    "schema_domain",
    "schemas_of_runtime",
]

CONTROL_FLOW: Final = {"If": frozenset((0,)), "Loop": frozenset((0, 1)), "Scan": frozenset[int]()}
"""The operators with bodies, and which of their inputs ONNX Runtime reads on the host."""

_OLDEST: Final = {"Scan": 9}
"""ONNX Runtime makes no kernel for the Scan of before, which ran over batches."""
_COPIES: Final = ("MemcpyFromHost", "MemcpyToHost")
"""ONNX Runtime's own nodes between memories, for which engines are no help."""
_NEWEST: Final = 2**31 - 1
_CPU_INPUT: Final = -2
_LAST_SURE: Final = 23
_ALL_SURE: Final = 31

HasSchema = Callable[[str, str, int], bool]


@dataclass(frozen=True, kw_only=True)
class KernelEntry:
    """One definition: an operator from one version of its schema to the next."""

    op: str
    domain: str
    since: int
    types: Mapping[str, tuple[int, ...]]
    """The constraints of the schema, each with the element types that are taken."""
    host_inputs: frozenset[int] = field(default=frozenset())
    """The positions of inputs that must lie in memory of the host."""


def schema_domain(domain: str) -> str:
    """The domain that describes the operators of a domain.

    >>> schema_domain("com.ms.internal.nhwc"), schema_domain("com.microsoft")
    ('', 'com.microsoft')
    """
    return "" if domain == NHWC_DOMAIN else domain


def is_control_flow(node: ir.Node) -> bool:
    """Whether a node is one of ONNX's that run their bodies."""
    return node.domain in ("", "ai.onnx") and node.op_type in CONTROL_FLOW


def list_kernels(provider: Provider, has_schema: HasSchema = lambda *_: True) -> list[KernelEntry]:
    """The definitions of a provider's kernels, and of control flow, which every back end has.

    Args:
        provider: Whose kernels.
        has_schema: Whether ONNX Runtime has an operator of a domain from exactly this version on.
    """
    is_device = not provider.memory.is_host
    entries = [
        KernelEntry(op=kernel.op, domain=kernel.domain, since=schema.since_version, types=types, host_inputs=host)
        for kernel in provider.kernels
        if kernel.op not in _COPIES
        for schema, types in _versions_of(kernel)
        for host in (
            provider.host_inputs(kernel.op, kernel.domain, schema.since_version) if is_device else frozenset(),
        )
    ]
    control = [
        KernelEntry(
            op=op, domain="", since=schema.since_version, types=types, host_inputs=host if is_device else frozenset()
        )
        for op, host in CONTROL_FLOW.items()
        for schema in _schemas_of(op, "")
        if schema.since_version >= _OLDEST.get(op, 1) and (types := _types_of(schema, {})) is not None
    ]
    return [entry for entry in (*entries, *control) if has_schema(entry.op, entry.domain, entry.since)]


def _versions_of(kernel: Kernel) -> Iterator[tuple[Any, Mapping[str, tuple[int, ...]]]]:
    for schema in _schemas_of(kernel.op, schema_domain(kernel.domain)):
        if kernel.covers(schema.since_version) and not schema.deprecated:
            types = _types_of(schema, kernel.types)
            if types is not None:
                yield schema, types


def _schemas_of(op: str, domain: str) -> Iterator[Any]:
    """The schemas of an operator, newest first."""
    schema: Any = find_schema(op, domain, _NEWEST)
    while schema is not None:
        yield schema
        schema = find_schema(op, domain, schema.since_version - 1) if schema.since_version > 1 else None


def _types_of(schema: Any, taken: Mapping[str, frozenset[str]]) -> Mapping[str, tuple[int, ...]] | None:
    """Element types by constraint; None when something that a node must have is no tensor of numbers."""
    types = {}
    for constraint in schema.type_constraints:
        name = constraint.type_param_str
        numbers = _element_types(constraint.allowed_type_strs, taken.get(name))
        if not numbers:
            return None
        types[name] = numbers
    fixed = (formal.type_str for formal in (*schema.inputs, *schema.outputs) if formal.type_str not in types)
    return types if all(_element_types((one,), None) for one in fixed) else None


def _element_types(spelled: Iterable[str], taken: frozenset[str] | None) -> tuple[int, ...]:
    numbers = set()
    for one in spelled:
        if not one.startswith("tensor(") or (taken is not None and dtype_from_onnx_type(one) not in taken):
            continue
        kind = _DENSE.get(one.removeprefix("tensor(").removesuffix(")"))
        if kind is not None:
            numbers.add(kind)
    return tuple(sorted(numbers))


_DENSE: Final = {
    kind.name.lower(): number_of(kind)
    for kind in ir.DataType
    if kind not in (ir.DataType.UNDEFINED, ir.DataType.STRING) and kind.bitwidth >= 8
}
"""Element types with whole bytes, by their names in schemas."""


# ONNX Runtime's registry


def make_registry(runtime: OrtRuntime, entries: Iterable[tuple[KernelEntry, KernelCreator]]) -> int:
    """An ``OrtKernelRegistry`` of entries, each with the function that creates its kernel.

    The function and the registry must live as long as the library is registered.
    """
    place = ctypes.c_void_p()
    runtime.ep_api.CreateKernelRegistry(ctypes.addressof(place))
    types = _DataTypes(runtime)
    for entry, create in entries:
        _add(runtime, place.value or 0, entry, create, types)
    return place.value or 0


def _add(runtime: OrtRuntime, registry: int, entry: KernelEntry, create: KernelCreator, types: _DataTypes) -> None:
    api, builder, definition = runtime.ep_api, ctypes.c_void_p(), ctypes.c_void_p()
    constraints = {name: types.find(numbers) for name, numbers in entry.types.items()}
    if not all(constraints.values()):
        return  # this ONNX Runtime has none of the types
    api.CreateKernelDefBuilder(ctypes.addressof(builder))
    try:
        _describe(runtime, builder.value or 0, entry, constraints)
        api.KernelDefBuilder_Build(builder.value, ctypes.addressof(definition))
        api.KernelRegistry_AddKernel(registry, definition.value, create.address, create.state)
    finally:
        api.ReleaseKernelDef(definition.value)
        api.ReleaseKernelDefBuilder(builder.value)


def _describe(runtime: OrtRuntime, builder: int, entry: KernelEntry, constraints: Mapping[str, list[int]]) -> None:
    api = runtime.ep_api
    api.KernelDefBuilder_SetOperatorType(builder, entry.op.encode())
    api.KernelDefBuilder_SetDomain(builder, entry.domain.encode())
    api.KernelDefBuilder_SetSinceVersion(builder, entry.since, entry.since)
    api.KernelDefBuilder_SetExecutionProvider(builder, EP_NAME.encode())
    for name, found in constraints.items():
        array = (ctypes.c_void_p * len(found))(*found)
        api.KernelDefBuilder_AddTypeConstraint(builder, name.encode(), ctypes.addressof(array), len(found))
    for index in sorted(entry.host_inputs):
        api.KernelDefBuilder_SetInputMemType(builder, index, _CPU_INPUT)


class _DataTypes:
    """The ``OrtDataType`` of element types; those that this ONNX Runtime does not know are left out."""

    def __init__(self, runtime: OrtRuntime) -> None:
        self._runtime = runtime
        self._known: dict[int, int] = {}

    def find(self, numbers: Iterable[int]) -> list[int]:
        return [address for number in numbers if self._is_sure(number) and (address := self._find(number))]

    def _is_sure(self, number: int) -> bool:
        """Before 1.31 the last types had one number here and another one everywhere else."""
        return number <= _LAST_SURE or self._runtime.version >= _ALL_SURE

    def _find(self, number: int) -> int:
        if number not in self._known:
            place = ctypes.c_void_p()
            try:
                self._runtime.ep_api.GetTensorDataType(number, ctypes.addressof(place))
            except OrtError:
                place.value = None
            self._known[number] = place.value or 0
        return self._known[number]


def schemas_of_runtime(runtime: OrtRuntime) -> HasSchema:
    """Whether this ONNX Runtime has an operator from a version on; one that cannot be asked, before 1.25, has all."""
    if not runtime.ep_api.has("GetOpSchema"):
        return lambda _op, _domain, _since: True
    return lambda op, domain, since: _since_of(runtime, op, domain, since) == since


def knows_operator(runtime: OrtRuntime, op: str, domain: str, opset: int) -> bool:
    """Whether this ONNX Runtime has an operator at an opset; one that cannot be asked, before 1.25, has all."""
    return not runtime.ep_api.has("GetOpSchema") or _since_of(runtime, op, domain, opset) is not None


def _since_of(runtime: OrtRuntime, op: str, domain: str, opset: int) -> int | None:
    api, schema, version = runtime.ep_api, ctypes.c_void_p(), ctypes.c_int()
    api.GetOpSchema(op.encode(), opset, domain.encode(), ctypes.addressof(schema))
    if not schema.value:
        return None
    api.OpSchema_GetSinceVersion(schema.value, ctypes.addressof(version))
    api.ReleaseOpSchema(schema.value)
    return version.value
