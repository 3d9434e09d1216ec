"""The rules for steps: what each kind must have, and that what it names is there when it runs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from dovetail.errors import DovetailError, PlanCorruptError, UsageError
from dovetail.expr import Dim, Symbol
from dovetail.plan.attributes import decode_attributes
from dovetail.plan.manifest import FieldRecord, Manifest, PluginRecord, ProgramRecord, StepRecord, SymbolRecord
from dovetail.plan.verify.built import verify_kernel, verify_partition
from dovetail.plan.verify.rules import MAX_BYTES, check_dims, check_name, check_range, dtype_from_name, require
from dovetail.plugin.fields import MAX_NAME_BYTES, decode_fields
from dovetail.plugin.kernels import LAUNCHED
from dovetail.provider.schemas.shape_slots import reads_only_shape
from dovetail.types import data_type_from_numpy

__all__ = ["Scope", "verify_step"]

_MAX_NUMBER: Final = 2**31
_NUM_BODIES: Final = {"If": 2, "Loop": 1, "Scan": 1}


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where a step stands."""

    manifest: Manifest
    program: ProgramRecord
    symbols: Mapping[str, SymbolRecord]
    providers: Set[str]
    ready: Set[int]
    """The values that exist before the step runs."""
    has_devices: bool = False
    """Whether any value of the program lies on a device."""


def verify_step(step: StepRecord, scope: Scope, where: str) -> None:
    """Check one step whose indices are in range; its bodies are not looked into."""
    require(step.kind in _KINDS, where, "unknown kind", step.kind)
    check_name(step.op, where)
    for text in (step.domain, step.made_by, *step.layers):
        check_name(text, where, may_be_empty=True)
    check_range(step.opset, _MAX_NUMBER, where, "opset out of range")
    check_range(step.tactic, _MAX_NUMBER, where, "tactic out of range")
    check_range(step.workspace_bytes, MAX_BYTES, where, "workspace out of range")
    require(step.provider in scope.providers, where, "names another provider", step.provider)
    is_partition = step.kind == "partition"
    require(is_partition == (step.partition is not None), where, "compiled steps, and only they, have a partition")
    is_plugin = step.kind == "plugin"
    require(is_plugin == (step.plugin is not None), where, "plugin steps, and only they, name a plugin")
    has_kernel = step.kind in ("kernel", "plugin")
    require(step.kernel is None or has_kernel, where, "has what only kernels and plugins are built to")
    others = (step.shape_inputs, step.sizes, step.tactic, step.asks_workspace)
    require(is_plugin or not any(others), where, "has what only plugin steps have")
    has_workspace = is_plugin or is_partition or step.kind == "kernel"
    require(has_workspace or not step.workspace_bytes, where, "has a workspace that it cannot use")
    require((step.kind == "control") == bool(step.bodies), where, "control flow, and only it, has bodies")
    has_attributes = step.kind in ("kernel", "control")
    require(has_attributes or not step.attributes, where, "has attributes, which only kernels and control flow have")
    _verify_memory(step, scope, where)
    _KINDS[step.kind](step, scope, where)


def _verify_memory(step: StepRecord, scope: Scope, where: str) -> None:
    """A step touches memory of the host and of its own provider; what it writes lies in one of them."""
    if not scope.has_devices or step.kind == "copy":
        return
    values = scope.program.values
    own = "" if step.kind == "control" else step.provider
    is_idle = step.kind == "kernel" and reads_only_shape(step.op, step.domain)
    for index in (*(() if is_idle else step.inputs), *step.outputs):
        is_near = index < 0 or values[index].memory in ("", own)
        require(is_near, where, "touches a value in the memory of another provider", index)
    for index in (*step.shape_inputs, *(outside for body in step.bodies for outside, _ in body.captures)):
        require(not values[index].memory, where, "reads a value on a device", index)
    written = {values[index].memory for index in step.outputs if index >= 0}
    require(len(written) < 2, where, "writes to two memories", sorted(written))


def _verify_copy(step: StepRecord, scope: Scope, where: str) -> None:
    is_pair = len(step.inputs) == len(step.outputs) == 1 and min(*step.inputs, *step.outputs) >= 0
    require(is_pair, where, "a copy has one input and one output")
    if not is_pair:
        return
    source, target = (scope.program.values[index] for index in (step.inputs[0], step.outputs[0]))
    require(not (source.type or target.type), where, "a copy takes no objects")
    same = (source.dtype, source.format) == (target.dtype, target.format)
    require(same, where, "a copy changes the type or the format", (target.dtype, target.format))
    require(_may_be_equal(source.dims, target.dims), where, "a copy changes the shape", target.dims)
    is_mine = step.provider in (source.memory, target.memory)
    require(is_mine, where, "copies between memories that its provider does not have", step.provider)


