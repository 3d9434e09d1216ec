"""The methods that every migrated plugin class gets, whatever its V2 interface was: identity, life and storage."""

from __future__ import annotations

from typing import Final

import libcst as cst
import libcst.matchers as m

from dovetail_tensorrt.migrate.edits import (
    add_before,
    body_statements,
    find_calls,
    has_name,
    make_method,
    make_statements,
    parameter_names,
    rename_method,
    with_statements,
    wrap_returns,
)
from dovetail_tensorrt.migrate.names import PLUGIN_BASES, ApiNames, code_of
from dovetail_tensorrt.migrate.notes import Notebook
from dovetail_tensorrt.migrate.v2_class import V2Class

__all__ = ["FIELD", "make_phase_methods", "migrate_init", "migrate_life_method", "migrate_output_types", "start_phases"]

FIELD: Final = "serialized_plugin"
"""The field in which a migrated plugin stores what its ``serialize`` gave."""


def migrate_init(v2: V2Class, names: ApiNames) -> list[cst.FunctionDef]:
    """The constructor, which calls that of every base, and ``get_capability_interface`` after it."""
    calls = [f"{names(base)}.__init__(self)" for base in PLUGIN_BASES]
    flags = (["self._is_initialized = False"] if v2.initializes else []) + (
        ["self._is_attached = False"] if v2.attaches else []
    )
    namespace = [] if v2.sets_namespace else ['self.plugin_namespace = ""']
    added = make_statements("\n".join([*calls, *namespace, *flags]))
    capability = make_method("def get_capability_interface(self, type):\n    return self")
    old = v2.methods.get("__init__")
    if old is None:
        return [with_statements(make_method("def __init__(self):\n    pass"), added), capability]
    statements = body_statements(old)
    index = next((i for i, part in enumerate(statements) if _is_base_init(part, v2.interface)), None)
    if index is None:
        return [add_before(old, added), capability]
    first = added[0].with_changes(leading_lines=statements[index].leading_lines)  # type: ignore[attr-defined]
    return [with_statements(old, [*statements[:index], first, *added[1:], *statements[index + 1 :]]), capability]


def _is_base_init(statement: cst.BaseStatement, interface: str) -> bool:
    call = m.Call(func=m.Attribute(attr=m.Name("__init__")))
    if not m.matches(statement, m.SimpleStatementLine([m.Expr(call)])):
        return False
    text = code_of(statement).strip()
    return text.startswith("super(") or f"{interface}.__init__(" in text


def migrate_output_types(v2: V2Class, method: cst.FunctionDef) -> list[cst.FunctionDef]:
    """``get_output_data_types``: one answer for all outputs, where V2 asked for each."""
    params = parameter_names(method)
    index, types = params[1], params[2]
    if v2.has_one_output and not any(has_name(part, index) for part in body_statements(method)):
        single = wrap_returns(method, as_list)
        return [list_annotation(rename_method(drop_parameter(single, 1), "get_output_data_types"))]
    helper = rename_method(method, "_get_output_data_type")
    asking = make_method(f"""
        def get_output_data_types(self, {types}):
            return [self._get_output_data_type({index}, {types}) for {index} in range(self.num_outputs)]
        """)
    return [asking.with_changes(leading_lines=method.leading_lines), _set_off(helper)]


def as_list(value: cst.BaseExpression) -> cst.BaseExpression:
    """A list of one expression."""
    return cst.List([cst.Element(value)])


def list_annotation(method: cst.FunctionDef) -> cst.FunctionDef:
    """The method with what it says to return made a list of it."""
    if method.returns is None:
        return method
    text = code_of(method.returns.annotation)
    return method.with_changes(returns=method.returns.with_changes(annotation=cst.parse_expression(f"list[{text}]")))


def drop_parameter(method: cst.FunctionDef, index: int) -> cst.FunctionDef:
    """The method without one of its positional parameters."""
    params = [param for i, param in enumerate(method.params.params) if i != index]
    return method.with_changes(params=method.params.with_changes(params=params))


def _set_off(method: cst.FunctionDef) -> cst.FunctionDef:
    return method.with_changes(leading_lines=[cst.EmptyLine(indent=False)])


def migrate_life_method(v2: V2Class, name: str, names: ApiNames, notes: Notebook) -> list[cst.FunctionDef] | None:
    """What becomes of a method about life or storage; None for a method that is none."""
    method = v2.methods[name]
    if name in ("initialize", "terminate"):
        return [rename_method(method, f"_{name}")] if v2.initializes else []
    if name in ("attach_to_context", "detach_from_context"):
        if name == "attach_to_context" and v2.attaches:
            _note_handles(method, notes)
        return [rename_method(method, f"_{name}")] if v2.attaches else []
    if name == "get_serialization_size":
        return []
    if name == "serialize":
        return [rename_method(method, "_serialize"), _make_storing(names)]
    if name == "clone":
        return _migrate_clone(v2, method, notes)
    if name == "destroy" and v2.has_phases:
        return [rename_method(method, "_destroy")] if v2.destroys else []
    return None


