"""The kernel registry: what ops a back end has, collected by a decorator and looked up by node.

A kernel is a plain function: tensors are positional parameters (an absent optional input is ``None``, variadic
inputs are ``*args``), attributes are keyword-only parameters named as the ONNX schema names them, and a
keyword-only parameter ``num_outputs`` receives the count of outputs the node has. It returns one array, or a tuple
when the op has several outputs. Nothing here imports onnx, so a plan runs without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from dovetail.errors import ProviderError
from dovetail.provider.schemas.families import KernelFamilies
from dovetail.provider.schemas.op_declarations import OpDeclaration

__all__ = ["Kernel", "KernelRegistry"]

KernelFunction = Callable[..., Any]
F = TypeVar("F", bound=KernelFunction)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One registered implementation of an op over a range of opset versions."""

    op: str
    domain: str
    since: int
    until: int | None
    """The last opset version it serves; None means up to the newest."""
    types: Mapping[str, frozenset[str]]
    """Constraint name of the ONNX schema -> NumPy dtype names; a constraint not named here accepts every type."""
    function: KernelFunction
    attributes: frozenset[str] = field(default=frozenset())
    into: KernelFunction | None = None
    """The same with the output array as one more last positional argument; what it returns is not looked at.

    A kernel may have one when the shapes and types of its inputs decide those of its output, or when it only moves
    elements into whatever shape the output has. It must not read an input after it wrote to the output, which may lie
    in the same memory. It is called only after ``function`` gave, for inputs of these shapes and types, a result of
    the output's shape and type; so it checks nothing.
    """
    declaration: OpDeclaration | None = None
    """What the op looks like, for one that no schema of ONNX or ONNX Runtime describes."""
    host_inputs: frozenset[int] = field(default=frozenset())
    """Devices: the positions of inputs that the kernel reads on the host."""

    def covers(self, opset: int) -> bool:
        """Whether a node of this opset version is served."""
        return self.since <= opset and (self.until is None or opset <= self.until)

    def bind(
        self, attributes: Mapping[str, Any], num_outputs: int, *, function: KernelFunction | None = None
    ) -> KernelFunction:
        """Fix the attributes once, so that a run passes only arrays.

        Args:
            attributes: Those of the node.
            num_outputs: How many outputs the node has.
            function: Replaces the registered function.
        """
        return _bind_keywords(function or self.function, self._keywords(attributes, num_outputs))

    def bind_into(self, attributes: Mapping[str, Any], num_outputs: int) -> KernelFunction | None:
        """The same for ``into``, where the kernel has it."""
        return None if self.into is None else _bind_keywords(self.into, self._keywords(attributes, num_outputs))

    def _keywords(self, attributes: Mapping[str, Any], num_outputs: int) -> dict[str, Any]:
        unknown = attributes.keys() - self.attributes
        if unknown:
            raise ProviderError(
                f"kernel {self.op} does not take attribute(s) {', '.join(sorted(unknown))}",
                expected=", ".join(sorted(self.attributes)) or "no attributes",
                fix="remove them from the node, or register a kernel that takes them",
            )
        return {**attributes, "num_outputs": num_outputs} if "num_outputs" in self.attributes else dict(attributes)


def _bind_keywords(function: KernelFunction, keywords: dict[str, Any]) -> KernelFunction:
    if not keywords:
        return function

    def bound(*arrays: Any) -> Any:
        return function(*arrays, **keywords)

    return bound


class KernelRegistry:
    """All kernels of one provider: those registered, and with ``families`` also those of modules not imported yet.

    >>> registry = KernelRegistry("demo")
    >>> @registry.register("Neg", since=6, types={"T": ("float32",)})
    ... def neg(x): return -x
    >>> registry.find("Neg", "", 13).function(2.0)
    -2.0
    """

    def __init__(self, provider: str, families: KernelFamilies | None = None) -> None:
        self.provider = provider
        self._families = families
        self._kernels: dict[tuple[str, str], list[Kernel]] = {}

    def register(
        self,
        op: str,
        *,
        since: int,
        until: int | None = None,
        domain: str = "",
        types: Mapping[str, Sequence[str]] | None = None,
        into: KernelFunction | None = None,
        declaration: OpDeclaration | None = None,
        host_inputs: Sequence[int] = (),
    ) -> Callable[[F], F]:
        """Collect a kernel as ``Kernel`` describes it; decorators stack, so one function may serve several ops."""

        def collect(function: F) -> F:
            frozen = {name: frozenset(names) for name, names in (types or {}).items()}
            kernel = Kernel(
                op=op,
                domain=domain,
                since=since,
                until=until,
                types=frozen,
                function=function,
                attributes=_keyword_names(function),
                into=into,
                declaration=declaration,
                host_inputs=frozenset(host_inputs),
            )
            self._insert(kernel)
            return function

        return collect

    def _insert(self, kernel: Kernel) -> None:
        known = self._kernels.setdefault((kernel.domain, kernel.op), [])
        for other in known:
            if other.covers(kernel.since) or kernel.covers(other.since):
                raise ProviderError(
                    f"kernel {kernel.domain or 'ai.onnx'}::{kernel.op} is registered twice for opset {kernel.since}",
                    where=f"provider '{self.provider}'",
                    fix="give the two kernels ranges (since, until) that do not overlap",
                )
        known.append(kernel)

    def find(self, op: str, domain: str, opset: int) -> Kernel | None:
        """The kernel that serves this op at this opset version, if any."""
        domain = "" if domain == "ai.onnx" else domain
        if self._families is None:
            return self._find_registered(op, domain, opset)
        self._families.import_for(op, domain)
        kernel = self._find_registered(op, domain, opset)
        if kernel is None:
            self._families.import_all()
            kernel = self._find_registered(op, domain, opset)
        return kernel

    def _find_registered(self, op: str, domain: str, opset: int) -> Kernel | None:
        for kernel in self._kernels.get((domain, op), ()):
            if kernel.covers(opset):
                return kernel
        return None

    def load_all(self) -> None:
        """Have every kernel registered now; iterating and counting do so by themselves."""
        if self._families is not None:
            self._families.import_all()

    def __iter__(self) -> Iterator[Kernel]:
        self.load_all()
        for kernels in list(self._kernels.values()):
            yield from kernels

    def __len__(self) -> int:
        self.load_all()
        return sum(len(kernels) for kernels in self._kernels.values())


@lru_cache(maxsize=1024)  # back ends that take whole partitions register one function for all operators
def _keyword_names(function: KernelFunction) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
