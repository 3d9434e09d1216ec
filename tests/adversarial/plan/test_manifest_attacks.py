"""Whole plans with hostile manifests: every one is refused with an error of its own, and nothing of it has run.

The plans are real and small, and a changed manifest gets a right sha256 with the old blobs: only the rules of the
manifest can refuse it. What a change may leave valid is run too, and must give a result or an error of Dovetail.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import dovetail as dt
from dovetail.errors import DovetailError, PlanCorruptError, PlanError, PlanVersionError
from dovetail.plan import manifest
from dovetail.plan.manifest import Manifest
from dovetail.plan.verify import manifest_rules as verify
from tests.adversarial.plan.built_rules import BUILT_RULES
from tests.adversarial.plan.device_attacks import DEVICE_RULES
from tests.adversarial.plan.edits import Edit, both, put, value
from tests.adversarial.plan.engine_attacks import ENGINE_RULES
from tests.adversarial.plan.object_attacks import OBJECT_RULES
from tests.adversarial.plan.partition_rules import PARTITION_RULES
from tests.adversarial.plan.program_attacks import PROGRAM_RULES
from tests.support.attack_plans import IMPORTED, TARGETS, Json, Target, attack_device, target

FD_FOLDER = Path("/dev/fd")


@pytest.fixture(scope="module", autouse=True)
def _with_device() -> Iterator[None]:
    with attack_device():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: making one for each of the many cases takes longer than the cases."""
    return tmp_path_factory.mktemp("attacks")


def _count_open_files() -> int:
    return len(list(FD_FOLDER.iterdir())) if FD_FOLDER.is_dir() else 0


@dataclass(frozen=True)
class _Outcome:
    """What loading a file did."""

    engine: Any
    error: DovetailError | None
    created: int
    imported: list[str]


def _load(plan: Target, raw: bytes, path: Path, *, host_code: bool | None = None) -> _Outcome:
    path.write_bytes(raw)
    runtime, creators = plan.runtime(host_code=host_code)
    IMPORTED.clear()
    engine, error = None, None
    try:
        engine = runtime.load_engine(path)
    except DovetailError as raised:
        error = raised.with_traceback(None)  # its frames hold views of the map
        error.__cause__ = error.__context__ = None
    return _Outcome(engine, error, sum(len(c.phases) for c in creators), list(IMPORTED))


def _refused(plan: Target, raw: bytes, folder: Path, *, host_code: bool | None = None) -> DovetailError:
    """Check that a plan is refused and leaves nothing behind, and return the error."""
    modules, files = set(sys.modules), _count_open_files()
    outcome = _load(plan, raw, folder / "attack.plan", host_code=host_code)
    assert outcome.error is not None, "the plan was taken"
    assert outcome.created == 0, "a plugin was created"
    assert not outcome.imported, "code of the plan was imported"
    assert not {name for name in set(sys.modules) - modules if "carried" in name}
    assert _count_open_files() <= files
    return outcome.error


def _runs_or_fails(plan: Target, raw: bytes, folder: Path) -> None:
    """Check that a plan is refused, or runs to a result or an error of Dovetail, twice."""
    outcome = _load(plan, raw, folder / "attack.plan")
    if outcome.engine is None:
        return
    for _ in range(2):
        try:
            outcome.engine(*plan.arrays())
        except DovetailError:
            continue
    outcome.engine.close()


@pytest.mark.parametrize("name", TARGETS)
def test_the_plans_themselves_load_and_run(name: str, folder: Path) -> None:
    plan = target(name)
    for raw in (plan.raw, plan.changed(lambda manifest: None)):
        outcome = _load(plan, raw, folder / "whole.plan")
        assert outcome.error is None
        assert outcome.engine(*plan.arrays()) is not None
        outcome.engine.close()


# rules that types cannot say


@pytest.mark.parametrize(
    ("rule", "name", "edit"),
    [
        pytest.param(rule, name, edit, id=f"{rule}-{number}")
        for rule, cases in (
            *ENGINE_RULES.items(),
            *PROGRAM_RULES.items(),
            *DEVICE_RULES.items(),
            *OBJECT_RULES.items(),
            *PARTITION_RULES.items(),
            *BUILT_RULES.items(),
        )
        for number, (name, edit) in enumerate(cases)
    ],
)
def test_a_rule_that_does_not_hold_is_named(rule: str, name: str, edit: Edit, folder: Path) -> None:
    plan = target(name)
    error = _refused(plan, plan.changed(edit), folder)
    assert type(error) is PlanCorruptError
    assert rule in error.what
    assert len(str(error)) < 1000


