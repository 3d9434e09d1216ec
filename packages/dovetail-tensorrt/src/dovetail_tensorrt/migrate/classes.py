"""A V2 class made a V3 class: its bases, and each method in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import libcst as cst
import libcst.matchers as m

from dovetail_tensorrt.migrate.dynamic import make_missing_methods, migrate_dynamic_method
from dovetail_tensorrt.migrate.edits import (
    add_before,
    find_super_calls,
    make_statements,
    parameter_names,
    rename_method,
    with_block,
)
from dovetail_tensorrt.migrate.hooks import rename_hooks
from dovetail_tensorrt.migrate.implicit import make_implicit_methods, migrate_implicit_method
from dovetail_tensorrt.migrate.names import CREATOR, INTERFACES, PLUGIN_BASES, ApiNames, code_of
from dovetail_tensorrt.migrate.notes import Notebook
from dovetail_tensorrt.migrate.shared import FIELD, make_phase_methods, migrate_init, migrate_life_method
from dovetail_tensorrt.migrate.v2_class import V2Class

__all__ = ["migrate_creator", "migrate_derived", "migrate_plugin"]

_CALLED_BY_INDEX: Final = (
    "get_output_datatype",
    "get_output_data_type",
    "get_output_dimensions",
    "supports_format_combination",
    "get_workspace_size",
)

_V3_ONLY: Final = frozenset(
    (
        "get_capability_interface",
        "get_output_data_types",
        "get_output_shapes",
        "get_fields_to_serialize",
        "on_shape_change",
        "set_tactic",
    )
)
_HOOKS: Final = frozenset(("initialize", "terminate", "detach_from_context", "serialize", "execute_async", "clone"))
_NUM_PARAMETERS: Final = {
    ("get_output_datatype", True): 3,
    ("get_output_data_type", False): 3,
    ("get_output_dimensions", True): 4,
    ("supports_format_combination", True): 4,
    ("supports_format_combination", False): 4,
    ("configure_plugin", True): 3,
    ("get_workspace_size", True): 3,
    ("attach_to_context", True): 4,
    ("attach_to_context", False): 4,
}
"""How many parameters a method has, by its name and whether its interface sees whole shapes."""


def migrate_plugin(
    node: cst.ClassDef, interface: str, family: Sequence[cst.ClassDef], names: ApiNames, notes: Notebook
) -> cst.ClassDef:
    """A V2 plugin class as a V3 one."""
    node = with_block(node)
    v2 = V2Class(node, interface, (node, *family[1:]))
    first, rest = _split_body(node)
    for part in first:
        _note_assigned(part, notes)
    body: list[cst.BaseStatement] = [*first]
    if "__init__" not in v2.methods:
        body += migrate_init(v2, names)
    for part in rest:
        body += _migrate_part(part, v2, names, notes)
    body += make_missing_methods(v2) if v2.is_dynamic else make_implicit_methods(v2, names)
    body += make_phase_methods(v2, names)
    return rename_hooks(_with_bases(node, names).with_changes(body=node.body.with_changes(body=body)))


def migrate_derived(
    node: cst.ClassDef, interface: str, family: Sequence[cst.ClassDef], names: ApiNames, notes: Notebook
) -> cst.ClassDef:
    """A class that derives from a V2 plugin class of the file: what it overrides, in its new form."""
    v2 = V2Class(node, interface, tuple(family))
    body: list[cst.BaseStatement] = []
    for part in with_block(node).body.body:
        is_init = isinstance(part, cst.FunctionDef) and part.name.value == "__init__"
        kept = is_init or not isinstance(part, cst.BaseStatement)
        body += [part] if kept else _migrate_part(part, v2, names, notes)  # type: ignore[list-item, arg-type]
    for name in _CALLED_BY_INDEX:
        for found in find_super_calls(node, name):
            notes.add(found, f"super().{name} has another form in the migrated base", "call what the base has now")
    block = with_block(node)
    return rename_hooks(block.with_changes(body=block.body.with_changes(body=body)))


def _split_body(node: cst.ClassDef) -> tuple[list[cst.BaseStatement], list[cst.BaseStatement]]:
    """What stands before the first method, a docstring and attributes of the class, and the rest."""
    statements: list[cst.BaseStatement] = [part for part in node.body.body if isinstance(part, cst.BaseStatement)]
    start = next((i for i, part in enumerate(statements) if isinstance(part, cst.FunctionDef)), len(statements))
    return statements[:start], statements[start:]


def _migrate_part(
    part: cst.BaseStatement, v2: V2Class, names: ApiNames, notes: Notebook
) -> Sequence[cst.BaseStatement]:
    if not isinstance(part, cst.FunctionDef):
        _note_assigned(part, notes)
        return [part]
    name = part.name.value
    if name in _V3_ONLY:
        notes.add(
            part, f"{name} is a method of V3, which V2 never called", f"it is called v2_{name} now: see what it was for"
        )
        return [rename_method(part, f"v2_{name}")]
    if name == "__init__":
        return migrate_init(v2, names)
    if len(parameter_names(part)) != _NUM_PARAMETERS.get((name, v2.is_dynamic), len(parameter_names(part))):
        notes.add(
            part,
            f"{name} takes other parameters than the interface gives it",
            "write them out, or move the method to V3 by hand",
        )
        return [part]
    done = migrate_life_method(v2, name, names, notes)
    if done is None:
        migrate = migrate_dynamic_method if v2.is_dynamic else migrate_implicit_method
        done = migrate(v2, name, names, notes)
    return [part] if done is None else done


def _note_assigned(part: cst.BaseStatement, notes: Notebook) -> None:
    for target in m.findall(part, m.AssignTarget(m.Name())):
        name = code_of(cst.ensure_type(target, cst.AssignTarget).target)
        if name in {method for method, _ in _NUM_PARAMETERS} | _HOOKS:
            notes.add(part, f"{name} is assigned and not defined", "write it as a method and migrate again, or by hand")


def _with_bases(node: cst.ClassDef, names: ApiNames) -> cst.ClassDef:
    bases: list[cst.Arg] = []
    for base in node.bases:
        if code_of(base.value).rpartition(".")[2] in INTERFACES:
            bases += [cst.Arg(cst.parse_expression(names(name))) for name in PLUGIN_BASES]
        else:
            bases.append(base.with_changes(comma=cst.MaybeSentinel.DEFAULT))
    return node.with_changes(bases=bases)


def migrate_creator(node: cst.ClassDef, names: ApiNames, notes: Notebook) -> cst.ClassDef:
    """A V2 creator class as a V3 one: ``create_plugin`` knows the phase and reads stored fields too."""
    bases = [_creator_base(base, names) for base in node.bases]
    body: list[cst.BaseStatement] = []
    for part in node.body.body:
        name = part.name.value if isinstance(part, cst.FunctionDef) else ""
        if isinstance(part, cst.FunctionDef) and name == "create_plugin":
            body.append(_migrate_create(part, names, notes))
        elif isinstance(part, cst.FunctionDef) and name == "deserialize_plugin":
            body.append(rename_method(part, "_deserialize_plugin"))
        else:
            body.append(part)  # type: ignore[arg-type]
    return node.with_changes(bases=bases, body=node.body.with_changes(body=body))


def _creator_base(base: cst.Arg, names: ApiNames) -> cst.Arg:
    if code_of(base.value).rpartition(".")[2] != CREATOR:
        return base
    return base.with_changes(value=cst.parse_expression(names("IPluginCreatorV3One")))


def _migrate_create(method: cst.FunctionDef, names: ApiNames, notes: Notebook) -> cst.FunctionDef:
    if len(parameter_names(method)) != 3:
        notes.add(
            method,
            "create_plugin takes other parameters than the interface gives it",
            "give it (self, name, field_collection, phase), and read stored fields when the phase is RUNTIME",
        )
        return method
    _, name, fields = parameter_names(method)
    reading = make_statements(f"""
        if phase == {names("TensorRTPhase")}.RUNTIME:
            stored = [field.data.tobytes() for field in {fields} if field.name == "{FIELD}"]
            return self._deserialize_plugin({name}, b"".join(stored))
        """)
    params = [*method.params.params, _phase_parameter(method, names)]
    with_phase = method.with_changes(params=method.params.with_changes(params=params))
    return add_before(with_phase, reading)


def _phase_parameter(method: cst.FunctionDef, names: ApiNames) -> cst.Param:
    """The parameter ``phase``, with a default where one before it has one."""
    param = cst.Param(cst.Name("phase"))
    if all(other.default is None for other in method.params.params):
        return param
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return param.with_changes(default=cst.parse_expression(f"{names('TensorRTPhase')}.BUILD"), equal=equal)
