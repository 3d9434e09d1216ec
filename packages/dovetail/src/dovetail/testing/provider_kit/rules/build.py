"""Rules about building: P20 to P23."""

from __future__ import annotations

from typing import Any

from dovetail.errors import DovetailError
from dovetail.provider.calls import first_line
from dovetail.provider.interfaces import BuiltKernel, BuiltPartition, PackedWeight, StoredKernel
from dovetail.rules import Broken, NotOffered
from dovetail.testing.provider_kit.models import MODELS, TYPES, typed_case
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []


@rule(
    "P20",
    "What it takes it builds and loads",
    why="A claim is a promise; a build that fails because of it fails for the user.",
    fix="refuse in get_capability what build_* or load_* cannot do",
)
def judge_builds(subject: CheckedProvider) -> str:
    """Build every model of the kit."""
    _ = subject.provider
    cases = [*MODELS, *(typed_case(name) for name in TYPES), *([subject.model] if subject.model else [])]
    used = 0
    for case in cases:
        failure = subject.build_failure(case)
        if failure is not None:
            raise Broken(f"'{case.name}': {type(failure).__name__}: {first_line(failure)}")
        for name, error in subject.recording.failures:
            raise Broken(f"'{case.name}': {name} raised {type(error).__name__}: {first_line(error)}")
        try:
            subject.build(case)
        except NotOffered:
            continue
        used += 1
    if not used:
        raise NotOffered("it takes nothing of any of the kit's models")
    return f"{used} of {len(cases)} models"


def _built(subject: CheckedProvider) -> list[tuple[str, Any]]:
    for case in MODELS:
        subject.build_failure(case)
    _ = subject.provider
    return subject.recording.built


@rule(
    "P21",
    "build_kernel and build_partition give what plans can store",
    why="The plan stores bytes, arrays and texts; nothing else comes back.",
    fix="return a BuiltKernel or BuiltPartition: bytes as payload and code, arrays as weights, sizes from 0 on",
)
def judge_built(subject: CheckedProvider) -> str:
    """Look at everything that was built."""
    built = _built(subject)
    for name, given in built:
        expected = BuiltKernel if name == "build_kernel" else BuiltPartition
        if not isinstance(given, expected):
            raise Broken(f"{name} gave {type(given).__name__}, expected {expected.__name__}")
        if not isinstance(given.payload, bytes):
            raise Broken(f"{name}: the payload is {type(given.payload).__name__}, expected bytes")
        _require_size(name, given.workspace_bytes)
        if any(not isinstance(code, bytes) for code in given.code.values()):
            raise Broken(f"{name}: code is not bytes")
        for weight in given.weights.values():
            _require_array(name, weight)
    if not any(given.payload for _, given in built):
        raise NotOffered("it stores nothing but the nodes themselves")
    return f"{len(built)} built"


def _require_size(name: str, size: Any) -> None:
    if not isinstance(size, int) or size < 0:
        raise Broken(f"{name}: workspace_bytes is {size!r}, expected a number that is not negative")


def _require_array(name: str, weight: Any) -> None:
    array = weight.array if isinstance(weight, PackedWeight) else weight
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise Broken(f"{name}: a weight is {type(array).__name__}, expected an array")


@rule(
    "P22",
    "A report of a partition is about its layers",
    why="People read it to see what became of their network.",
    fix="name layers as the nodes of the model are named, and give reasons with refusals",
)
def judge_reports(subject: CheckedProvider) -> str:
    """Look at the reports of what was built."""
    reports = [given.report for name, given in _built(subject) if name == "build_partition"]
    nodes = [node for report in reports for node in report.nodes]
    for node in nodes:
        if not node.name or not node.op or any(not isinstance(layer, str) for layer in node.layers):
            raise Broken(f"a node of the report has name {node.name!r}, op {node.op!r} and layers {node.layers!r}")
        for what in ("flops", "bytes", "time_us"):
            number = getattr(node, what)
            if number is not None and not number >= 0:
                raise Broken(f"node '{node.name}': {what} is {number!r}")
    for report in reports:
        for layer, reason in report.refusals.items():
            if not reason:
                raise Broken(f"layer '{layer}' is refused without a reason")
    if not nodes:
        raise NotOffered("it reports no nodes")
    return f"{len(nodes)} nodes"


@rule(
    "P23",
    "A kernel that it does not have is refused when it is loaded",
    why="Plans come from other versions and from strangers.",
    fix="raise ProviderError in load_kernel for an operator without a kernel",
)
def judge_unknown_kernel(subject: CheckedProvider) -> None:
    """Load an operator that does not exist."""
    provider = subject.provider
    stored = StoredKernel(op="Nothing", domain="kit.unknown", opset=1)
    try:
        provider.load_kernel(stored)
    except DovetailError:
        return
    except Exception as error:
        raise Broken(
            f"load_kernel raised {type(error).__name__}: {first_line(error)}, expected ProviderError"
        ) from error
    raise Broken("load_kernel took kit.unknown::Nothing")
