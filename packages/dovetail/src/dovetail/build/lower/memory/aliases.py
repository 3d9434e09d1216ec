"""Outputs that get the memory of an input, as callers ask for it: which steps write them so, and that all are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from dovetail.errors import BuildError, UsageError
from dovetail.near_names import suggest

__all__ = ["check_alias_names", "check_aliases", "find_slots"]

_WHERE = "config.aliases"


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
                "or leave the alias out",
            )
