"""Outputs that get the memory of an input: which are wanted so, which steps write them so, and that all are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx_ir as ir

from dovetail.errors import BuildError, UsageError
from dovetail.near_names import suggest

__all__ = ["check_alias_names", "check_alias_sizes", "check_aliases", "find_slots", "find_wanted_aliases"]

_WHERE: Final = "config.aliases"


def find_wanted_aliases(asked: Mapping[str, str], updates: Mapping[str, str]) -> dict[str, str]:
    """Output -> the input whose memory it is to get: what is asked for, and what layers update besides.

    >>> find_wanted_aliases({"present": "past"}, {"present": "other", "keys": "past_keys", "last": "past"})
    {'keys': 'past_keys', 'present': 'past'}

    Raises:
        UsageError: What is asked for is no mapping of names.
    """
    _check_is_mapping(asked)
    counts = Counter([*updates.values(), *asked.values()])
    alone = {output: source for output, source in updates.items() if output not in asked and counts[source] == 1}
    return {**alone, **asked}


def _check_is_mapping(asked: Any) -> None:
    is_mapping = isinstance(asked, Mapping)
    if not is_mapping or not all(isinstance(name, str) for pair in asked.items() for name in pair):
        raise UsageError(
            "not the names of outputs and inputs",
            where=_WHERE,
            expected="a dict of output -> input, such as {'present': 'past'}",
            got=repr(asked)[:200],
        )


def find_slots(aliases: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> tuple[int, ...]:
    """For each output of a step the position of the input whose memory it gets, or -1.

    >>> find_slots({"present": "past"}, ["x", "past"], ["y", "present"])
    (-1, 1)
    """
    return tuple(inputs.index(aliases[name]) if aliases.get(name) in inputs else -1 for name in outputs)


def check_alias_names(aliases: Mapping[str, str], graph: ir.Graph) -> None:
    """Check that outputs and inputs are of the network and of one type, and that no input is given twice.

    Raises:
        UsageError: They are not.
    """
    outputs, inputs = ({value.name or "": value for value in values} for values in (graph.outputs, graph.inputs))
    for output, source in aliases.items():
        _check_name("output", output, outputs)
        _check_name("input", source, inputs)
        if list(aliases.values()).count(source) > 1:
            raise UsageError(f"two outputs are to get the memory of input '{source}'", where=_WHERE)
        types = (outputs[output].dtype, inputs[source].dtype)
        if types[0] != types[1]:
            raise UsageError(
                f"output '{output}' cannot have the memory of input '{source}'",
                where=_WHERE,
                expected=f"type {types[1]}",
                got=types[0],
            )


def check_alias_sizes(aliases: Mapping[str, str], graph: ir.Graph) -> None:
    """Check that no output has another number of elements than its input, where both are known.

    Raises:
        UsageError: One has.
    """
    values = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    for output, source in aliases.items():
        made, given = values[output].shape, values[source].shape
        if made is not None and given is not None and not _may_fill(made, given):
            raise UsageError(
                f"output '{output}' cannot have the memory of input '{source}'",
                where=_WHERE,
                expected=f"as many elements as {given} has",
                got=made,
            )


def _may_fill(made: ir.Shape, given: ir.Shape) -> bool:
    """Whether two shapes may have equally many elements; only a run tells where different sizes are open."""
    fixed = [math.prod(dim for dim in shape if isinstance(dim, int)) for shape in (made, given)]
    names = [Counter(dim.value for dim in shape if isinstance(dim, ir.SymbolicDim)) for shape in (made, given)]
    return fixed[0] == fixed[1] or names[0] != names[1] or None in names[0]


def _check_name(kind: str, name: str, known: Mapping[str, ir.Value]) -> None:
    if name not in known:
        raise UsageError(
            f"the network has no {kind} '{name}'", where=_WHERE, expected=sorted(known), fix=suggest(name, known)
        )


def check_aliases(aliases: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Check that every output lies where it was asked for.

    Raises:
        BuildError: One does not.
    """
    for output, source in aliases.items():
        if found.get(output) != source:
            raise BuildError(
                f"output '{output}' cannot be written over input '{source}'",
                where=_WHERE,
                expected=f"one step that makes it of '{source}', with nobody reading '{source}' besides, on one device",
                fix="update the cache by one TensorScatter whose result is the output, and read that result elsewhere; "
                "have a plugin say it with get_aliased_input; place both tensors where the step runs with "
                "config.io_memory; or leave the alias out",
            )
