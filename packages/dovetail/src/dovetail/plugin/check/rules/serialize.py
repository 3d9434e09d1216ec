"""Rules about fields, and about what a loaded plan makes of them: R34 to R39."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from dovetail.plugin.check.cases.field_values import copy_fields, overwrite_fields
from dovetail.plugin.check.cases.telling_fields import find_cut_number, find_lost_zero
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import CallbackRaised, call
from dovetail.plugin.check.host.hostile import FILL_A, FILL_NAN
from dovetail.plugin.check.host.runs import Run, disagreement
from dovetail.plugin.check.plugin_object import Specimen
from dovetail.plugin.check.rules.catalogue import rule
from dovetail.plugin.check.stale_reads import find_stale_read, is_cpp, is_creation_argument
from dovetail.plugin.check.state import buffers_of
from dovetail.plugin.check.traits import Traits, first_difference, identity_of, parameters_of, show_fields, traits_of
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType, decode_fields
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__: list[str] = []

_COPY_FIX: Final = "copy the values, names and texts in createPlugin; keep no pointer into the collection or its fields"
_NAME_FIX: Final = "set plugin_name, plugin_version and plugin_namespace in __init__, whatever the phase"


@rule(
    "R34",
    "get_fields_to_serialize gives fields with unique names, data and a type that fits it",
    slug="fields-valid",
    why="A plan stores name, type and bytes of each field and gives them back to the creator.",
    fix="return PluginFieldCollection([PluginField(name, array, type), ...]) with arrays of the declared type",
)
def judge_fields(subject: CheckedPlugin) -> str:
    """Ask an object that was configured and given a tactic."""
    prepared = subject.life.prepare()
    returned = call(prepared.specimen.runtime, "get_fields_to_serialize")
    seen: set[str] = set()
    for index, item in enumerate(returned if isinstance(returned, list | tuple) else ()):
        _require_field(index, item, seen)
    return show_fields(subject.serialize(prepared.specimen)) or "no fields"


def _require_field(index: int, item: object, seen: set[str]) -> None:
    where = f"field {index} of get_fields_to_serialize"
    if not isinstance(item, PluginField):
        raise Broken(f"{where} is {item!r}, expected a PluginField")
    name: Any = item.name
    if not isinstance(name, str) or not name:
        raise Broken(f"{where} has the name {name!r}, expected a str that is not empty")
    if name in seen:
        raise Broken(f"{where} is named {name!r} like one before it")
    seen.add(name)
    if item.buffer is None:
        raise Broken(f"{where}, {item.name!r}, has no data")
    if item.type is PluginFieldType.DIMS:
        return
    dtype = PluginField("", np.empty(0, np.int8), item.type).data
    if dtype is not None and item.buffer.nbytes % dtype.dtype.itemsize:
        raise Broken(f"{where}, {item.name!r}, has {item.buffer.nbytes} bytes: no whole number of {item.type.name}")


@rule(
    "R35",
    "get_fields_to_serialize gives the same fields when asked again",
    slug="fields-stable",
    why="The builder asks twice: once for the size and once for the content.",
    fix="make the fields from the parameters alone",
)
def judge_stability(subject: CheckedPlugin) -> None:
    """Ask one object three times."""
    _ = subject.serialized
    specimen = subject.life.prepare().specimen
    answers = [subject.serialize(specimen) for _ in range(3)]
    for number, answer in enumerate(answers[1:], 2):
        if answer != answers[0]:
            raise Broken(f"call 1 gave {show_fields(answers[0])}, call {number} gave {show_fields(answer)}")


@rule(
    "R36",
    "create_plugin(RUNTIME) makes an object from the stored fields",
    slug="runtime-create",
    why="Otherwise the plan is built, saved, and cannot be loaded.",
    fix="read exactly the fields that get_fields_to_serialize writes, whatever the phase",
)
def judge_revival(subject: CheckedPlugin) -> None:
    """Create from the stored fields, as a loaded plan does."""
    subject.require_creator()
    stored = subject.serialized
    try:
        subject.revive()
    except CallbackRaised as raised:
        raise Broken(f"with the stored fields ({show_fields(stored) or 'none'}) {raised}") from None


@rule(
    "R37",
    "An object made from stored fields stores the same fields again",
    slug="round-trip-fields",
    why="A plan that is loaded and saved again would otherwise be another plan.",
    fix="keep every field in the object and write it back unchanged",
)
def judge_round_trip(subject: CheckedPlugin) -> None:
    """Create from the stored fields and ask for the fields."""
    _ = subject.has_working_revival
    revived = subject.revive()
    subject.life.tell(revived.runtime, "set_tactic", subject.life.tactic)
    named, original = identity_of(revived), identity_of(subject.make())
    if named != original:
        raise Broken(f"an object made from stored fields: {first_difference(named, original)}", fix=_NAME_FIX)
    again = subject.serialize(revived)
    if again != subject.serialized:
        raise Broken(f"stored {show_fields(subject.serialized) or 'nothing'}, then {show_fields(again) or 'nothing'}")
    lost = find_lost_zero(subject, lambda made: _revive_from(subject, made))
    if lost:
        raise Broken(f"with a field of 0: {lost}", fix="test for a field that is absent, not for one that is 0")
    cut = find_cut_number(subject, lambda made: _revive_from(subject, made))
    if cut:
        raise Broken(f"{cut}, after the fields were stored", fix="store the field in the type that it is declared with")


def _revive_from(subject: CheckedPlugin, specimen: Specimen) -> Specimen:
    return subject.create(TensorRTPhase.RUNTIME, decode_fields(subject.serialize(specimen)))


@rule(
    "R38",
    "An object made from stored fields computes the same, without being configured",
    slug="round-trip-results",
    why="A runtime-phase object never sees configure_plugin; what it needs must be in the fields.",
    fix="serialize every parameter that enqueue uses, and what configure_plugin worked out",
    compares=True,
)
def judge_results(subject: CheckedPlugin) -> str:
    """Run objects made from stored fields, with every tactic."""
    _ = subject.has_working_revival
    subject.require_repeatable()
    cells = [cell for cell in subject.matrix if cell.formats == subject.life.formats]
    num_runs = 1 if subject.depends_on_garbage else 2
    for cell in cells:
        prepared = subject.deploy(subject.revive(), cell.formats, cell.tactic)
        prepared.reshape(cell.case)
        bench = prepared.bench(cell.case)
        for number in range(num_runs):
            run = prepared.run_again(bench, cell.case, fill=FILL_NAN if number else FILL_A)
            found = disagreement(run, cell.first)
            if found and not (number and subject.depends_on_earlier_runs):
                raise Broken(f"{cell.describe()}: {found} before serialization")
    return f"{len(cells)} runs compared"


@rule(
    "R39",
    "create_plugin keeps nothing of the memory of the fields",
    slug="kept-pointers",
    why="That memory is freed or reused as soon as create_plugin returns.",
    fix="keep what field.data returns, which is a copy, or a number of it; never field.buffer or an address",
)
def judge_kept_pointers(subject: CheckedPlugin) -> str:
    """Overwrite the memory right after creation, in both phases, and compare with objects whose memory stayed."""
    subject.require_creator()
    _ = subject.make()
    if is_cpp(subject):
        return _judge_kept_addresses(subject)
    names = []
    if subject.fields:
        fields = copy_fields(subject.fields)
        specimen = subject.create(TensorRTPhase.BUILD, fields)
        _require_own_memory(specimen, fields, "BUILD")
        expected = traits_of(subject, subject.make())
        overwrite_fields(fields)
        _require_same(lambda: traits_of(subject, specimen), expected, "BUILD")
        names.append("BUILD")
    if subject.serialized:
        _ = subject.has_working_revival
        fields = decode_fields(subject.serialized)
        specimen = subject.revive(fields)
        _require_own_memory(specimen, fields, "RUNTIME")
        try:
            expected = _revived_traits(subject, subject.revive())
        except CallbackRaised as raised:
            raise Blocked(f"a runtime-phase object cannot run: {raised.method} raised, see R38") from None
        overwrite_fields(fields)
        _require_same(lambda: _revived_traits(subject, specimen), expected, "RUNTIME")
        names.append("RUNTIME")
    if not names:
        raise NotApplicable("there are no fields; give some with --fields name=value")
    return f"in phase {' and '.join(names)}"


def _judge_kept_addresses(subject: CheckedPlugin) -> str:
    """Withdraw access to the memory right after creation, in both phases."""
    found = find_stale_read(subject, is_creation_argument)
    if found:
        raise Broken(found, fix=_COPY_FIX)
    return "no access after createPlugin"


def _require_own_memory(specimen: Specimen, fields: PluginFieldCollection, phase: str) -> None:
    for path, array in buffers_of(specimen):
        for field in fields:
            if field.buffer is not None and np.may_share_memory(array, field.buffer):
                raise Broken(f"phase {phase}: {path} is a view of the memory of field '{field.name}'")


def _require_same(find: Callable[[], Traits], expected: Traits, phase: str) -> None:
    try:
        found = first_difference(find(), expected)
    except CallbackRaised as raised:
        raise Broken(f"phase {phase}: with the field memory overwritten {raised}") from None
    if found:
        raise Broken(f"phase {phase}: with the field memory overwritten {found}")


def _revived_traits(subject: CheckedPlugin, specimen: Specimen) -> Traits:
    traits = parameters_of(subject, specimen)
    try:
        subject.require_repeatable()
    except Blocked:
        return traits
    life = subject.life
    prepared = subject.deploy(specimen, life.formats, life.tactic)
    prepared.reshape(life.problem.main)
    run: Run = prepared.run(life.problem.main)
    return traits | {"enqueue": run}
