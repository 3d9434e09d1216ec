"""Names of timings: what was timed, where, and over which tensors, as one line of text that cannot be ambiguous.

A plugin's own ID is only the last part. Before it stand the device, the provider's version, the shapes, types and
formats of all inputs and outputs, and the plugin's name, version and namespace, so an ID need reflect no more than how
the plugin was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dovetail.errors import UsageError

__all__ = ["Shape", "TensorKey", "make_assignment_key", "make_choice_key", "make_key", "make_reformat_key"]

Shape: TypeAlias = Iterable[int] | tuple[Iterable[int], Iterable[int], Iterable[int]]
"""Concrete dimensions, or those of a profile: min, opt, max."""

TensorKey: TypeAlias = tuple[Shape, str, str]
"""Shape, type and format of one tensor."""


def make_key(
    *,
    device: str,
    provider_version: str,
    plugin: tuple[str, str, str],
    timing_cache_id: str,
    io: Sequence[TensorKey],
    tactic: int,
) -> str:
    """The key of one plugin tactic over one combination of formats.

    Args:
        device: Fingerprint of the device that ran it.
        provider_version: Version of the provider that ran it.
        plugin: Name, version and namespace.
        timing_cache_id: The plugin's own part.
        io: All inputs, then all outputs.
        tactic: The tactic's number.

    >>> key = {"device": "cpu-x86_64", "provider_version": "0.1.0", "plugin": ("Pad", "1", "")}
    >>> make_key(**key, timing_cache_id="mode=edge", io=[((1, 3), "FLOAT", "LINEAR")], tactic=2)
    'plugin|cpu-x86_64|0.1.0|1x3:FLOAT:LINEAR|Pad|1||mode=edge|2'
    """
    tensors = ";".join(_format_tensor(*tensor) for tensor in io)
    return _join("plugin", device, provider_version, tensors, *plugin, timing_cache_id, str(int(tactic)))


def make_reformat_key(
    *, device: str, provider_version: str, shape: Shape, source: tuple[str, str], target: tuple[str, str]
) -> str:
    """The key of a change of layout; source and target are type and format.

    >>> make_reformat_key(
    ...     device="cpu", provider_version="1", shape=(8, 4, 4), source=("HALF", "LINEAR"), target=("HALF", "CHW2")
    ... )
    'reformat|cpu|1|8x4x4:HALF:LINEAR|8x4x4:HALF:CHW2'
    """
    return _join("reformat", device, provider_version, _format_tensor(shape, *source), _format_tensor(shape, *target))


def make_choice_key(*, device: str, provider: str, provider_version: str, question: str, candidate: str) -> str:
    r"""The key of one candidate of a provider's question.

    >>> make_choice_key(device="gpu", provider="p", provider_version="2", question="MatMul 4x4|f32", candidate="tile 8")
    'choice|gpu|p|2|MatMul 4x4\\|f32|tile 8'
    """
    return _join("choice", device, provider, provider_version, question, candidate)


def make_assignment_key(*, devices: Sequence[tuple[str, str, str]], options: str, digest: str) -> str:
    """The key of a whole network under one assignment of its nodes.

    Args:
        devices: Provider, fingerprint and version of each device that it uses.
        options: Those of the providers.
        digest: Of everything that is run.

    >>> make_assignment_key(devices=[("cpu", "x86", "1")], options="", digest="ab12")
    'assignment|cpu:x86:1||ab12'
    """
    places = ";".join(":".join(_escape(part, ":;") for part in device) for device in devices)
    return _join("assignment", places, options, digest)


def _format_tensor(shape: Shape, dtype: str, layout: str) -> str:
    parts = list(shape)
    if len(parts) == 3 and not any(hasattr(part, "__index__") for part in parts):
        dims = ",".join(_format_dims(part) for part in parts)  # type: ignore[arg-type]  # a triple of shapes
    else:
        dims = _format_dims(parts)  # type: ignore[arg-type]  # one shape
    return f"{dims}:{_escape(dtype, ':;')}:{_escape(layout, ':;')}"


def _format_dims(dims: Iterable[int]) -> str:
    return "x".join(str(int(dim)) for dim in dims)


def _join(*parts: str) -> str:
    key = "|".join(_escape(part, "|") for part in parts)
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"a timing key is no valid text: {error}", got=ascii(key)[:200]) from error
    return key


def _escape(part: str, separators: str) -> str:
    """The part with a backslash before every separator, so that different parts never give the same key."""
    for character in "\\" + separators:
        part = part.replace(character, "\\" + character)
    return part
