"""The methods of the interfaces that never see the batch: they stay, under private names, and V3 methods call them.

The first dimension of each tensor is the batch. What the private methods get and give is without it, as before.
"""

from __future__ import annotations

from typing import Final

import libcst as cst

from dovetail_tensorrt.migrate.descriptors import DescriptorUses, rewrite_attributes, rewrite_elements
from dovetail_tensorrt.migrate.edits import make_method, parameter_names, rename_method, with_statements
from dovetail_tensorrt.migrate.names import ApiNames
from dovetail_tensorrt.migrate.notes import Notebook
from dovetail_tensorrt.migrate.shared import migrate_output_types, start_phases
from dovetail_tensorrt.migrate.v2_class import V2Class

__all__ = ["make_implicit_methods", "migrate_implicit_method"]

_PRIVATE: Final = frozenset(
    ("get_output_shape", "supports_format", "configure_with_format", "execute_async", "get_workspace_size")
)
_LARGEST: Final = {"dims": "max[1:]", "type": "desc.type", "format": "desc.format", "scale": "desc.scale"}


def migrate_implicit_method(v2: V2Class, name: str, names: ApiNames, notes: Notebook) -> list[cst.FunctionDef] | None:
    """What becomes of a method; None for one that stays as it is."""
    method = v2.methods[name]
    if name == "get_output_data_type":
        return migrate_output_types(v2, method)
    if name == "supports_format_combination":
        return [_migrate_formats(method, notes)]
    if name == "configure_plugin" and v2.interface == "IPluginV2IOExt":
        return [_migrate_configure(method, notes)]
    if name == "configure_plugin" or name in _PRIVATE:
        return [rename_method(method, f"_{name}")]
    return None


def _migrate_formats(method: cst.FunctionDef, notes: Notebook) -> cst.FunctionDef:
    uses = DescriptorUses([parameter_names(method)[2]])
    method.body.visit(uses)
    for node in (*uses.whole, *uses.passed):
        notes.add(
            node,
            "supports_format_combination passes descriptors on",
            "their dims have the batch first now: see that the callee does not count dimensions",
        )
    unbatched = rewrite_attributes(method, uses, {"dims": "dims[1:]"})
    again = DescriptorUses([parameter_names(method)[2]])
    unbatched.body.visit(again)
    return rewrite_elements(unbatched, again, "desc")


def _migrate_configure(method: cst.FunctionDef, notes: Notebook) -> cst.FunctionDef:
    uses = DescriptorUses(parameter_names(method)[1:3])
    method.body.visit(uses)
    for node in (*uses.whole, *uses.passed):
        notes.add(
            node,
            "configure_plugin passes descriptors on",
            "they are DynamicPluginTensorDesc with the batch first now: read max[1:] for the shape, desc for the rest",
        )
    return rewrite_attributes(method, uses, _LARGEST)


def make_implicit_methods(v2: V2Class, names: ApiNames) -> list[cst.FunctionDef]:
    """The V3 methods that call the private ones."""
    methods = [_make_shapes(names), _make_shape_change(v2), _make_enqueue()]
    if v2.interface == "IPluginV2":
        methods += [_make_one_type(), _make_one_format(names), _make_configure_with_format(names)]
    elif v2.interface == "IPluginV2Ext":
        methods += [_make_float_format(names), _make_configure_ext(names)]
    if "get_workspace_size" in v2.methods:
        methods.append(_make_workspace())
    return methods


def _make_shapes(names: ApiNames) -> cst.FunctionDef:
    return make_method(f"""
        def get_output_shapes(self, inputs, shape_inputs, exprBuilder):
            # the first dimension is the batch, the others are fixed
            if not all(dims[axis].is_constant() for dims in inputs for axis in range(1, len(dims))):
                raise ValueError("only the batch may vary")
            shapes = [
                {names("Dims")}([dims[axis].get_constant_value() for axis in range(1, len(dims))]) for dims in inputs
            ]
            outputs = [self._get_output_shape(index, shapes) for index in range(self.num_outputs)]
            return [
                {names("DimsExprs")}([inputs[0][0], *(exprBuilder.constant(size) for size in shape)])
                for shape in outputs
            ]
        """)


def _make_shape_change(v2: V2Class) -> cst.FunctionDef:
    return with_statements(make_method("def on_shape_change(self, inputs, outputs):\n    pass"), start_phases(v2))


def _make_enqueue() -> cst.FunctionDef:
    return make_method("""
        def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
            status = self._execute_async(input_desc[0].dims[0], inputs, outputs, workspace, stream)
            if status:
                raise RuntimeError(f"execute_async failed with status {status}")
        """)


def _make_workspace() -> cst.FunctionDef:
    return make_method("""
        def get_workspace_size(self, inputs, outputs):
            return self._get_workspace_size(max(tensor.max[0] for tensor in inputs))
        """)


def _make_one_type() -> cst.FunctionDef:
    return make_method("""
        def get_output_data_types(self, input_types):
            return [input_types[0]] * self.num_outputs
        """)


def _make_one_format(names: ApiNames) -> cst.FunctionDef:
    return make_method(f"""
        def supports_format_combination(self, pos, in_out, num_inputs):
            desc, first = in_out[pos].desc, in_out[0].desc
            formats = ({_old_formats(names)})
            if (desc.type, desc.format) != (first.type, first.format) or desc.format not in formats:
                return False
            return self._supports_format(desc.type, desc.format)
        """)


def _old_formats(names: ApiNames) -> str:
    formats = names("TensorFormat")
    return f"{formats}.LINEAR, {formats}.CHW2, {formats}.HWC8"


def _make_configure_with_format(names: ApiNames) -> cst.FunctionDef:
    return make_method(f"""
        def configure_plugin(self, inputs, outputs):
            self._configure_with_format(
                [{names("Dims")}(tensor.max[1:]) for tensor in inputs],
                [{names("Dims")}(tensor.max[1:]) for tensor in outputs],
                inputs[0].desc.type,
                inputs[0].desc.format,
                max(tensor.max[0] for tensor in inputs),
            )
        """)


def _make_float_format(names: ApiNames) -> cst.FunctionDef:
    data_type = names("DataType")
    return make_method(f"""
        def supports_format_combination(self, pos, in_out, num_inputs):
            # floating-point tensors share a format, all others are linear
            floats = ({data_type}.FLOAT, {data_type}.HALF, {data_type}.BF16)
            desc = in_out[pos].desc
            shared = [in_out[i].desc.format for i in range(pos + 1) if in_out[i].desc.type in floats]
            wanted = shared[0] if desc.type in floats else {names("TensorFormat")}.LINEAR
            if desc.format != wanted or desc.format not in ({_old_formats(names)}):
                return False
            return self._supports_format(desc.type, desc.format)
        """)


def _make_configure_ext(names: ApiNames) -> cst.FunctionDef:
    data_type = names("DataType")
    return make_method(f"""
        def configure_plugin(self, inputs, outputs):
            floats = ({data_type}.FLOAT, {data_type}.HALF, {data_type}.BF16)
            formats = [tensor.desc.format for tensor in [*inputs, *outputs] if tensor.desc.type in floats]
            self._configure_plugin(
                [{names("Dims")}(tensor.max[1:]) for tensor in inputs],
                [{names("Dims")}(tensor.max[1:]) for tensor in outputs],
                [tensor.desc.type for tensor in inputs],
                [tensor.desc.type for tensor in outputs],
                [False] * len(inputs),
                [False] * len(outputs),
                formats[0] if formats else {names("TensorFormat")}.LINEAR,
                max(tensor.max[0] for tensor in inputs),
            )
        """)
