"""Message classes from descriptions in Python, in a pool of their own.

A client of the protocol in the same process brings messages of the same names. Two in one pool would be an error, so
these are in none that is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["make_messages"]

Fields = Sequence[str]

_SCALARS: Final = ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")


def make_messages(
    package: str, messages: Mapping[str, Fields], enums: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The classes of messages, each described by its fields.

    A field is ``name type number``. ``[type]`` is repeated, ``{type}`` is a map from strings, and ``?`` before the name
    puts the field into the one-of of the message. A message with a dot in its name is nested. The members of an enum
    are numbered from 0.

    >>> made = make_messages("example", {"Point": ("x int64 1", "tags {string} 2"), "Line": ("points [Point] 1",)})
    >>> made["Line"](points=[made["Point"](x=3)]).points[0].x
    3
    """
    file = FileDescriptorProto(name=f"dovetail/{package}.proto", package=package, syntax="proto3")
    enums = enums or {}
    for name, members in enums.items():
        enum = file.enum_type.add(name=name)
        for number, member in enumerate(members):
            enum.value.add(name=member, number=number)
    made: dict[str, DescriptorProto] = {}
    for name, fields in messages.items():
        owner, _, last = name.rpartition(".")
        made[name] = made[owner].nested_type.add(name=last) if owner else file.message_type.add(name=last)
        for field in fields:
            _add_field(made[name], field, f".{package}.{name}", package, enums)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: DescriptorProto, text: str, full_name: str, package: str, enums: Mapping[str, Any]) -> None:
    name, type_, number = text.split()
    field = message.field.add(name=name.lstrip("?"), number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    if type_[0] in "[{":
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if name.startswith("?"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if type_[0] == "{":
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{full_name}.{_add_map_entry(message, field.name, type_[1:-1], package, enums)}"
    else:
        _set_type(field, type_.strip("[]"), package, enums)


def _add_map_entry(message: DescriptorProto, field: str, type_: str, package: str, enums: Mapping[str, Any]) -> str:
    name = "".join(part.capitalize() for part in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
    _set_type(entry.field[0], "string", package, enums)
    _set_type(entry.field[1], type_, package, enums)
    return name


def _set_type(field: FieldDescriptorProto, type_: str, package: str, enums: Mapping[str, Any]) -> None:
    if type_ in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{type_.upper()}")
        return
    field.type = FieldDescriptorProto.TYPE_ENUM if type_ in enums else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{package}.{type_}"
