"""Rules about what a provider says it takes: P10 to P15."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dovetail.provider.interfaces import Claim, StepKind
from dovetail.rules import Broken, NotJudged, NotOffered
from dovetail.testing.provider_kit.models import MODELS, TYPES, Case, typed_case
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []

_STRANGE = Case(
    name="unknown operator",
    text="strange (float[N] x) => (float[N] y) { y = Relu(x) }",
    shapes=[],
)


def _views(subject: CheckedProvider, case: Case) -> list[Any]:
    """The nodes of a model as providers see them, with types."""
    import onnx
    import onnx_ir as ir

    from dovetail.build.assign.layers import NodeLayer

    model = ir.from_proto(onnx.shape_inference.infer_shapes(case.make_model()))
    return [NodeLayer(node, subject.name, model.opset_imports) for node in model.graph]


def _ask(subject: CheckedProvider, case: Case) -> list[Any]:
    return list(subject.provider.get_capability(_views(subject, case)))


def _cases() -> list[Case]:
    return [*MODELS, *(typed_case(name) for name in TYPES)]


def _claims(subject: CheckedProvider) -> list[tuple[Any, Claim]]:
    """Every node of every model, with its claim; blocked where P10 fails."""
    rows: list[tuple[Any, Claim]] = []
    for case in _cases():
        views = _views(subject, case)
        try:
            claims = list(subject.provider.get_capability(views))
        except Exception as error:
            raise NotJudged("get_capability raised, see P10") from error
        if len(claims) != len(views) or any(not isinstance(claim, Claim) for claim in claims):
            raise NotJudged("get_capability gave no list of claims, see P10")
        rows += zip(views, claims, strict=True)
    return rows


@rule(
    "P10",
    "get_capability gives one Claim a node, in order",
    why="Claims are matched with nodes by their places; one too few and nothing is known.",
    fix="return a list with a Claim for every node it was given, in the same order",
)
def judge_count(subject: CheckedProvider) -> str:
    """Ask for all nodes of all models."""
    total = taken = 0
    for case in _cases():
        views = _views(subject, case)
        claims = list(subject.provider.get_capability(views))
        if len(claims) != len(views):
            raise Broken(f"'{case.name}' has {len(views)} nodes, and there are {len(claims)} claims")
        if any(not isinstance(claim, Claim) for claim in claims):
            raise Broken(f"'{case.name}': something in the list is no Claim")
        total, taken = total + len(claims), taken + sum(claim.taken for claim in claims)
    if subject.provider.get_capability([]):
        raise Broken("there are claims for no nodes")
    return f"it takes {taken} of the kit's {total} nodes"


@rule(
    "P11",
    "Every refusal has a reason",
    why="People ask why a node runs somewhere else; 'no' is no answer.",
    fix="set Claim.reason to a short text wherever taken is False",
)
def judge_reasons(subject: CheckedProvider) -> None:
    """Look at the refusals."""
    refused = [(view, claim) for view, claim in _claims(subject) if not claim.taken]
    for view, claim in refused:
        if not isinstance(claim.reason, str) or not claim.reason.strip():
            raise Broken(f"{view.op} over {', '.join(map(str, view.input_types))} is refused without a reason")
    if not refused:
        raise NotOffered("it refuses none of the kit's nodes")


@rule(
    "P12",
    "The same nodes get the same claims",
    why="A provider is asked in several rounds; one that changes its mind makes other plans each time.",
    fix="let claims depend on the nodes and on nothing that changes",
)
def judge_stability(subject: CheckedProvider) -> None:
    """Ask twice."""
    first, second = ([claim for _, claim in _claims(subject)] for _ in range(2))
    if first != second:
        raise Broken("get_capability answers otherwise the second time")


@rule(
    "P13",
    "Groups and step kinds are in order",
    why="Nodes of one group become one step, which is of one kind.",
    fix="give nodes of one group the same step_kind, and use StepKind.NODE, StepKind.PARTITION or None",
)
def judge_groups(subject: CheckedProvider) -> str:
    """Look at every claim."""
    kinds: defaultdict[str, set[str | None]] = defaultdict(set)
    for view, claim in _claims(subject):
        if claim.step_kind not in (None, StepKind.NODE, StepKind.PARTITION):
            raise Broken(f"{view.op}: step_kind is {claim.step_kind!r}")
        if claim.group is not None and claim.taken:
            kinds[claim.group].add(claim.step_kind)
    mixed = [group for group, found in kinds.items() if len(found) > 1]
    if mixed:
        raise Broken(f"group '{mixed[0]}' has nodes of several step kinds")
    return f"{len(kinds)} group(s)" if kinds else ""


@rule(
    "P14",
    "A node that nobody knows is refused",
    why="Models have operators of other domains; taking one blindly ends the build.",
    fix="refuse every node whose domain and operator you have no code for",
)
def judge_strange(subject: CheckedProvider) -> None:
    """Ask for an operator of a domain that does not exist."""
    import onnx_ir as ir

    from dovetail.build.assign.layers import NodeLayer

    model = ir.from_proto(_STRANGE.make_model())
    node = model.graph[0]
    node.domain, node.op_type = "kit.unknown", "Nothing"
    model.opset_imports["kit.unknown"] = 1
    claims: Sequence[Claim] = subject.provider.get_capability([NodeLayer(node, subject.name, model.opset_imports)])
    if len(claims) == 1 and claims[0].taken:
        raise Broken("it takes kit.unknown::Nothing")
    positions = subject.provider.host_inputs("Nothing", "kit.unknown", 1)
    if not isinstance(positions, frozenset):
        raise Broken(f"host_inputs gave {positions!r}, expected a frozenset")


@rule(
    "P15",
    "With a memory budget, claims say what they cost",
    why="A budget counts against costs; nodes that cost nothing are never too many.",
    fix="set Claim.cost_bytes, weights included, or leave budget_bytes at None",
)
def judge_costs(subject: CheckedProvider) -> str:
    """Look at the costs of what is taken."""
    rows = _claims(subject)
    for view, claim in rows:
        cost: Any = claim.cost_bytes
        if not isinstance(cost, int) or cost < 0:
            raise Broken(f"{view.op}: cost_bytes is {cost!r}, expected a number that is not negative")
    if subject.provider.budget_bytes is None:
        raise NotOffered("it has no budget")
    if not any(claim.cost_bytes for _, claim in rows if claim.taken):
        raise Broken(f"budget_bytes is {subject.provider.budget_bytes}, and every claim costs nothing")
    return f"{subject.provider.budget_bytes} bytes"
