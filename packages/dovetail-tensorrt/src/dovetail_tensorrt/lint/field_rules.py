"""Rules about fields, entry points and builders: memory of fields, typing, aliasing, libraries."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Final

from dovetail_tensorrt.lint.borrowing import Borrowing
from dovetail_tensorrt.lint.facts import (
    CallFacts,
    ClassFacts,
    FileFacts,
    Language,
    MethodFacts,
    StoreFacts,
    snake_case,
)
from dovetail_tensorrt.lint.rules import Place, file_rule

__all__: list[str] = []

_PYTHON_DATA: Final = re.compile(r"[\w.\[\]\"']+\.(?:data|buffer)")
_MEMBER: Final = re.compile(r"m[A-Z]\w*|[mgs]_\w+|\w+_|[gs][A-Z]\w*")
_COLLECTION: Final = re.compile(
    r"[*&]?\w*(?:fc|[fF]ields?|[cC]ollection)(?:\[[^\]]*\])?|[*&]?\w+->fields(?:\[[^\]]*\])?|name"
)
"""Arguments by which constructors are given fields to read."""
_POINTER: Final = re.compile(r"\*|\bnew\b|make_(?:unique|shared)")
_CONTAINER_CALLS: Final = ("push_back", "emplace_back", "emplace", "insert", "assign", "reset")
_OWNING_MEMBER: Final = re.compile(r"\b(?:string|vector|array|map|set|deque)\b(?!_view)(?!.*(?:\*\s*>|PluginField))")
_PRECISIONS: Final = re.compile(r"(?:\w+(?:\.|::))*BuilderFlag(?:\.|::)k?(?:FP16|BF16)")


@file_rule(
    "L06",
    "memory of a field outlives its call",
    why="what create_plugin is given is the engine's and gone when it returns; what get_fields_to_serialize returns is "
    "read after it has returned",
    fix="copy what is kept in create_plugin; let get_fields_to_serialize refer to members of the plugin",
)
def find_kept_fields(file: FileFacts) -> Iterator[Place]:
    """Pointers into fields that are kept, and fields over variables that end."""
    for facts in file.classes.values():
        yield from _find_kept(facts, file.classes)


def _find_kept(facts: ClassFacts, known: Mapping[str, ClassFacts]) -> Iterator[Place]:
    is_python = facts.language is Language.PYTHON
    for name in ("create_plugin", "deserialize_plugin") if is_python else ():
        method = facts.methods.get(name)
        if method is not None and facts.is_creator:
            yield from _find_kept_python(method, known)
    for method in () if is_python else facts.methods.values():
        yield from _find_kept_cpp(facts, method, known)
    init = facts.methods.get("__init__")
    if init is not None and facts.is_v3 and is_python:
        yield from _find_kept_python(init, known)
    storing = facts.methods.get("get_fields_to_serialize")
    if storing is not None and facts.language is Language.CPP:
        yield from _find_ended(storing)


def _find_kept_python(method: MethodFacts, known: Mapping[str, ClassFacts]) -> Iterator[Place]:
    for store in method.stores:
        if not store.is_local and _PYTHON_DATA.fullmatch(store.value):
            yield Place.in_method(method, store.line, f"'{store.target}' keeps {store.value}")
    for call in method.calls:
        kept = [arg for arg in _kept_arguments(call, known) if _PYTHON_DATA.fullmatch(arg.partition("=")[2] or arg)]
        if kept and call.name[:1].isupper():
            yield Place.in_method(method, call.line, f"{call.callee} is given {kept[0]}, which is not copied")


def _kept_arguments(call: CallFacts, known: Mapping[str, ClassFacts]) -> list[str]:
    """The arguments of a constructor that it keeps as they are: all of them where it was not read."""
    init = known[call.name].methods.get("__init__") if call.name in known else None
    if init is None:
        return list(call.args)
    kept = {store.value for store in init.stores if not store.is_local}
    names = [param for param in init.params if param != "self"]
    named = [(arg.partition("=")[0], arg) for arg in call.args if re.fullmatch(r"\w+=.*", arg)]
    placed = [*zip(names, [arg for arg in call.args if not re.fullmatch(r"\w+=.*", arg)], strict=False), *named]
    return [arg for name, arg in placed if name in kept]


def _find_kept_cpp(facts: ClassFacts, method: MethodFacts, known: Mapping[str, ClassFacts]) -> Iterator[Place]:
    """Find pointers into fields that a method keeps: in members, in globals, or in objects that it creates."""
    borrowing = Borrowing(method)
    if not borrowing.is_used:
        return
    objects = {
        store.target for store in method.stores if store.is_local and not _POINTER.search(store.type + store.value)
    }
    for store in method.stores:
        is_kept = "static" in store.type if store.is_local else _outlives(store.target, objects, known)
        if is_kept and borrowing.borrows(store.value) and not _copies_text(store, facts, known):
            yield Place.in_method(method, store.line, f"'{store.target}' keeps a pointer into a field")
        elif is_kept and store.value == _layer_name_of(method) and _is_pointer_member(store.target, known):
            yield Place.in_method(method, store.line, f"'{store.target}' keeps a pointer to the name of the layer")
    for call in method.calls:
        created = _find_created(call)
        kept = [arg for arg in created[1] if borrowing.borrows(arg)] if created else []
        if created and (_OWNING_MEMBER.search(created[0]) or (created[0] == "object" and len(kept) > 1)):
            continue  # a container of copies, from the begin and the end of a range
        kept = [arg for arg in kept if created and _constructor_keeps(created[0], created[1].index(arg), arg, known)]
        if created and kept:
            yield Place.in_method(method, call.line, f"new {created[0]} is given '{kept[0]}', a pointer into a field")
        elif call.name in _CONTAINER_CALLS and "." in call.callee.replace("->", "."):
            owner = re.sub(r"^this->", "", call.callee).rpartition("->" if "->" in call.callee[4:] else ".")[0]
            is_range = call.name in ("insert", "assign")
            shallow = [arg for arg in call.args if borrowing.borrows(arg) and not re.search(r"\bchar\b|name$", arg)]
            shallow = [arg for arg in shallow if not is_range or re.search(r"fields(?:\s*\+|$)", arg)]
            if shallow and _outlives(owner, objects, known):
                yield Place.in_method(method, call.line, f"'{owner}' keeps a pointer into a field")


def _outlives(target: str, objects: Container[str], known: Mapping[str, ClassFacts]) -> bool:
    """True if a target outlives the method: a member, a global variable, or a part of another object."""
    if re.fullmatch(r"\w+", target):
        return _MEMBER.fullmatch(target) is not None or any(target in facts.members for facts in known.values())
    return re.split(r"\.|->|\[", target)[0] not in objects


def _layer_name_of(method: MethodFacts) -> str | None:
    """The parameter with the name of the layer, which is memory of the engine too."""
    return method.params[0] if method.name in ("create_plugin", "deserialize_plugin") and method.params else None


def _is_pointer_member(target: str, known: Mapping[str, ClassFacts]) -> bool:
    kinds = [facts.members[_member_of(target)] for facts in known.values() if _member_of(target) in facts.members]
    return any("*" in kind or "string_view" in kind for kind in kinds)


def _find_created(call: CallFacts) -> tuple[str, list[str]] | None:
    """The class and the arguments of an object that is created."""
    if call.callee == "new":
        return call.args[0], list(call.args[1:])
    is_made = re.search(r"make_(?:unique|shared)$", call.callee) is not None
    return ("object", list(call.args)) if is_made else None


def _constructor_keeps(name: str, index: int, arg: str, known: Mapping[str, ClassFacts]) -> bool:
    """Whether a constructor keeps an argument; one that was not read keeps pointers to data, and no collection."""
    facts = known.get(name.rpartition("::")[2])
    methods = {} if facts is None else facts.methods
    constructors = [method for key, method in methods.items() if facts and key.split("#")[0] == snake_case(facts.name)]
    fitting = [method for method in constructors if len(method.params) > index]
    if facts is None or not fitting:
        return not re.search(r"\bchar\b", arg) and not _COLLECTION.fullmatch(arg.strip())
    return any(
        re.fullmatch(rf"[({{]?\s*(?:std::move\()?{re.escape(method.params[index])}\)?\s*[)}}]?", store.value)
        and not _OWNING_MEMBER.search(facts.members.get(_member_of(store.target), ""))
        for method in fitting
        for store in method.stores
    )


def _copies_text(store: StoreFacts, facts: ClassFacts, known: Mapping[str, ClassFacts]) -> bool:
    """True if the target of a store owns its value: a string of characters, or a container of values."""
    member = _member_of(store.target)
    types = [found.members[member] for found in (facts, *known.values()) if member in found.members]
    if types:
        return bool(_OWNING_MEMBER.search(types[0]))
    return re.search(r"\bchar\b|(?:\.|->)name$", store.value) is not None


def _member_of(target: str) -> str:
    return re.split(r"\.|->", target)[-1]


def _find_ended(method: MethodFacts) -> Iterator[Place]:
    local = {store.target for store in method.stores if store.is_local}
    for call in method.calls:
        if call.name in ("PluginField", "emplace_back", "push_back"):
            for arg in call.args:
                found = re.search(r"&\s*(\w+)\b|\b(\w+)\.data\(\)", arg)
                name = (found.group(1) or found.group(2)) if found else ""
                if name in local:
                    yield Place.in_method(method, call.line, f"a field refers to '{name}', which ends with the method")


@file_rule(
    "L13",
    "precision flags with V3 plugins",
    why="V3 plugins are meant for strongly typed networks: with the flags they meet fusions that nobody tried, and "
    "version 11 has no such flags",
    fix="create the network with NetworkDefinitionCreationFlag STRONGLY_TYPED and put casts where types change",
)
def find_precision_flags(facts: FileFacts) -> Iterator[Place]:
    """Precision flags that are set in a file with V3 plugins."""
    if not any(found.is_v3 for found in facts.classes.values()) and not _calls(facts, "add_plugin_v3", "addPluginV3"):
        return
    for call in facts.calls:
        if call.name in ("set_flag", "setFlag") and call.args and _PRECISIONS.fullmatch(call.args[0]):
            yield Place(facts.path, call.line, f"{call.callee} sets {call.args[0]}")


@file_rule(
    "L14",
    "aliased outputs and no preview feature",
    why="a build without the feature fails: the output would be uninitialised memory",
    fix="config.set_preview_feature(PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)",
)
def find_missing_preview(facts: FileFacts) -> Iterator[Place]:
    """Builds of a file with aliasing plugins that do not switch the feature on."""
    aliasing = [found for found in facts.classes.values() if found.is_v3 and "get_aliased_input" in found.declared]
    configs = [call for call in facts.calls if call.name in ("create_builder_config", "createBuilderConfig")]
    if aliasing and configs and not any("ALIASED_PLUGIN_IO" in arg for call in facts.calls for arg in call.args):
        yield Place(facts.path, configs[0].line, f"{aliasing[0].name} has get_aliased_input, and the build fails")


@file_rule(
    "L17",
    "the old entry point of a plugin library",
    why="get_plugin_creators is deprecated, and knows V2 creators only",
    fix="offer get_creators (getCreators in C++), which returns creators of every interface",
)
def find_old_entry_point(facts: FileFacts) -> Iterator[Place]:
    """Libraries with the old entry point alone."""
    for old, new in (("getPluginCreators", "getCreators"), ("get_plugin_creators", "get_creators")):
        if old in facts.functions and new not in facts.functions:
            yield Place(facts.path, facts.functions[old], f"there is {old} and no {new}")


def _calls(facts: FileFacts, *names: str) -> bool:
    return any(call.name in names for call in facts.calls)
