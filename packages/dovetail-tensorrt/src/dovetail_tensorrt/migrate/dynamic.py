"""The methods of ``IPluginV2DynamicExt`` that have another form in V3."""

from __future__ import annotations

from typing import Final

import libcst as cst
import libcst.matchers as m

from dovetail_tensorrt.migrate.descriptors import DescriptorUses, rewrite_attributes, rewrite_elements
from dovetail_tensorrt.migrate.edits import (
    add_before,
    body_statements,
    find_super_calls,
    has_name,
    is_trivial,
    make_method,
    make_statements,
    parameter_names,
    rename_method,
    with_statements,
    wrap_returns,
)
from dovetail_tensorrt.migrate.names import ApiNames
from dovetail_tensorrt.migrate.notes import Notebook
from dovetail_tensorrt.migrate.shared import (
    as_list,
    drop_parameter,
    list_annotation,
    migrate_output_types,
    start_phases,
)
from dovetail_tensorrt.migrate.v2_class import V2Class

__all__ = ["make_missing_methods", "migrate_dynamic_method"]

_LARGEST: Final = {"dims": "max", "type": "desc.type", "format": "desc.format", "scale": "desc.scale"}
"""What a static descriptor had -> where a dynamic one has it, for the largest shapes."""
_OF_RUN: Final = {"desc": "", "min": "dims", "opt": "dims", "max": "dims"}
"""What a dynamic descriptor has -> what the descriptor of a run has."""

_CONFIGURE_OF_BASE: Final = m.Attribute(value=m.Call(func=m.Name("super")), attr=m.Name("configure_plugin"))


def migrate_dynamic_method(v2: V2Class, name: str, names: ApiNames, notes: Notebook) -> list[cst.FunctionDef] | None:
    """What becomes of a method; None for one that stays as it is."""
    method = v2.methods[name]
    if name == "get_output_datatype":
        return migrate_output_types(v2, method)
    if name == "get_output_dimensions":
        return _migrate_shapes(v2, method, names)
    if name == "supports_format_combination":
        return [_migrate_formats(method)]
    if name == "configure_plugin":
        return [method, _make_shape_change(v2, method, notes)]
    if name == "get_workspace_size":
        return [_migrate_workspace(method, notes)]
    return None


def make_missing_methods(v2: V2Class) -> list[cst.FunctionDef]:
    """What V3 requires and a class without ``configure_plugin`` has not."""
    if "configure_plugin" in v2.methods:
        return []
    reshape = make_method("def on_shape_change(self, inputs, outputs):\n    pass")
    configure = make_method("def configure_plugin(self, inputs, outputs):\n    pass")
    return [configure, with_statements(reshape, start_phases(v2))]


def _migrate_shapes(v2: V2Class, method: cst.FunctionDef, names: ApiNames) -> list[cst.FunctionDef]:
    _, index, inputs, builder = parameter_names(method)
    own = body_statements(method)
    if v2.has_one_output and not any(has_name(part, index) for part in own) and not _writes_inputs(method, inputs):
        single = list_annotation(drop_parameter(wrap_returns(method, as_list), 1))
        return [rename_method(_add_shape_inputs(single), "get_output_shapes")]
    asking = make_method(f"""
        def get_output_shapes(self, {inputs}, shape_inputs, {builder}):
            # each output gets a copy of the inputs, which it may write to
            return [
                self._get_output_dimensions({index}, [{names("DimsExprs")}(dims) for dims in {inputs}], {builder})
                for {index} in range(self.num_outputs)
            ]
        """)
    helper = rename_method(method, "_get_output_dimensions")
    blank = [cst.EmptyLine(indent=False)]
    return [asking.with_changes(leading_lines=method.leading_lines), helper.with_changes(leading_lines=blank)]


def _writes_inputs(method: cst.FunctionDef, inputs: str) -> bool:
    """Whether a method assigns to elements of its inputs, or of what it calls one of them."""
    uses = DescriptorUses([inputs])
    method.body.visit(uses)
    roots = {inputs, *uses.names, *uses.loop_names}
    targets = m.findall(method, m.AssignTarget(m.Subscript()) | m.AugAssign(target=m.Subscript()))
    return any(_root_of(target.target) in roots for target in targets)  # type: ignore[attr-defined]


def _root_of(node: cst.BaseExpression) -> str:
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _add_shape_inputs(method: cst.FunctionDef) -> cst.FunctionDef:
    """The parameters (self, inputs, shape_inputs, builder), written with the commas that are there."""
    params = list(method.params.params)
    added = cst.Param(cst.Name("shape_inputs"), comma=params[1].comma)
    return method.with_changes(params=method.params.with_changes(params=[*params[:2], added, *params[2:]]))


def _migrate_formats(method: cst.FunctionDef) -> cst.FunctionDef:
    _, pos, in_out, *_ = parameter_names(method)
    uses = DescriptorUses([in_out])
    method.body.visit(uses)
    if not uses.whole:
        return with_statements(method, body_statements(rewrite_elements(method, uses, "desc")))
    return add_before(method, make_statements(f"{in_out} = [dynamic.desc for dynamic in {in_out}[: {pos} + 1]]"))


def _make_shape_change(v2: V2Class, method: cst.FunctionDef, notes: Notebook) -> cst.FunctionDef:
    """``on_shape_change``: what ``configure_plugin`` does, with the descriptors of a run."""
    params = parameter_names(method)[1:3]
    made = make_method(f"def on_shape_change(self, {', '.join(params)}):\n    pass")
    if is_trivial(method):
        return with_statements(made, start_phases(v2))
    uses = DescriptorUses(params)
    method.body.visit(uses)
    to_base = {id(part) for call in find_super_calls(method, "configure_plugin") for part in m.findall(call, m.Name())}
    for node in [node for node in (*uses.whole, *uses.passed) if id(node) not in to_base]:
        notes.add(
            node,
            "configure_plugin passes descriptors on; on_shape_change, which does the same before runs, does so too",
            "there they are PluginTensorDesc, without desc, min, opt and max: see that the callee takes both",
        )
    of_run = m.replace(rewrite_attributes(method, uses, _OF_RUN), _CONFIGURE_OF_BASE, _reshape_base)
    copied = body_statements(cst.ensure_type(of_run, cst.FunctionDef))
    return with_statements(made, [*start_phases(v2), *copied])


def _reshape_base(node: cst.CSTNode, _: object) -> cst.CSTNode:
    return node.with_changes(attr=cst.Name("on_shape_change"))


def _migrate_workspace(method: cst.FunctionDef, notes: Notebook) -> cst.FunctionDef:
    uses = DescriptorUses(parameter_names(method)[1:3])
    method.body.visit(uses)
    for node in (*uses.whole, *uses.passed):
        notes.add(
            node,
            "get_workspace_size passes descriptors on",
            "they are DynamicPluginTensorDesc now: read max for the largest shape, and desc for type and format",
        )
    return rewrite_attributes(method, uses, _LARGEST)
