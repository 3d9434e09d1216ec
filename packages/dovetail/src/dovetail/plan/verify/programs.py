"""The rules for programs: values of the right kind, made once and before they are read, and symbols that can be read.

A program is checked before anything is made from it, because steps trust it: a plugin reads and writes through
addresses, so a value that is not what its record says would be memory outside of its array.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from dovetail.expr import Constant, Symbol
from dovetail.formats import FOUR_BIT_TYPES
from dovetail.plan._header import show
from dovetail.plan.manifest import Manifest, ProgramRecord, StepRecord, SymbolRecord, TensorRecord, ValueRecord
from dovetail.plan.value_types import ValueType
from dovetail.plan.verify.memory import verify_arena, verify_no_workspaces, verify_unplaced
from dovetail.plan.verify.rules import (
    MAX_BYTES,
    check_dims,
    check_format,
    check_indices,
    check_name,
    check_range,
    check_value_type,
    require,
)
from dovetail.plan.verify.steps import Scope, verify_step

__all__ = ["verify_program"]

_KINDS: Final = frozenset(("input", "output", "constant", "planned", "dynamic", "object"))
_BODY_KINDS: Final = frozenset(("input", "constant", "dynamic", "object"))
_MADE_KINDS: Final = frozenset(("output", "planned", "dynamic", "object"))
_SHAPED_KINDS: Final = frozenset(("output", "planned"))
_MAX_DEPTH: Final = 32
_MAX_INDEX: Final = 2**31


def verify_program(program: ProgramRecord, manifest: Manifest, profile: int) -> None:
    """Check the program of a profile, bodies included."""
    where = f"program {profile}"
    require(len(program.inputs) == len(manifest.inputs), where, "has another number of inputs than the plan")
    require(len(program.outputs) == len(manifest.outputs), where, "has another number of outputs than the plan")
    require(not program.captures, where, "captures values, which only bodies do")
    _verify(program, manifest, where, 0)
    _verify_tensors(program, manifest, where)
    if manifest.open:
        verify_unplaced(program, where)
        verify_no_workspaces(program, where)
    else:
        verify_arena(program, manifest, profile, where)


def _verify(program: ProgramRecord, manifest: Manifest, where: str, depth: int) -> None:
    require(depth < _MAX_DEPTH, where, "bodies are nested too deep")
    check_indices((*program.inputs, *program.outputs), len(program.values), where)
    check_range(program.arena_bytes, MAX_BYTES, where, "arena size out of range")
    kinds = _BODY_KINDS if depth else _KINDS
    for index, value in enumerate(program.values):
        _verify_value(value, manifest, f"{where}, value {index}", kinds)
    inputs = [index for index, value in enumerate(program.values) if value.kind == "input"]
    require(sorted(program.inputs) == inputs, where, "its inputs are not its values of that kind", program.inputs)
    _verify_symbols(program, where)
    _verify_shapes(program, where)
    _verify_flow(program, manifest, where, depth)


# values


def _verify_value(value: ValueRecord, manifest: Manifest, where: str, kinds: Collection[str]) -> None:
    check_name(value.name, where, may_be_empty=True)
    require(value.kind in kinds, where, "is of a kind that does not exist here", value.kind)
    kind = check_value_type(value.type, value.dtype, where)
    if kind is not None:
        _verify_object(value, kind, where)
    require(value.kind != "object" or kind is not None, where, "is an object without a type")
    check_format(value.format, value.rank, where)
    require(value.shapes is None, where, "has shapes of a profile, which only a build knows")
    is_known = not value.memory or any(value.memory == device.provider for device in manifest.devices)
    require(is_known, where, "lies in the memory of a provider that the plan does not have", value.memory)
    if value.memory and value.kind in ("input", "output", "object"):
        _verify_callers(value, where, kinds)
    is_constant = value.kind == "constant"
    require(is_constant == (value.blob is not None), where, "constants, and only they, have a blob")
    require(value.alias is None or value.kind in _MADE_KINDS, where, "shares memory and is not made by a step")
    if value.blob is not None:
        _verify_constant(value, value.blob, manifest, where)


def _verify_callers(value: ValueRecord, where: str, kinds: Collection[str]) -> None:
    """What callers bind on a device is numbers of whole bytes, row by row; bodies get theirs on the host."""
    is_bound = value.kind != "object" and not value.type and kinds is _KINDS
    require(is_bound, where, f"a value of kind {value.kind} lies on a device", value.memory)
    require(value.format == "LINEAR", where, "lies on a device and not row by row", value.format)
    is_whole = value.dtype not in FOUR_BIT_TYPES
    require(is_whole, where, "lies on a device and two elements share a byte", value.dtype)


def _verify_object(value: ValueRecord, kind: ValueType, where: str) -> None:
    """An object is never memory: it has no place, and a shape only where it is an array of strings from outside."""
    require(value.kind in ("input", "constant", "object"), where, f"an object is of kind {value.kind}", value.type)
    require(kind.is_string_tensor or value.kind != "constant", where, "is a constant and no tensor", value.type)
    has_shape = value.kind == "input" and kind.is_string_tensor
    require(has_shape or value.dims is None, where, "is an object with a shape", value.dims)
    is_plain = (value.format, value.alias, value.offset, value.size_bytes) == ("LINEAR", None, None, None)
    require(is_plain, where, "is an object and lies in memory", value.format)


def _verify_constant(value: ValueRecord, blob: str, manifest: Manifest, where: str) -> None:
    record = manifest.blobs.get(blob)
    expected = "strings" if value.type else "weights"
    if record is None or record.kind != expected:
        require(False, where, f"names a blob that is not {expected}", blob)
        return
    if value.type:
        return  # the blob of strings has its own shape
    require(record.dtype == value.dtype, where, "has another type than its blob", value.dtype)
    require(tuple(record.shape) == value.sizes, where, "has another shape than its blob", value.dims)
    require(value.format == "LINEAR", where, "is a constant that does not lie row by row", value.format)


# symbols and shapes


def _verify_symbols(program: ProgramRecord, where: str) -> None:
    inputs = set(program.inputs)
    sizes = {name for step in program.steps for name in step.sizes}
    for symbol in program.symbols:
        place = f"{where}, symbol {show(symbol.name)}"
        check_name(symbol.name, place)
        check_indices((symbol.value,), len(program.values), place)
        check_range(symbol.index, _MAX_INDEX, place, "is out of range")
        value = program.values[symbol.value]
        # Sizes that plugins of a device write are read back by their step.
        is_reachable = not value.memory or symbol.source == "dim" or symbol.name in sizes
        require(is_reachable, place, "is an element of a value on a device", value.memory)
        _verify_symbol(symbol, value, place, is_input=symbol.value in inputs)
    names = {symbol.name for symbol in program.symbols}
    require(len(names) == len(program.symbols), where, "two symbols have the same name")


def _verify_symbol(symbol: SymbolRecord, value: ValueRecord, where: str, *, is_input: bool) -> None:
    require(symbol.source in ("dim", "element"), where, "is neither a dimension nor an element", symbol.source)
    is_array = value.kind != "object" and value.type in ("", "tensor(string)")
    require(is_array, where, "belongs to an object")
    if symbol.source == "dim":
        rank = _MAX_INDEX if value.dims is None else len(value.dims)
        require(symbol.index < rank, where, "is a dimension that the value does not have", symbol.index)
        return
    is_integer = value.dtype in ("int32", "int64")
    require(is_integer or not is_input, where, "is an element of an input that holds no integers", value.dtype)
    if value.fixed_shape is not None:
        count = math.prod(value.fixed_shape)
        require(symbol.index < count, where, "is an element that the value does not have", symbol.index)
    elif is_input and value.dims is not None:
        require(False, where, "is an element of an input whose size is not fixed")


def _verify_shapes(program: ProgramRecord, where: str) -> None:
    """Shapes use symbols that exist; those that are known before the run use only what inputs decide."""
    known = {symbol.name for symbol in program.symbols}
    inputs = set(program.inputs)
    static = {symbol.name for symbol in program.symbols if symbol.value in inputs}
    for index, value in enumerate(program.values):
        place, is_shaped = f"{where}, value {index}", value.kind in _SHAPED_KINDS
        require(value.dims is not None or not is_shaped, place, "has no shape")
        if value.dims is not None:
            is_nullable = value.kind == "dynamic"
            unknown = check_dims(value.dims, place, nullable=is_nullable) - (static if is_shaped else known)
            require(not unknown, place, "uses symbols that are not defined", sorted(unknown)[:3])


# steps


def _verify_flow(program: ProgramRecord, manifest: Manifest, where: str, depth: int) -> None:
    """Walk the steps in order: each reads what exists, and makes what does not exist yet."""
    ready = _verify_captures(program, where)
    ready |= {index for index, value in enumerate(program.values) if value.kind in ("input", "constant")}
    symbols = {symbol.name: symbol for symbol in program.symbols}
    providers = frozenset(device.provider for device in manifest.devices)
    has_devices = any(value.memory for value in program.values)
    scope = Scope(
        manifest=manifest,
        program=program,
        symbols=symbols,
        providers=providers,
        ready=ready,
        has_devices=has_devices,
    )
    given = frozenset(ready)
    for index, step in enumerate(program.steps):
        check_name(step.name, f"{where}, step {index}", may_be_empty=True)
        place = f"{where}, step {show(step.name)}"
        _verify_reads(step, program, ready, place)
        verify_step(step, scope, place)
        for body in step.bodies:
            _verify(body, manifest, f"{place}, body", depth + 1)
            verify_unplaced(body, f"{place}, body")
        _verify_writes(step, program, ready, place)
    for index in program.outputs:
        require(index in ready, where, "an output is not made by any step", index)
    made = ready - given
    for index, value in enumerate(program.values):
        is_needed = value.kind in _SHAPED_KINDS or value.alias is not None
        require(not is_needed or index in made, f"{where}, value {index}", "is not made by any step")


def _verify_captures(program: ProgramRecord, where: str) -> set[int]:
    inside = [index for _, index in program.captures]
    check_indices(inside, len(program.values), where)
    require(len(set(inside)) == len(inside), where, "captures two values as one", inside[:8])
    for index in inside:
        is_free = program.values[index].kind in ("dynamic", "object")
        require(is_free, where, "captures a value as an input or constant", index)
    return set(inside)


def _verify_reads(step: StepRecord, program: ProgramRecord, ready: Collection[int], where: str) -> None:
    captured = [outside for body in step.bodies for outside, _ in body.captures]
    check_indices((*step.inputs, *step.outputs), len(program.values), where, absent=True)
    check_indices((*step.shape_inputs, *captured), len(program.values), where)
    for index in (*step.inputs, *step.shape_inputs, *captured):
        require(index < 0 or index in ready, where, "reads a value before it is made", index)


def _verify_writes(step: StepRecord, program: ProgramRecord, ready: set[int], where: str) -> None:
    for index in step.outputs:
        if index >= 0:
            value = program.values[index]
            require(value.kind in _MADE_KINDS, where, f"writes to a value of kind {value.kind}", index)
            require(index not in ready, where, "makes a value that was made before", index)
            _verify_alias(value, step, program, where)
            ready.add(index)


def _verify_alias(value: ValueRecord, step: StepRecord, program: ProgramRecord, where: str) -> None:
    """An output may share memory with an input of its step, which nobody reads afterwards."""
    if value.alias is None:
        return
    shares = step.kind in ("plugin", "kernel", "partition") and value.alias in step.inputs
    require(shares, where, "shares memory with no input", value.alias)
    source = program.values[value.alias]
    # Constants lie in a file that is mapped to be read; inputs belong to the caller, who binds an output there too.
    allowed = {"planned": ("planned",), "output": ("input",)}.get(value.kind, _KINDS - {"constant", "object"})
    require(source.kind in allowed, where, f"a value of kind {value.kind} shares memory with one of kind {source.kind}")
    same = (source.dtype, source.format) == (value.dtype, value.format)
    require(same, where, "shares memory with a value of another type or format", (value.dtype, value.format))
    require(source.memory == value.memory, where, "shares memory with a value that lies elsewhere", value.memory)


# the engine's own tensors


def _verify_tensors(program: ProgramRecord, manifest: Manifest, where: str) -> None:
    """What callers bind by the plan's records is what steps use by the program's."""
    require(len(set(program.outputs)) == len(program.outputs), where, "two outputs are one value")
    inputs = set(program.inputs)
    static = {symbol.name for symbol in program.symbols if symbol.value in inputs}
    ports = (*zip(program.inputs, manifest.inputs, strict=True), *zip(program.outputs, manifest.outputs, strict=True))
    for index, tensor in ports:
        value, place = program.values[index], f"{where}, tensor {show(tensor.name)}"
        same = (value.dtype, value.format, value.type) == (tensor.dtype, tensor.format, tensor.type)
        require(same, place, "is of another type or format than its value", (value.dtype, value.format))
        require(value.memory == tensor.memory, place, "lies in another memory than its value", tensor.memory)
        unknown = check_dims([*(tensor.dims or ()), *(tensor.max_dims or ())], place, nullable=True) - static
        require(not unknown, place, "has a shape that inputs do not decide", sorted(unknown)[:3])
    for index, tensor in zip(program.inputs, manifest.inputs, strict=True):
        place = f"{where}, tensor {show(tensor.name)}"
        is_plain = all(isinstance(dim, Constant | Symbol) for dim in tensor.dims or ())
        require(is_plain, place, "is an input with a dimension that is neither a number nor a symbol", tensor.dims)
        require(program.values[index].dims == tensor.dims, place, "has another shape than its value", tensor.dims)
    _verify_outputs(program, manifest, where)
    _verify_shape_inputs(program, manifest, where)


def _verify_shape_inputs(program: ProgramRecord, manifest: Manifest, where: str) -> None:
    """An input whose contents decide shapes says so: its contents are read when shapes are asked for."""
    shapes = [value.dims or () for value in program.values if value.kind in _SHAPED_KINDS]
    shapes += [dims or () for tensor in manifest.outputs for dims in (tensor.dims, tensor.max_dims)]
    used = frozenset[str]().union(*(check_dims(dims, where, nullable=True) for dims in shapes))
    tensors = dict(zip(program.inputs, manifest.inputs, strict=True))
    for symbol in program.symbols:
        tensor = tensors.get(symbol.value)
        is_read = symbol.source == "element" and symbol.name in used
        require(not is_read or tensor is None or tensor.is_shape, where, "reads an input that is no shape", symbol.name)


def _verify_outputs(program: ProgramRecord, manifest: Manifest, where: str) -> None:
    sources = {tensor.name: index for index, tensor in zip(program.inputs, manifest.inputs, strict=True)}
    for index, tensor in zip(program.outputs, manifest.outputs, strict=True):
        value, place = program.values[index], f"{where}, tensor {show(tensor.name)}"
        is_free = value.kind in ("output", "dynamic", "object")
        require(is_free, place, "is a value of a kind that cannot leave", value.kind)
        shared = value.alias if value.kind == "output" else None
        source = None if tensor.alias is None else sources.get(tensor.alias)
        require(shared == source, place, "shares memory with another input than its value", tensor.alias)
        _verify_told_shape(value, tensor, place)
    for index in set(range(len(program.values))) - set(program.outputs):
        kind = program.values[index].kind
        require(kind != "output", f"{where}, value {index}", "is an output that nobody gets")


def _verify_told_shape(value: ValueRecord, tensor: TensorRecord, where: str) -> None:
    """What callers are told of an output, by which they size their memory, is what a run writes.

    The two records have the same form, not only the same size, because expressions over symbols cannot be compared
    otherwise. What only the run tells is compared with the record when it is handed over.
    """
    if value.kind == "output":
        require(value.dims == tensor.dims, where, "has another shape than its value", tensor.dims)
        require(tensor.max_dims is None, where, "has a known shape and a bound besides", tensor.max_dims)
    for dim, upper in zip(tensor.dims or (), tensor.max_dims or (), strict=False):
        require(dim is None or dim == upper, where, "has a dimension that is not its own bound", (dim, upper))