def _note_handles(method: cst.FunctionDef, notes: Notebook) -> None:
    for param in parameter_names(method)[1:3]:
        if any(has_name(part, param) for part in body_statements(method)):
            notes.add(
                method,
                f"attach_to_context uses '{param}', which is None now",
                "V3 gives no cuDNN or cuBLAS handles: make your own, or share them as an IPluginResource",
            )


def _make_storing(names: ApiNames) -> cst.FunctionDef:
    return make_method(f"""
        def get_fields_to_serialize(self):
            data = self._serialize()
            # kept: the field refers to the memory and does not copy it
            self._serialized = data.encode() if isinstance(data, str) else bytes(data)
            field = {names("PluginField")}("{FIELD}", self._serialized, {names("PluginFieldType")}.UNKNOWN)
            return {names("PluginFieldCollection")}([field])
        """)


def _make_storing_nothing(names: ApiNames) -> cst.FunctionDef:
    return make_method(f"""
        def get_fields_to_serialize(self):
            return {names("PluginFieldCollection")}([])
        """)


def _migrate_clone(v2: V2Class, method: cst.FunctionDef, notes: Notebook) -> list[cst.FunctionDef]:
    if not v2.has_phases:
        return [method]
    if find_calls(method, "initialize"):
        notes.add(
            method,
            "clone calls initialize on the twin",
            "every object initialises itself before it runs now; remove the call unless the twin needs it earlier",
        )
    flags = (["twin._is_initialized = False"] if v2.initializes else []) + (
        ["twin._is_attached = False"] if v2.attaches else []
    )
    body = "\n".join(f"    {line}" for line in ["twin = self._copy()", *flags, "return twin"])
    return [rename_method(method, "_copy"), make_method(f"def clone(self):\n{body}")]


def start_phases(v2: V2Class) -> list[cst.BaseStatement]:
    """What ``on_shape_change`` starts with: the object initialises itself before its first run."""
    if not v2.initializes:
        return []
    if not v2.find_in_family("initialize"):
        return make_statements("self._is_initialized = True")
    return make_statements("""
        if not self._is_initialized:
            if self._initialize():
                raise RuntimeError("the plugin cannot be initialised")
            self._is_initialized = True
        """)


def make_phase_methods(v2: V2Class, names: ApiNames) -> list[cst.FunctionDef]:
    """``set_tactic``, ``attach_to_context`` and ``destroy``, and fields for a class that stores nothing."""
    stores = [] if "serialize" in v2.methods else [_make_storing_nothing(names)]
    methods = [*stores, make_method("def set_tactic(self, tactic):\n    pass"), _make_attach(v2)]
    if v2.has_phases:
        methods.append(_make_destroy(v2))
    return [*methods, *_make_empty_hooks(v2)]


def _make_empty_hooks(v2: V2Class) -> list[cst.FunctionDef]:
    """What only classes that derive from this one have, and its own methods call."""
    hooks = {
        "initialize": ("self", v2.initializes),
        "terminate": ("self", v2.initializes),
        "attach_to_context": ("self, cudnn, cublas, allocator", v2.attaches),
        "detach_from_context": ("self", v2.attaches),
        "destroy": ("self", v2.has_phases and v2.destroys),
    }
    missing = [name for name, (_, is_used) in hooks.items() if is_used and name not in v2.methods]
    needed = [name for name in missing if v2.find_in_family(name)]
    return [make_method(f"def _{name}({hooks[name][0]}):\n    pass") for name in needed]


def _make_attach(v2: V2Class) -> cst.FunctionDef:
    if not v2.attaches:
        return make_method("def attach_to_context(self, resource_context):\n    return self.clone()")
    lines = ["twin = self.clone()"]
    if v2.find_in_family("attach_to_context"):
        lines.append("twin._attach_to_context(None, None, resource_context.gpu_allocator)")
    lines += ["twin._is_attached = True", "return twin"]
    return make_method("def attach_to_context(self, resource_context):\n" + _indent(lines))


def _make_destroy(v2: V2Class) -> cst.FunctionDef:
    lines: list[str] = []
    if v2.attaches and v2.find_in_family("detach_from_context"):
        lines += ["if self._is_attached:", "    self._is_attached = False", "    self._detach_from_context()"]
    if v2.initializes and v2.find_in_family("terminate"):
        lines += ["if self._is_initialized:", "    self._is_initialized = False", "    self._terminate()"]
    if v2.destroys:
        lines.append("self._destroy()")
    return make_method("def destroy(self):\n" + _indent(lines or ["pass"]))


def _indent(lines: list[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)
