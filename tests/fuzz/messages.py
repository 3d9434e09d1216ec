"""Changes to protobuf messages that know their structure: any field of any message inside a model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import onnx

__all__ = ["mutate_message"]

_INTS: Final = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    13,
    16,
    64,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**40,
    2**62,
    -(2**31),
    -(2**63),
    2**63 - 1,
)
_FLOATS: Final = (0.0, -1.0, 0.5, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
_TEXTS: Final = (
    "",
    "x",
    "y",
    "a\x1b[2J",
    "\u202e",
    "a\nb",
    "NOTSET",
    "SAME_UPPER",
    "linear",
    "bogus",
    "ai.onnx",
    "x" * 300,
)


def mutate_message(model: onnx.ModelProto, rng: random.Random) -> None:
    """Make one to four changes somewhere in a model."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        owners = [message for message in _walk(model) if _fields(message)]
        owner = rng.choice(owners)
        _change_field(owner, rng.choice(_fields(owner)), owners, rng)


def _walk(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE or field.name in ("doc_string", "metadata_props"):
            continue
        for inner in value if _is_list(value) else [value]:
            yield from _walk(inner)


def _fields(message: Any) -> list[Any]:
    """The fields that are set, twice as likely as all others."""
    skipped = ("doc_string", "metadata_props", "producer_name", "producer_version", "denotation")
    given = [field for field, _ in message.ListFields() if field.name not in skipped]
    others = [field for field in message.DESCRIPTOR.fields if field.name not in skipped]
    return given * 4 + others if given else []


def _is_list(value: Any) -> bool:
    return hasattr(value, "append") or hasattr(value, "add")


def _change_field(owner: Any, field: Any, owners: list[Any], rng: random.Random) -> None:
    value = getattr(owner, field.name)
    if field.type == field.TYPE_MESSAGE:
        _change_messages(owner, field, value, owners, rng)
    elif _is_list(value):
        _change_list(field, value, rng)
    elif rng.random() < 0.15:
        owner.ClearField(field.name)
    else:
        setattr(owner, field.name, _make_scalar(field, value, owners, rng))


def _change_messages(owner: Any, field: Any, value: Any, owners: list[Any], rng: random.Random) -> None:
    alike = [other for other in owners if other.DESCRIPTOR is field.message_type]
    if not _is_list(value):
        if alike and rng.random() < 0.7:
            value.CopyFrom(_copy(rng.choice(alike)))
        else:
            owner.ClearField(field.name)
        return
    messages = [_copy(message) for message in value]
    choice = rng.random()
    if messages and choice < 0.35:
        del messages[rng.randrange(len(messages))]
    elif messages and choice < 0.6:
        messages.append(rng.choice(messages))
    elif alike and len(messages) < 64:
        messages.append(_copy(rng.choice(alike)))
    if rng.random() < 0.2:
        rng.shuffle(messages)
    owner.ClearField(field.name)
    getattr(owner, field.name).extend(messages)


def _copy(message: Any) -> Any:
    """A message of its own: one that holds the other must not be copied into it where it lies."""
    made = type(message)()
    made.ParseFromString(message.SerializeToString())
    return made


def _change_list(field: Any, value: Any, rng: random.Random) -> None:
    choice = rng.random()
    if value and choice < 0.3:
        del value[rng.randrange(len(value))]
    elif value and choice < 0.7:
        position = rng.randrange(len(value))
        value[position] = _make_scalar(field, value[position], [], rng, list(value))
    elif len(value) < 64:
        value.append(_make_scalar(field, value[0] if value else None, [], rng, list(value)))


def _make_scalar(field: Any, old: Any, owners: list[Any], rng: random.Random, near: list[Any] | None = None) -> Any:
    if near and rng.random() < 0.3:
        return rng.choice(near)
    if field.type == field.TYPE_STRING:
        names = [name for owner in owners for name in _names(owner)]
        return rng.choice((*_TEXTS, *names[:200])) if not names or rng.random() < 0.3 else rng.choice(names)
    if field.type == field.TYPE_BYTES:
        data = bytearray(old or b"")
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data) if rng.random() < 0.7 else bytes(data[: len(data) // 2])
    if field.type == field.TYPE_ENUM:
        return rng.choice(list(field.enum_type.values_by_number))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((*_FLOATS, (old or 0.0) * 2))
    return _fit(field, rng.choice((*_INTS, (old or 0) + 1, (old or 0) - 1, -(old or 0))))


def _names(owner: Any) -> list[str]:
    """What a message calls values: names from elsewhere in the model are what references are made of."""
    if isinstance(owner, onnx.NodeProto):
        return [*owner.input, *owner.output, owner.op_type]
    return [owner.name] if isinstance(owner, onnx.ValueInfoProto | onnx.TensorProto | onnx.AttributeProto) else []


def _fit(field: Any, number: int) -> int:
    if field.type == field.TYPE_UINT64:
        return number % 2**64
    bits = 32 if field.type in (field.TYPE_INT32,) else 64
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