SHARED: dict[str, tuple[str, Edit]] = {
    "a kernel over what is read later": ("chain", value(8, alias=7, offset=None)),
    "a partition over an input": (
        "whole",
        both(value(1, alias=0), put("outputs/0", lambda old: {**old, "alias": "x"})),
    ),
}


@pytest.mark.parametrize("case", SHARED)
def test_kernels_and_partitions_may_be_told_to_share_memory(case: str, folder: Path) -> None:
    name, edit = SHARED[case]
    _runs_or_fails(target(name), target(name).changed(edit), folder)


def _rules_in_source() -> set[str]:
    """What every rule says, from the calls that raise its error; of a text with parts filled in, the longest part."""
    positions = {"require": 2, "check_range": 3, "PlanCorruptError": 0}
    found = set()
    for path in Path(verify.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in positions:
                what = node.args[positions[node.func.id]]  # type: ignore[attr-defined]
                parts = [part.value for part in ast.walk(what) if isinstance(part, ast.Constant)]
                found |= {max(parts, key=len).strip()} if parts else set()
    return found


def test_every_rule_has_an_attack() -> None:
    attacked = {
        *ENGINE_RULES,
        *PROGRAM_RULES,
        *DEVICE_RULES,
        *OBJECT_RULES,
        *PARTITION_RULES,
        *BUILT_RULES,
        "a weight is stripped and cannot be given back",
    }
    missing = {rule for rule in _rules_in_source() if not any(rule in text or text in rule for text in attacked)}
    assert len(_rules_in_source()) > 100
    assert missing == set()


def test_a_stripped_weight_that_cannot_be_given_back(folder: Path) -> None:
    plan = target("chain")
    changed = json.loads(json.dumps(plan.manifest))
    changed["blobs"][plan.blobs[0].name].update(stripped=True, digest="")
    changed["refit"]["weights"].clear()
    error = _refused(plan, plan.packed(json.dumps(changed).encode(), []), folder)
    assert "a weight is stripped and cannot be given back" in error.what


def test_a_stripped_packed_weight_whose_sources_are_not_given_back(folder: Path) -> None:
    plan = target("built")
    for sources in ({"w": ""}, {}, {"w": "w"}):
        changed = json.loads(json.dumps(plan.manifest))
        changed["blobs"]["packed:w"].update(stripped=True, digest="")
        changed["blobs"]["w"].update(stripped=True, digest="")
        changed["packed"]["packed:w"]["sources"] = sources
        if sources == {"w": "w"}:
            del changed["refit"]["weights"]["w"]
        blobs = [blob for blob in plan.blobs if blob.name not in ("w", "packed:w")]
        error = _refused(plan, plan.packed(json.dumps(changed).encode(), blobs), folder)
        assert "a weight is stripped and cannot be given back" in error.what


# types, fields and versions


@dataclass(frozen=True)
class _Place:
    """One record in a manifest: where it is, and its class."""

    path: str
    record: type

    @property
    def id(self) -> str:
        return f"{self.record.__name__}:{self.path or 'manifest'}"


def _records(value: Any, kind: Any, path: str) -> Iterator[_Place]:
    """Every record under a value of a declared type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield _Place(path, kind)
        hints = typing.get_type_hints(kind)
        for name, inner in value.items():
            yield from _records(inner, hints[name], f"{path}/{name}".strip("/"))
    elif origin in (typing.Union, types.UnionType) and value is not None:
        yield from _records(value, arguments[0], path)
    elif origin is list:
        for index, inner in enumerate(value):
            yield from _records(inner, arguments[0], f"{path}/{index}")
    elif origin is dict:
        for key, inner in value.items():
            yield from _records(inner, arguments[1], f"{path}/{key}")


def _look(found: Any, path: str) -> Any:
    for part in path.split("/") if path else ():
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


@cache
def _places() -> list[tuple[Target, _Place]]:
    """One place for each class of record and each kind of value, step and blob, the first of all plans."""
    found: dict[tuple[type, Any], tuple[Target, _Place]] = {}
    for plan in map(target, TARGETS):
        for place in _records(plan.manifest, Manifest, ""):
            found.setdefault((place.record, _look(plan.manifest, place.path).get("kind")), (plan, place))
    return list(found.values())


def _fields() -> Iterator[tuple[Target, _Place, msgspec.structs.FieldInfo]]:
    for plan, place in _places():
        for field in msgspec.structs.fields(place.record):
            yield plan, place, field


def _at(place: _Place, edit: Edit) -> Edit:
    return lambda whole: edit(_look(whole, place.path))


def _wrong_values(kind: Any) -> list[Any]:
    """Values that a field of this type must not have."""
    members = set(typing.get_args(kind)) if typing.get_origin(kind) in (typing.Union, types.UnionType) else {kind}
    origins = {list if Ellipsis in typing.get_args(m) else typing.get_origin(m) or m for m in members}
    wrong: list[Any] = [] if type(None) in origins else [None]
    samples: list[tuple[Any, set[Any]]] = [
        ("text", {str}),
        (7, {int, float}),
        (1.5, {float}),
        (True, {bool}),
        ({"a": 1}, {dict}),
        ([1], {list}),
        ([[1]], {list}),
    ]
    for sample, good in samples:
        is_struct = isinstance(sample, dict) and any(
            isinstance(o, type) and issubclass(o, msgspec.Struct) for o in origins
        )
        if not good & origins or is_struct:
            wrong.append(sample)
    return wrong


def test_every_class_of_record_is_attacked() -> None:
    records = {name for name in manifest.__all__ if name.endswith("Record")}
    assert {place.record.__name__ for _, place in _places()} == {*records, "Manifest"}


def test_every_field_of_another_type_is_refused(folder: Path) -> None:
    count = 0
    for plan, place, field in _fields():
        kind = typing.get_type_hints(place.record)[field.name]
        for wrong in [] if kind is Any else _wrong_values(kind):
            raw = plan.changed(_at(place, lambda record, f=field.name, w=wrong: record.update({f: w})))  # type: ignore[misc]
            assert type(_refused(plan, raw, folder)) is PlanCorruptError, (place, field.name, wrong)
            count += 1
    assert count > 500


def test_every_required_field_is_required(folder: Path) -> None:
    for plan, place, field in _fields():
        raw = plan.changed(_at(place, lambda record, f=field.name: record.pop(f, None)))  # type: ignore[misc]
        if field.required:
            assert type(_refused(plan, raw, folder)) is PlanCorruptError, (place, field.name)
        else:
            _runs_or_fails(plan, raw, folder)


@pytest.mark.parametrize("name", TARGETS)
def test_unknown_fields_are_refused_at_every_level(name: str, folder: Path) -> None:
    plan = target(name)
    for place in _records(plan.manifest, Manifest, ""):
        for field in ("extra", "__class__"):
            raw = plan.changed(_at(place, lambda record, f=field: record.update({f: 1})))  # type: ignore[misc]
            error = _refused(plan, raw, folder)
            assert type(error) is PlanCorruptError
            assert "unknown field" in str(error)


@pytest.mark.parametrize(
    "version",
    [[1, 0], [1, 1], [3, 0], [2, 2], [2, 2**70], [2, -1], [-1, 0], [2**64, 0]],
    ids=lambda v: ".".join(map(str, v)),
)
def test_other_versions_are_another_error(version: list[int], folder: Path) -> None:
    plan = target("chain")
    error = _refused(plan, plan.changed(put("format_version", version)), folder)
    assert type(error) is PlanVersionError


def test_a_later_version_is_said_before_its_unknown_fields(folder: Path) -> None:
    plan = target("chain")
    raw = plan.changed(lambda m: m.update(format_version=[2, 5], novelty={"deep": []}))
    assert type(_refused(plan, raw, folder)) is PlanVersionError


def _instead(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda text: text.replace(old, new, 1)


SCALE, DIM = b'"scale": -1.0', b'"_d0"'
TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "null": lambda text: b"null",
    "a list": lambda text: b"[]",
    "an empty object": lambda text: b"{}",
    "not JSON": lambda text: b"{'name': 1}",
    "cut short": lambda text: text[:-1],
    "two objects": lambda text: text + text,
    "a number that JSON lacks": _instead(SCALE, b'"scale": NaN'),
    "infinity": _instead(SCALE, b'"scale": Infinity'),
    "a number out of range": _instead(SCALE, b'"scale": 1e999'),
    "five thousand digits": _instead(SCALE, b'"scale": ' + b"9" * 5000),
    "nested lists": _instead(DIM, b"[" * 10_000 + b"]" * 10_000),
    "nested expressions": _instead(DIM, b'["sum", 1, ' * 900 + b"1" + b"]" * 900),
    "nested bodies": _instead(b'"steps": [', b'"steps": [{"bodies": [' * 3000),
    "a lone surrogate": _instead(DIM, b'"\\ud800"'),
}
TWICE: dict[str, Callable[[bytes], bytes]] = {
    "in the manifest": _instead(b'"open": false', b'"open": true, "open": false'),
    "in a record": _instead(b'"kind": "input"', b'"kind": "input", "kind": "input"'),
    "in a table": _instead(b'"values": {"s": ', b'"values": {"s": [[1, 1], [1, 1], [1, 1]], "s": '),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_that_are_no_manifest(kind: str, folder: Path) -> None:
    plan = target("chain")
    whole = json.dumps(plan.manifest).encode()
    assert TEXTS[kind](whole) != whole
    assert type(_refused(plan, plan.packed(TEXTS[kind](whole)), folder)) is PlanCorruptError


@pytest.mark.parametrize("kind", TWICE)
def test_a_key_that_comes_twice(kind: str, folder: Path) -> None:
    plan = target("chain")
    whole = json.dumps(plan.manifest).encode()
    assert TWICE[kind](whole) != whole
    assert "a key twice in one object" in _refused(plan, plan.packed(TWICE[kind](whole)), folder).what


# what is right as a plan, and not here


def test_another_provider_is_a_device_mismatch(folder: Path) -> None:
    plan = target("chain")

    def edit(manifest: Json) -> None:
        manifest["devices"][0]["provider"] = "quantum"
        for step in manifest["programs"][0]["steps"]:
            step["provider"] = "quantum"

    error = _refused(plan, plan.changed(edit), folder)
    assert type(error) is dt.PlanDeviceMismatchError
    assert "quantum" in str(error)


@pytest.mark.parametrize(
    "edit",
    [
        put("programs/0/steps/7/op", "Nag"),
        put("programs/0/steps/7/op", "__class__"),
        put("programs/0/steps/7/domain", "com.example"),
        put("programs/0/steps/7/opset", 1),
        put("programs/0/steps/5/attributes/0/name", "axes"),
        put("programs/0/steps/5/attributes/0/name", "x"),
    ],
)
def test_kernels_that_nobody_has_are_refused_before_a_plugin_is_made(edit: Edit, folder: Path) -> None:
    plan = target("chain")
    assert type(_refused(plan, plan.changed(edit), folder)) is dt.ProviderError


@pytest.mark.parametrize("part", ["name", "version", "namespace"])
def test_a_creator_that_is_missing_is_missed_before_another_makes_a_plugin(part: str, folder: Path) -> None:
    plan = target("chain")
    error = _refused(plan, plan.changed(put(f"programs/0/steps/6/plugin/{part}", "Other")), folder)
    assert type(error) is dt.PluginError
    assert "no creator is registered" in str(error)


def test_a_plugin_that_fails_takes_those_before_it_along(folder: Path) -> None:
    plan = target("chain")
    raw = plan.changed(put("programs/0/steps/6/plugin/fields/0/name", "power"))
    path = folder / "failing.plan"
    path.write_bytes(raw)
    runtime, creators = plan.runtime()
    made: list[Any] = []
    for creator in creators:
        creator._make = lambda make=creator._make, **fields: made.append(make(**fields)) or made[-1]  # type: ignore[misc]
    with pytest.raises(dt.PluginError, match=r"create_plugin \(RUNTIME\) raised TypeError"):
        runtime.load_engine(path)
    assert [plugin.plugin_name for plugin in made] == ["TestInPlace", "TestPacked"]
    assert all(("destroy", None) in plugin.calls for plugin in made)


# memory that a plan asks for


def _huge(manifest: Json) -> None:
    """Make every size honest and enormous: 2^46 bytes that no machine has."""
    rows = 2**38
    manifest["profiles"][0]["shapes"]["x"] = [[1], [8], [rows]]
    program = manifest["programs"][0]
    program["values"][3] = {
        **program["values"][3],
        "kind": "planned",
        "dims": ["_d0"],
        "offset": 0,
        "size_bytes": rows * 4,
    }
    program["arena_bytes"] = rows * 4


def test_an_arena_that_no_machine_has_is_a_resource_error(folder: Path) -> None:
    plan = target("sizes")
    outcome = _load(plan, plan.changed(_huge), folder / "huge.plan")
    assert outcome.error is None  # it is a right plan, for a machine that does not exist
    with pytest.raises(dt.ResourceError, match="out of memory"):
        outcome.engine(*plan.arrays())


def test_an_output_that_no_machine_has_is_a_resource_error(folder: Path) -> None:
    plan = target("library")

    def edit(manifest: Json) -> None:
        for dims in (manifest["outputs"][0]["dims"], manifest["programs"][0]["values"][1]["dims"]):
            dims[:] = [2**36, 2**9]

    outcome = _load(plan, plan.changed(edit), folder / "huge.plan")
    with pytest.raises(dt.ResourceError):
        outcome.engine(*plan.arrays())


def test_a_stripped_weight_takes_no_memory_for_its_claim(folder: Path) -> None:
    plan = target("chain")
    name = plan.blobs[0].name

    def edit(manifest: Json) -> None:
        manifest["blobs"][name].update(stripped=True, digest="", shape=[1, 2**33, 1, 1])
        manifest["programs"][0]["values"][2]["dims"] = [1, 2**33, 1, 1]

    manifest = json.loads(json.dumps(plan.manifest))
    edit(manifest)
    outcome = _load(plan, plan.packed(json.dumps(manifest).encode(), []), folder / "stripped.plan")
    assert outcome.error is None
    with pytest.raises(dt.UsageError, match="refit"):
        outcome.engine(*plan.arrays())


# what shapes do to plans that are right


def test_contents_of_a_shape_input_outside_the_profile_are_an_input_error(folder: Path) -> None:
    plan = target("chain")

    def edit(manifest: Json) -> None:
        """Let a planned value follow the contents of the shape input, within the profile."""
        values = manifest["programs"][0]["values"]
        values[8].update(dims=["value_s_0", "value_s_1", 1, 1], size_bytes=768)

    outcome = _load(plan, plan.changed(edit), folder / "a.plan")
    assert outcome.error is None
    x, shape = plan.arrays()
    for contents in ((100, 100), (2**31, 2**31), (-1, 3), (2**62, 2**62)):
        shape[:] = contents
        with pytest.raises(DovetailError) as info:
            outcome.engine(x, shape)
        assert isinstance(info.value, dt.InputError | dt.ResourceError)


RANKS = [(), (5,), (0,), (2, 0), (1,) * 5, (2, 3), (9,)]


@pytest.mark.parametrize("index", [0, 7])
@pytest.mark.parametrize("name", ["open", "whole", "sizes", "device"])
def test_an_input_whose_rank_the_plan_does_not_tell_may_have_any(name: str, index: int, folder: Path) -> None:
    plan = target(name)
    unranked = both(put("inputs/0/dims", None), value(0, dims=None), put("programs/0/symbols/0/index", index))
    outcome = _load(plan, plan.changed(unranked), folder / "a.plan")
    if outcome.engine is None:
        assert type(outcome.error) is PlanCorruptError
        return
    with outcome.engine as engine:
        for shape in RANKS:
            with contextlib.suppress(DovetailError):
                engine(np.ones(shape, np.float32))
            with contextlib.suppress(DovetailError):
                context = engine.create_execution_context()
                context.set_input_shape("x", shape)
                context.infer_shapes()
        if index == 0:
            assert engine(*plan.arrays()) is not None


def test_an_element_of_an_input_that_has_too_few(folder: Path) -> None:
    plan = target("chain")
    unranked = both(put("inputs/1/dims", None), value(1, dims=None), put("programs/0/symbols/2/index", 900))
    outcome = _load(plan, plan.changed(unranked), folder / "a.plan")
    assert outcome.error is None
    with pytest.raises(dt.InputError, match="it has no element 900"):
        outcome.engine(*plan.arrays())


def test_engines_that_were_refused_leave_nothing_to_collect() -> None:
    def count_engines() -> int:
        gc.collect()
        return sum(type(item).__name__ == "Engine" for item in gc.get_objects())

    plan = target("chain")
    runtime, _ = plan.runtime()
    before = count_engines()  # errors that other tests keep may hold some
    for _ in range(50):
        with pytest.raises(PlanError):
            runtime.deserialize_cuda_engine(plan.changed(put("programs/0/arena_bytes", -1)))
    assert count_engines() <= before
