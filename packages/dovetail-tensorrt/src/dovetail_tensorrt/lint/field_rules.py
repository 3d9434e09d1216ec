"""Rules about fields, entry points and builders: memory of fields, typing, aliasing, libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dovetail_tensorrt.lint.facts import CallFacts, ClassFacts, FileFacts, Language, MethodFacts
from dovetail_tensorrt.lint.rules import Place, file_rule

__all__: list[str] = []

_PYTHON_DATA: Final = re.compile(r"[\w.\[\]\"']+\.(?:data|buffer)")
_MEMBER: Final = re.compile(r"(?:this->)?(?:m[A-Z]\w*|m_\w+|\w+_)|\w+->\w+")
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
    for name in ("create_plugin", "deserialize_plugin"):
        method = facts.methods.get(name)
        if method is not None and facts.is_creator:
            yield from _find_kept_python(method, known) if is_python else _find_kept_cpp(method)
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


def _find_kept_cpp(method: MethodFacts) -> Iterator[Place]:
    pointers = {store.target for store in method.stores if store.is_local and _is_field_pointer(store.value)}
    for store in method.stores:
        if not store.is_local and _MEMBER.fullmatch(store.target) and _is_field_pointer(store.value):
            yield Place.in_method(method, store.line, f"'{store.target}' keeps a pointer into a field")
    for call in method.calls:
        kept = [arg for arg in call.args[1:] if arg in pointers] if call.callee == "new" else []
        if kept:
            yield Place.in_method(method, call.line, f"new {call.args[0]} is given '{kept[0]}', a pointer into a field")


def _is_field_pointer(value: str) -> bool:
    """Whether a value is the pointer of a field, and not what lies there."""
    plain = re.sub(r"^(?:static_cast|reinterpret_cast)<[^>]*>\s*\((.*)\)$", r"\1", value.strip())
    return re.fullmatch(r"[\w.\[\]>-]*(?:\.|->)data", plain) is not None


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
