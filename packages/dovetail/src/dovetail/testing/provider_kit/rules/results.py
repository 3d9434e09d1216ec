"""Rules about results, against those of ``cpu``: P30 to P39."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dovetail.provider.calls import first_line
from dovetail.rules import Broken, NotJudged, NotOffered
from dovetail.testing.provider_kit.models import TYPES, Case, find_case, product_case, typed_case
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider

__all__: list[str] = []

_FIX: Final = "compare with the cpu kernel of the operator, for this shape and type"
_UNARY: Final = frozenset(
    [
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Celu",
        "Cos",
        "Cosh",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "Mish",
        "Neg",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Transpose",
    ]
)
_BINARY: Final = frozenset(
    [
        "Add",
        "Div",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "MatMul",
        "Max",
        "Min",
        "Mul",
        "PRelu",
        "Pow",
        "Sub",
        "Sum",
    ]
)


_MATRIX_TYPES: Final = ("float16", "float32", "float64")


def _judge(subject: CheckedProvider, case: Case) -> str:
    engine = subject.build(case)
    model = case.make_model()
    for feed in case.make_feeds():
        shapes = ", ".join(str(array.shape) for array in feed.values())
        subject.compare(f"'{case.name}' over {shapes}", subject.run(engine, feed), subject.expect(model, feed))
    return f"{len(subject.own_steps(engine))} step(s)"


@rule("P30", "Results are right", why="Everything else is worth nothing otherwise.", fix=_FIX)
def judge_chain(subject: CheckedProvider) -> str:
    """A small network."""
    return _judge(subject, find_case("chain"))


@rule(
    "P31",
    "Results are right for every type that it takes",
    why="Types are claimed one by one and are easily mixed up.",
    fix="limit the types of the kernel, or refuse the node in get_capability",
)
def judge_types(subject: CheckedProvider) -> str:
    """Sums and products of each type, and products of matrices."""
    cases = [(name, typed_case(name)) for name in TYPES]
    cases += [(f"matrices of {name}", product_case(name)) for name in _MATRIX_TYPES]
    taken = []
    for name, case in cases:
        try:
            _judge(subject, case)
        except (NotOffered, NotJudged):
            continue
        taken.append(name)
    if not taken:
        raise NotOffered("it takes none of the kit's sums and products")
    return ", ".join(taken)


@rule(
    "P32",
    "Results are right when shapes change from run to run",
    why="An engine without a profile takes any shape at any time.",
    fix="bind what depends on shapes in bind(), or compute it in every run",
)
def judge_dynamic(subject: CheckedProvider) -> str:
    """Larger, smaller, much larger, and back."""
    return _judge(subject, find_case("dynamic shapes"))


@rule(
    "P33",
    "Tensors without elements work",
    why="A batch of nothing is what filters give.",
    fix="give results of the right shape without launching anything",
)
def judge_empty(subject: CheckedProvider) -> str:
    """A dimension of 0, between others."""
    return _judge(subject, find_case("empty tensors"))


@rule("P34", "Scalars work", why="A tensor of no dimensions has one element.", fix="give scalars the shape ()")
def judge_scalars(subject: CheckedProvider) -> str:
    """Scalars in and out."""
    return _judge(subject, find_case("scalars"))


@rule(
    "P35",
    "Several outputs come in order",
    why="Outputs are matched by their places.",
    fix="write the outputs in the order of stored.outputs",
)
def judge_several(subject: CheckedProvider) -> str:
    """Four outputs, one of which is the input."""
    return _judge(subject, find_case("several outputs"))


@rule(
    "P36",
    "Outputs that nobody reads do no harm",
    why="Operators have outputs that a model leaves out.",
    fix="leave out what has no name, and keep the places of the others",
)
def judge_unread(subject: CheckedProvider) -> str:
    """Half of a Split."""
    return _judge(subject, find_case("outputs nobody reads"))


@rule(
    "P37",
    "Weights can be outputs",
    why="Models give their weights out, and a partition then has an output that it does not compute.",
    fix="copy the weight to the output in every run",
)
def judge_constants(subject: CheckedProvider) -> str:
    """A weight as it is, and through Identity."""
    return _judge(subject, find_case("initializers as outputs"))


@rule(
    "P38",
    "Every plain operator that it has gives what cpu gives",
    why="A claim counts for each operator.",
    fix=_FIX,
)
def judge_operators(subject: CheckedProvider) -> str:
    """Operators that need no attributes, each over float32 and int64."""
    judged: set[str] = set()
    for case in _operator_cases(subject):
        try:
            expected = [subject.expect(case.make_model(), feed) for feed in case.make_feeds()]
        except Exception:  # noqa: BLE001, S112 - an operator that needs other inputs than the kit has
            continue
        try:
            engine = subject.compile(case.make_model())
            if not subject.own_steps(engine):
                continue
            for feed, right in zip(case.make_feeds(), expected, strict=True):
                subject.compare(case.name, subject.run(engine, feed), right)
            engine.close()
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"{case.name}: {type(error).__name__}: {first_line(error)}") from error
        judged.add(case.name.split()[0])
    if not judged:
        raise NotOffered("it has no such operator")
    return f"{len(judged)} operators"


def _operator_cases(subject: CheckedProvider) -> Iterable[Case]:
    has = {kernel.op for kernel in subject.provider.kernels if not kernel.domain}
    for count, ops in ((1, _UNARY), (2, _BINARY)):
        for op in sorted(has & ops):
            for dtype, name in (("float32", "float"), ("int64", "int64")):
                yield _operator_case(op, count, dtype, name)


def _operator_case(op: str, count: int, dtype: str, name: str) -> Case:
    names = ["x", "z"][:count]
    inputs = ", ".join(f"{name}[N, 8] {each}" for each in names)
    output = "bool" if op in _BOOLEAN else name
    text = f"one ({inputs}) => ({output}[A, B] y) {{ y = {op}({', '.join(names)}) }}"
    shapes = [dict.fromkeys(names, (8, 8))]
    return Case(
        name=f"{op} over {dtype}",
        text=text,
        shapes=shapes,
        types=dict.fromkeys(names, dtype),
        positive=frozenset({"z"}),
    )


_BOOLEAN: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual"})


@rule(
    "P39",
    "Results of the author's own model are right",
    why="The kit's models are small.",
    fix=_FIX,
)
def judge_own(subject: CheckedProvider) -> str:
    """The model that came with the call."""
    if subject.model is None:
        raise NotOffered("no model was given")
    _judge(subject, subject.model)
    engine = subject.build(subject.model)
    return f"{len(subject.own_steps(engine))} step(s)"