def _may_be_equal(one: Sequence[Dim] | None, other: Sequence[Dim] | None) -> bool:
    """Whether two shapes are the same as far as they are known."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(a == b or None in (a, b) for a, b in zip(one, other, strict=True))


def _read_attributes(step: StepRecord, scope: Scope, where: str) -> Mapping[str, Any]:
    def check_tensor(name: str) -> None:
        record = scope.manifest.blobs.get(name)
        is_weights = record is not None and record.kind in ("weights", "strings") and not record.stripped
        require(is_weights, where, "an attribute names a blob that is no weights", name)

    for attribute in step.attributes:
        check_name(attribute.name, where)
    try:
        return decode_attributes(step.attributes, check_tensor)
    except PlanCorruptError as error:
        raise PlanCorruptError(error.what, where=where, got=error.got, fix="build the plan again") from None


def _verify_kernel(step: StepRecord, scope: Scope, where: str) -> None:
    _read_attributes(step, scope, where)
    if step.kernel is not None:
        verify_kernel(step.kernel, scope.manifest, where)


def _verify_partition(step: StepRecord, scope: Scope, where: str) -> None:
    if step.partition is not None:
        verify_partition(step, step.partition, scope.program, scope.manifest, where)


def _verify_reformat(step: StepRecord, scope: Scope, where: str) -> None:
    is_pair = len(step.inputs) == len(step.outputs) == 1 and min(*step.inputs, *step.outputs) >= 0
    require(is_pair, where, "a reformat has one input and one output")
    source, target = (scope.program.values[index].dims for index in (step.inputs[0], step.outputs[0]))
    types = [scope.program.values[index].type for index in (*step.inputs, *step.outputs)]
    require(not any(types), where, "a reformat takes no objects", types)
    same = source is None or target is None or len(source) == len(target)
    require(same, where, "a reformat changes the number of dimensions")
    memories = {scope.program.values[index].memory for index in (*step.inputs, *step.outputs)}
    require(len(memories) == 1, where, "a reformat goes from one memory to another", sorted(memories))


# control flow


def _verify_control(step: StepRecord, scope: Scope, where: str) -> None:
    require(step.op in _NUM_BODIES, where, "unknown control flow", step.op)
    require(len(step.bodies) == _NUM_BODIES[step.op], where, "has another number of bodies", len(step.bodies))
    num_inputs, num_outputs = _CONTROL[step.op](step, _read_attributes(step, scope, where), where)
    for body in step.bodies:
        require(len(body.inputs) == num_inputs, where, "its body has another number of inputs", len(body.inputs))
        require(len(body.outputs) >= num_outputs, where, "its body has too few outputs", len(body.outputs))
        _verify_body_types(step, body, scope, where)
    kinds = {scope.program.values[index].kind for index in step.outputs if index >= 0}
    require(kinds <= {"dynamic", "object"}, where, "an output of control flow is not dynamic", sorted(kinds))


def _verify_body_types(step: StepRecord, body: ProgramRecord, scope: Scope, where: str) -> None:
    """What is an object outside of a body is one inside, and the other way round."""
    values = scope.program.values
    results = body.outputs[1:] if step.op == "Loop" else body.outputs
    pairs = [*body.captures, *zip(step.outputs, results, strict=False)]
    pairs += zip(step.inputs, body.inputs, strict=True) if step.op != "If" else ()
    for outside, inside in pairs:
        if outside >= 0 and 0 <= inside < len(body.values):
            same = values[outside].type == body.values[inside].type
            require(same, where, "a value has another type in its body", body.values[inside].type)


def _count_if(step: StepRecord, attributes: Mapping[str, Any], where: str) -> tuple[int, int]:
    """How many inputs the bodies have, and how many outputs at least."""
    require(len(step.inputs) == 1 and step.inputs[0] >= 0, where, "If has one input", step.inputs)
    return 0, len(step.outputs)


def _count_loop(step: StepRecord, attributes: Mapping[str, Any], where: str) -> tuple[int, int]:
    require(len(step.inputs) >= 2, where, "Loop has a count, a condition and its state", step.inputs)
    return len(step.inputs), 1 + max(len(step.inputs) - 2, len(step.outputs))


def _count_scan(step: StepRecord, attributes: Mapping[str, Any], where: str) -> tuple[int, int]:
    num_scans = attributes.get("num_scan_inputs", 0)
    is_count = isinstance(num_scans, int) and 1 <= num_scans <= len(step.inputs)
    require(is_count and min(step.inputs) >= 0, where, "malformed num_scan_inputs", num_scans)
    num_outputs = len(step.outputs) - (len(step.inputs) - num_scans)
    require(num_outputs >= 0, where, "Scan has an output for each state", step.outputs)
    for name, value in attributes.items():
        expected = num_scans if name.startswith("scan_input_") else num_outputs
        is_row = name == "num_scan_inputs" or (isinstance(value, list) and len(value) in (0, expected))
        require(is_row, where, "an axis or direction is needed for each scan", name)
    return len(step.inputs), len(step.outputs)


_CONTROL: Final = {"If": _count_if, "Loop": _count_loop, "Scan": _count_scan}


# plugins


def _verify_plugin(step: StepRecord, scope: Scope, where: str) -> None:
    if step.plugin is not None:
        _verify_plugin_record(step.plugin, where)
    if step.kernel is not None:
        verify_kernel(step.kernel, scope.manifest, where)
        is_launch = bool(step.kernel.payload) and list(step.kernel.code) == [LAUNCHED]
        require(is_launch, where, "a plugin that is a kernel has a launch and its code", sorted(step.kernel.code))
    values, ports = scope.program.values, (*step.inputs, *step.outputs)
    require(min(ports, default=-1) >= 0, where, "a plugin has no absent inputs or outputs")
    require(bool(step.outputs), where, "a plugin has at least one output")
    for index in ports:
        require(not values[index].type, where, "a plugin takes no objects", values[index].type)
        _verify_port(values[index].dtype, where)
    for name, upper in step.sizes.items():
        _verify_size(step, scope, where, name)
        _verify_readable(check_dims([upper], where), step, scope, where)
    for index in step.outputs:
        dims = values[index].dims
        require(dims is not None, where, "an output of a plugin has no shape", index)
        _verify_output_dims(dims or (), step, scope, where)


def _verify_plugin_record(record: PluginRecord, where: str) -> None:
    for text, may_be_empty in ((record.name, False), (record.version, True), (record.namespace, True)):
        check_name(text, where, may_be_empty=may_be_empty)
        require(len(text.encode()) <= MAX_NAME_BYTES, where, "the name of a plugin is too long", text)
    for field in record.fields:
        check_name(field.name, where)
        _verify_field(field, f"{where}, field {field.name[:60]!a}")


def _verify_field(field: FieldRecord, where: str) -> None:
    require(len(field.name.encode()) <= MAX_NAME_BYTES, where, "the name of a field is too long")
    try:
        raw = base64.b64decode(field.data, validate=True)
        decode_fields([{"name": field.name, "type": field.type, "data": field.data}])
    except (binascii.Error, KeyError, ValueError, DovetailError):
        raise PlanCorruptError("a plugin field is malformed", where=where, fix="build the plan again") from None
    # The size counts the elements of the array that the plugin gave, which may have had another type.
    is_whole = bool(raw) and len(raw) % field.size == 0 if field.size > 0 else field.size == 0 and not raw
    require(is_whole, where, "the size of a plugin field does not fit its data", field.size)


def _verify_port(dtype: str, where: str) -> None:
    try:
        data_type_from_numpy(dtype_from_name(dtype))
    except UsageError:
        raise PlanCorruptError("plugins have no such type", where=where, got=dtype) from None


def _verify_size(step: StepRecord, scope: Scope, where: str, name: str) -> None:
    """A size that the plugin writes is the one element of an output of its own."""
    symbol = scope.symbols.get(name)
    if symbol is None or (symbol.source, symbol.index) != ("element", 0) or symbol.value not in step.outputs:
        raise PlanCorruptError("bounds a symbol that is not a size it writes", where=where, got=ascii(name[:60]))
    value = scope.program.values[symbol.value]
    is_integer = value.dims == () and value.dtype in ("int32", "int64")
    require(is_integer, where, "a size tensor is not one integer", (value.dtype, value.dims))


def _verify_output_dims(dims: Collection[Dim], step: StepRecord, scope: Scope, where: str) -> None:
    for dim in dims:
        names = check_dims([dim], where)
        if names.isdisjoint(step.sizes):
            _verify_readable(names, step, scope, where)
        else:
            is_alone = isinstance(dim, Symbol)
            require(is_alone, where, "a size tensor is part of an expression", sorted(names)[:3])


def _verify_readable(names: Collection[str], step: StepRecord, scope: Scope, where: str) -> None:
    """A shape is known before the step runs, so it depends only on values that exist then."""
    for name in names:
        symbol = scope.symbols.get(name)
        is_ready = symbol is not None and symbol.value in scope.ready and name not in step.sizes
        require(is_ready, where, "a shape depends on what is not known yet", name)


_KINDS: Final[Mapping[str, Callable[[StepRecord, Scope, str], None]]] = {
    "kernel": _verify_kernel,
    "plugin": _verify_plugin,
    "reformat": _verify_reformat,
    "copy": _verify_copy,
    "partition": _verify_partition,
    "control": _verify_control,
}
