"""The sizes that tensors of a program usually have: its shapes for the opt of its profile, or for given inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.errors import UsageError
from dovetail.expr import Constant, Dim, evaluate, symbols_of
from dovetail.plan.manifest import Manifest, ProgramRecord, SymbolRecord, ValueRecord

__all__ = ["UsualSizes", "usual_sizes"]


class UsualSizes:
    """Evaluates shapes of one program.

    Args:
        symbols: What symbols stand for.
    """

    def __init__(self, symbols: Mapping[str, int]) -> None:
        self._symbols = symbols

    def of(self, value: ValueRecord) -> list[int] | None:
        """The sizes of a value; None where one of them is not known."""
        sizes = None if value.dims is None else [self._evaluate(dim) for dim in value.dims]
        known = None if sizes is None else [size for size in sizes if size is not None]
        return known if sizes is not None and known is not None and len(known) == len(sizes) else None

    def _evaluate(self, dim: Dim) -> int | None:
        if isinstance(dim, Constant):
            return dim.value  # nearly all are
        if dim is None or not symbols_of(dim) <= self._symbols.keys():
            return None
        try:
            size = evaluate(dim, self._symbols)
        except UsageError:  # a division by zero: shapes for which the plan has no answer
            return None
        return size if size >= 0 else None


def usual_sizes(manifest: Manifest, profile: int, shapes: Mapping[str, Sequence[int]] | None = None) -> UsualSizes:
    """What the shapes of a program usually are.

    Args:
        manifest: The plan.
        profile: The number of the program.
        shapes: Shapes of inputs to use instead of those that the profile is fast for.
    """
    program = manifest.programs[profile]
    bounds = manifest.profiles[profile] if profile < len(manifest.profiles) else None
    known = {} if bounds is None else {name: opt for name, (_, opt, _) in bounds.shapes.items()}
    contents = {} if bounds is None else {name: opt for name, (_, opt, _) in bounds.values.items()}
    given = {**known, **(shapes or {})}
    names = _input_names(manifest, program)
    found = {each.name: _find(each, names, given if each.source == "dim" else contents) for each in program.symbols}
    return UsualSizes({name: size for name, size in found.items() if size is not None})


def _input_names(manifest: Manifest, program: ProgramRecord) -> dict[int, str]:
    return {number: tensor.name for number, tensor in zip(program.inputs, manifest.inputs, strict=True)}


def _find(symbol: SymbolRecord, names: Mapping[int, str], sizes: Mapping[str, Sequence[int]]) -> int | None:
    known = sizes.get(names.get(symbol.value, ""), ())
    return known[symbol.index] if 0 <= symbol.index < len(known) else None
