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
from typing import Any, TypeVar

from dovetail.errors import ProviderError

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

    def covers(self, opset: int) -> bool:
        """Whether a node of this opset version is served."""
        return self.since <= opset and (self.until is None or opset <= self.until)

    def bind(
        self, attributes: Mapping[str, Any], num_outputs: int, *, function: KernelFunction | None = None
    ) -> KernelFunction:
        """Fix the attributes once, so that a run passes only arrays; ``function`` replaces the registered one."""
        unknown = attributes.keys() - self.attributes
        if unknown:
            raise ProviderError(
                f"kernel {self.op} does not take attribute(s) {', '.join(sorted(unknown))}",
                expected=", ".join(sorted(self.attributes)) or "no attributes",
                fix="remove them from the node, or register a kernel that takes them",
            )
        bound = dict(attributes)
        if "num_outputs" in self.attributes:
            bound["num_outputs"] = num_outputs
        return _bind_keywords(function or self.function, bound)


def _bind_keywords(function: KernelFunction, keywords: dict[str, Any]) -> KernelFunction:
    if not keywords:
        return function

    def bound(*arrays: Any) -> Any:
        return function(*arrays, **keywords)

    return bound


class KernelRegistry:
    """All kernels of one provider.

    >>> registry = KernelRegistry("demo")
    >>> @registry.register("Neg", since=6, types={"T": ("float32",)})
    ... def neg(x): return -x
    >>> registry.find("Neg", "", 13).function(2.0)
    -2.0
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self._kernels: dict[tuple[str, str], list[Kernel]] = {}

    def register(
        self,
        op: str,
        *,
        since: int,
        until: int | None = None,
        domain: str = "",
        types: Mapping[str, Sequence[str]] | None = None,
    ) -> Callable[[F], F]:
        """Collect a kernel; decorators stack, so one function may serve several ops."""

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
        for kernel in self._kernels.get((domain, op), ()):
            if kernel.covers(opset):
                return kernel
        return None

    def __iter__(self) -> Iterator[Kernel]:
        for kernels in self._kernels.values():
            yield from kernels

    def __len__(self) -> int:
        return sum(len(kernels) for kernels in self._kernels.values())


def _keyword_names(function: KernelFunction) -> frozenset[str]:
    parameters = inspect.signature(function).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
