"""Rules about what a plugin declares of its outputs: R06 to R10."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, call
from dovetail.plugin.check.host.hostile import HostExprBuilder
from dovetail.plugin.check.layer import (
    DeclaredLayer,
    find_size_tensor_fault,
    read_num_outputs,
    read_output_shapes,
    read_output_types,
)
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.rules import Blocked, Broken, NotApplicable

__all__: list[str] = []

_DYNAMIC_FIX: Final = (
    "build sizes with exprBuilder.operation; ask is_constant() before get_constant_value(), and raise if it must be one"
)


@rule(
    "R06",
    "num_outputs is positive and never changes",
    slug="num-outputs",
    why="The network makes its tensors once; the builder and the runtime ask again and rely on the same number.",
    fix="set num_outputs in __init__ to a positive int and leave it",
)
def judge_num_outputs(subject: CheckedPlugin) -> None:
    """Read it on a new object, then again along the life of an attached one."""
    count = read_num_outputs(subject.make().build)
    # What raises along the way is judged by R18 and R40.
    with suppress(Blocked, CallbackRaised):
        prepared = subject.life.prepare()
        _require_count(prepared.specimen.build, count, "configure_plugin and set_tactic")
        prepared.reshape(subject.life.problem.main)
        prepared.run(subject.life.problem.main)
        _require_count(prepared.specimen.build, count, "enqueue")


def _require_count(build: object, expected: int, after: str) -> None:
    got = read_num_outputs(build)
    if got != expected:
        raise Broken(f"num_outputs is {got} after {after}, it was {expected} on a new object")


@rule(
    "R07",
    "get_output_data_types gives one DataType for each output, always the same",
    slug="output-types",
    why="The network is typed by what this returns; a missing or changing type gives the next layer a wrong tensor.",
    fix="return a list of num_outputs DataType members that depends on input_types alone",
)
def judge_output_types(subject: CheckedPlugin) -> str:
    """Ask one object three times."""
    problem, build = subject.life.problem, subject.make().build
    count = subject.life.num_outputs
    answers = [read_output_types(_ask_types(subject, build), count) for _ in range(3)]
    if len(set(answers)) > 1:
        raise Broken(f"get_output_data_types gave {_names(answers[0])} first and {_names(answers[-1])} later")
    return f"{_names(problem.types)} -> {_names(answers[0])}"


def _ask_types(subject: CheckedPlugin, build: object) -> object:
    try:
        return subject.life.ask_types(build)
    except CallbackRaised as raised:
        raise Blocked(f"{raised.method} raised, see R18") from None


def _names(types: tuple[object, ...]) -> str:
    return ", ".join(getattr(dtype, "name", str(dtype)) for dtype in types) or "no inputs"


@rule(
    "R08",
    "get_output_shapes gives expressions for each output, with sizes of at least 0",
    slug="output-shapes",
    why="Memory is sized and the next layers are checked with these expressions.",
    fix="return num_outputs DimsExprs made of inputs[i][j], shape_inputs[i][j] and exprBuilder results",
)
def judge_output_shapes(subject: CheckedPlugin) -> str:
    """Ask once and compute the shapes for every case."""
    life = subject.life
    returned = _ask_shapes(subject, HostExprBuilder())
    shapes = [
        read_output_shapes(returned, life.num_outputs, life.problem.symbol_values(case)) for case in life.problem.cases
    ]
    _require_same_as_symbols(subject)
    return "; ".join(str(list(shape)) for shape in shapes[0])


def _require_same_as_symbols(subject: CheckedPlugin) -> None:
    """With every dimension dynamic the plugin may refuse, but what it declares must give the same sizes."""
    life = subject.life
    problem = replace(life.problem, all_symbolic=True)
    if not life.problem.symbolic or not life.problem.main:
        return
    try:
        builder = HostExprBuilder()
        returned = life.with_problem(problem).ask_shapes(life.make_typed().build, builder)
    except CallbackRaised:
        return
    for case in life.problem.full_cases:
        values = problem.symbol_values(case)
        try:
            shapes = read_output_shapes(returned, life.num_outputs, values)
        except Broken as broken:
            raise Broken(f"with every dimension dynamic: {broken}", fix=_DYNAMIC_FIX) from None
        got = DeclaredLayer(life.types, shapes).largest_shapes(values)
        expected = life.layer.largest_shapes(values)
        if got != expected:
            raise Broken(
                f"inputs {', '.join(map(str, case))}: with every dimension dynamic the outputs are {got}, "
                f"with some of them constant {expected}",
                fix=_DYNAMIC_FIX,
            )


@rule(
    "R09",
    "get_output_shapes gives the same expressions each time and leaves its arguments alone",
    slug="shapes-pure",
    why="The builder asks at least three times and keeps what it got in different places.",
    fix="compute the expressions from the arguments alone and put them into new DimsExprs",
)
def judge_shape_purity(subject: CheckedPlugin) -> None:
    """Ask one object three times and look at the arguments afterwards."""
    _ask_shapes(subject, HostExprBuilder())
    build, problem = subject.life.make_typed().build, subject.life.problem
    answers = []
    for _ in range(3):
        arguments = (problem.input_exprs(), problem.shape_input_exprs())
        before = repr(arguments)
        returned = call(build, "get_output_shapes", *arguments, HostExprBuilder())
        answers.append(repr(returned))
        if repr(arguments) != before:
            raise Broken(f"get_output_shapes changed its arguments: {before} -> {arguments!r}")
    for number, answer in enumerate(answers[1:], 2):
        if answer != answers[0]:
            raise Broken(f"get_output_shapes gave {answers[0]} at call 1 and {answer} at call {number}")


@rule(
    "R10",
    "Size tensors are 0-D INT32 or INT64 outputs and take part in no arithmetic",
    slug="size-tensors",
    why="Their value is known only after the run, so nothing can be computed from them while the plan is made.",
    fix="declare the size tensor with the final value, use it as a dimension alone, and give its output no dimensions",
)
def judge_size_tensors(subject: CheckedPlugin) -> str:
    """Watch the expression builder and look at the declared outputs."""
    life, builder = subject.life, HostExprBuilder()
    types = life.types
    returned = _ask_shapes(subject, builder)
    if builder.misuse:
        raise Broken(f"get_output_shapes calls {builder.misuse[0]}")
    try:
        shapes = read_output_shapes(returned, len(types), life.problem.symbol_values(life.problem.main))
    except Broken:
        raise Blocked("the output shapes are malformed, see R08") from None
    layer = DeclaredLayer(types, shapes)
    if not layer.size_tensors:
        raise NotApplicable("no output depends on the data")
    fault = find_size_tensor_fault(layer)
    if fault:
        raise Broken(fault)
    return ", ".join(f"output {index}" for index in layer.size_tensors)


def _ask_shapes(subject: CheckedPlugin, builder: HostExprBuilder) -> object:
    try:
        return subject.life.ask_shapes(subject.life.make_typed().build, builder)
    except CallbackRaised as raised:
        raise Blocked(f"{raised.method} raised, see R18") from None
