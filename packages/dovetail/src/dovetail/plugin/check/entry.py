"""The functions that check a plugin: by its creator, by a function that makes it, or by the place it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dovetail.errors import UsageError
from dovetail.plugin.adapters import class_name
from dovetail.plugin.check.cases.discovery import Wish
from dovetail.plugin.check.cases.problem import Case
from dovetail.plugin.check.driver import CheckedPlugin
from dovetail.plugin.check.host.calls import read_or
from dovetail.plugin.check.host.device_memory import CheckedDevice
from dovetail.plugin.check.isolation.check import check_apart
from dovetail.plugin.check.locate import locate
from dovetail.plugin.check.report import Report
from dovetail.plugin.handle import device_required
from dovetail.types import DataType, Dims

__all__ = ["CALLBACK_TIMEOUT_S", "ShapesLike", "check_creator", "check_path", "check_plugin", "parse_case"]

CALLBACK_TIMEOUT_S: Final = 10.0

ShapesLike = Sequence[str | Sequence[int] | Sequence[Sequence[int]]]
"""Cases: each a text such as "2x3x8x8,2x8", the shapes of all inputs, or the shape of the only input."""


def check_creator(
    creator: Any,
    *,
    fields: Mapping[str, Any] | None = None,
    shapes: ShapesLike | None = None,
    types: Sequence[DataType | str] | None = None,
    shape_inputs: Sequence[Sequence[int]] | None = None,
    strict: bool = False,
    seed: int = 0,
    isolate: bool = True,
    timeout_s: float = CALLBACK_TIMEOUT_S,
    device: CheckedDevice | None = None,
) -> Report:
    """Take a creator's plugin through its whole life against a hostile host and judge it by every rule.

    Args:
        creator: The creator.
        fields: Field values by name; a text is read as the type that the creator declares.
        shapes: Input shapes, one entry a case. The first is tuned for, all together span the profile. Without any the
            checker looks for shapes that the plugin accepts.
        types: The type of each input, or one for all.
        shape_inputs: The values of each shape input.
        strict: Whether to judge by the strict set too.
        seed: Decides the numbers in the inputs.
        isolate: Whether to check in a copy of this process, so that a plugin that hangs or crashes ends as a finding.
            That needs Linux; elsewhere, and with False (for a debugger), the check runs in this process.
        timeout_s: How long a single callback may take, where the check runs in a copy.
        device: A device (``dovetail.tools.plugin_device.PluginDevice``) whose memory and stream the plugin gets, if its
            ``preferred_memory`` asks for one, as in an engine. It must not have been used in this process if the check
            runs in a copy.

    Returns:
        The outcome of every rule. What the plugin does wrong is in there and never raised.

    Raises:
        UsageError: Fields, shapes or types make no sense by themselves.
        PluginError: The library of the creator contains CUDA code, and there is no `device`.
    """
    wish = _make_wish(shapes, types, shape_inputs)

    def make_subject() -> tuple[CheckedPlugin, str]:
        return _subject_of(creator, fields, wish, strict=strict, seed=seed, device=device)

    return check_apart(make_subject, isolate=isolate, timeout_s=timeout_s)


def _subject_of(
    creator: Any, fields: Mapping[str, Any] | None, wish: Wish, *, strict: bool, seed: int, device: CheckedDevice | None
) -> tuple[CheckedPlugin, str]:
    if device is None and getattr(creator, "requires_device", False):
        raise device_required(f"creator of plugin '{read_or(creator, 'name', '')}'")
    subject = CheckedPlugin(creator=creator, fields=fields, wish=wish, strict=strict, seed=seed, device=device)
    name = read_or(creator, "name", None)
    kind = class_name(creator)
    return subject, f"{kind} ('{name}')" if isinstance(name, str) else kind


def check_plugin(
    make_plugin: Callable[[], Any],
    *,
    shapes: ShapesLike | None = None,
    types: Sequence[DataType | str] | None = None,
    shape_inputs: Sequence[Sequence[int]] | None = None,
    strict: bool = False,
    seed: int = 0,
    isolate: bool = True,
    timeout_s: float = CALLBACK_TIMEOUT_S,
    device: CheckedDevice | None = None,
) -> Report:
    """Judge a plugin that has no creator, made new by a function each time; rules about creators do not apply.

    The arguments and the result are those of ``check_creator``.
    """
    if not callable(make_plugin):
        raise UsageError("check_plugin takes a function that makes a new plugin", got=type(make_plugin).__name__)
    wish = _make_wish(shapes, types, shape_inputs)

    def make_subject() -> tuple[CheckedPlugin, str]:
        return _subject_of_function(make_plugin, wish, strict=strict, seed=seed, device=device)

    return check_apart(make_subject, isolate=isolate, timeout_s=timeout_s)


def _subject_of_function(
    make_plugin: Callable[[], Any], wish: Wish, *, strict: bool, seed: int, device: CheckedDevice | None
) -> tuple[CheckedPlugin, str]:
    subject = CheckedPlugin(make_plugin=make_plugin, wish=wish, strict=strict, seed=seed, device=device)
    return subject, getattr(make_plugin, "__name__", type(make_plugin).__name__)


def check_path(
    target: str,
    *,
    fields: Mapping[str, Any] | None = None,
    shapes: ShapesLike | None = None,
    types: Sequence[DataType | str] | None = None,
    shape_inputs: Sequence[Sequence[int]] | None = None,
    strict: bool = False,
    seed: int = 0,
    isolate: bool = True,
    timeout_s: float = CALLBACK_TIMEOUT_S,
    device: CheckedDevice | None = None,
) -> Report:
    """Judge what a file or module holds; importing it runs its code.

    Args:
        target: A path or a module name, and after a colon the creator: its class, its plugin name, or a plugin class
            that can be made without arguments. Without one there must be a single creator.
        fields: As in ``check_creator``, and so are all others.
        shapes: Input shapes.
        types: Input types.
        shape_inputs: The values of shape inputs.
        strict: Whether to judge by the strict set too.
        seed: Decides the numbers in the inputs.
        isolate: Whether to import and check in a copy of this process.
        timeout_s: How long a single callback may take.
        device: A device that the plugin may ask for.
    """
    wish = _make_wish(shapes, types, shape_inputs)

    def make_subject() -> tuple[CheckedPlugin, str]:
        found = locate(target)
        if found.make_plugin is None:
            return _subject_of(found.creator, fields, wish, strict=strict, seed=seed, device=device)
        if fields:
            raise UsageError("fields go to a creator, and the target is a plugin class", where=target)
        return _subject_of_function(found.make_plugin, wish, strict=strict, seed=seed, device=device)

    return check_apart(make_subject, isolate=isolate, timeout_s=timeout_s)


def parse_case(text: str) -> Case:
    """The shapes of all inputs from a text.

    >>> parse_case("2x3x8x8,2x8")
    ((2, 3, 8, 8), (2, 8))
    """
    try:
        return tuple(
            tuple(int(size) for size in part.split("x")) if part.strip("() ") else () for part in text.split(",")
        )
    except ValueError:
        raise UsageError(
            "shapes cannot be read", expected="sizes joined by x, inputs joined by a comma: 2x3x8x8,2x8", got=repr(text)
        ) from None


def _make_wish(
    shapes: ShapesLike | None,
    types: Sequence[DataType | str] | None,
    shape_inputs: Sequence[Sequence[int]] | None,
) -> Wish:
    cases = None if shapes is None else _order_cases([_read_case(entry) for entry in shapes])
    read_types = None if types is None else tuple(_read_type(entry) for entry in types)
    if cases is not None and read_types is not None and len(read_types) not in (1, len(cases[0])):
        raise UsageError(
            "types and shapes do not fit together",
            expected=f"one type, or {len(cases[0])} for as many inputs",
            got=len(read_types),
        )
    values = None if shape_inputs is None else tuple(tuple(int(v) for v in entry) for entry in shape_inputs)
    return Wish(cases=cases, types=read_types, shape_inputs=values)


def _read_case(entry: str | Sequence[int] | Sequence[Sequence[int]]) -> Case:
    if isinstance(entry, str):
        return parse_case(entry)
    if entry and all(isinstance(size, int) for size in entry):
        return (tuple(int(size) for size in entry),)  # type: ignore[arg-type]
    return tuple(tuple(int(size) for size in shape) for shape in entry)  # type: ignore[union-attr]


def _order_cases(cases: list[Case]) -> tuple[Case, ...]:
    """Check that the cases fit together, and put those without elements last: none of them can be tuned for."""
    if not cases:
        raise UsageError("shapes are empty", fix="give at least one case, or leave shapes out")
    if len({tuple(len(shape) for shape in case) for case in cases}) > 1:
        raise UsageError("the cases differ in the number of inputs or of dimensions", got=cases)
    if any(size < 0 or len(shape) > Dims.MAX_DIMS for case in cases for shape in case for size in shape):
        raise UsageError("shapes need concrete sizes of at least 0, and at most 8 dimensions", got=cases)
    ordered = sorted(dict.fromkeys(cases), key=lambda case: any(0 in shape for shape in case))
    if any(0 in shape for shape in ordered[0]):
        raise UsageError("every case has an input without elements", fix="give one case in which all inputs have some")
    return tuple(ordered)


def _read_type(entry: DataType | str) -> DataType:
    if isinstance(entry, DataType):
        return entry
    try:
        return DataType[str(entry).upper()]
    except KeyError:
        raise UsageError(
            "unknown type", expected=", ".join(dtype.name for dtype in DataType), got=repr(entry)
        ) from None
