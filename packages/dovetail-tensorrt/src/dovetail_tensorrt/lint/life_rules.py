"""Rules about the lives of objects: clones, contexts, back-pointers, resources, and what V3 no longer calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dovetail_tensorrt.lint.allocations import allocates_on_device
from dovetail_tensorrt.lint.facts import CallFacts, ClassFacts, Language, MethodFacts, StoreFacts
from dovetail_tensorrt.lint.rules import Place, class_rule

__all__: list[str] = []

_LEFTOVERS: Final = {
    "initialize": "initialise in the constructor, configure_plugin or on_shape_change",
    "terminate": "release in the destructor (Python: destroy)",
    "detach_from_context": "release in the destructor (Python: destroy)",
    "serialize": "return fields from get_fields_to_serialize",
    "get_serialization_size": "return fields from get_fields_to_serialize",
    "get_output_dimensions": "return all shapes from get_output_shapes",
    "get_output_datatype": "return all types from get_output_data_types",
    "get_output_data_type": "return all types from get_output_data_types",
    "get_plugin_type": "it is getPluginName now",
    "plugin_type": "it is plugin_name now",
    "execute_async": "it is enqueue now",
    "configure_with_format": "it is configure_plugin now",
    "supports_format": "it is supports_format_combination now",
}
_COPIES: Final = re.compile(r"copy\.(?:copy|deepcopy)\(|__dict__|\(\*this\)|\{\*this\}|vars\(|dataclasses\.replace\(")


@class_rule(
    "L03",
    "device allocation in clone",
    why="clone is called many times in a build, and each time pays for it",
    fix="allocate in configure_plugin or on_shape_change, and release in the destructor (Python: destroy)",
)
def find_clone_allocations(facts: ClassFacts) -> Iterator[Place]:
    """Allocations in ``clone`` and what it calls."""
    for method in facts.find_reached("clone") if facts.is_plugin else ():
        for call in method.calls:
            if allocates_on_device(call, facts.language):
                yield Place.in_method(method, call.line, f"{method.name} calls {call.callee}")


@class_rule(
    "L04",
    "attach_to_context without a clone",
    why="every context needs an object of its own: two that share one overwrite each other's state",
    fix="return a clone: 'return self.clone()', in C++ 'return clone();'",
)
def find_shared_attach(facts: ClassFacts) -> Iterator[Place]:
    """An ``attach_to_context`` that returns the object itself."""
    method = facts.methods.get("attach_to_context") if facts.is_v3 else None
    for returned in method.returns if method is not None else ():
        if returned.value in ("self", "this") or re.fullmatch(r"static_cast<.*>\s*\(this\)", returned.value):
            yield Place.in_method(method, returned.line, f"attach_to_context returns {returned.value}")  # type: ignore[arg-type]


@class_rule(
    "L05",
    "a clone keeps a back-pointer to the original",
    why="the capability of the clone calls into the object that it was copied from, which may be gone",
    fix="make the part anew in the clone, or point it at the clone",
)
def find_back_pointers(facts: ClassFacts) -> Iterator[Place]:
    """Parts that know the object, in a class whose clone copies or shares them."""
    if not facts.is_v3:
        return
    copying = [facts.methods[name] for name in ("clone", "attach_to_context") if name in facts.methods]
    copying += [method for method in facts.methods.values() if _is_copy_constructor(method, facts)]
    for method in facts.methods.values():
        if method in copying:
            continue
        parts = [(store.target, store.line) for store in method.stores if _gives_itself(store)]
        parts += [(call.callee, call.line) for call in method.calls if _is_given_itself(call)]
        for target, line in parts:
            if _is_copied(facts, copying, _part_of(target)):
                name = _part_of(target)
                yield Place.in_method(
                    method, line, f"'{name}' knows the object, and {facts.name}.clone copies it as it is"
                )


def _part_of(target: str) -> str:
    """The member of the object that a target is, or is a part of."""
    return re.split(r"\.|->|\(", re.sub(r"^(?:this->|self\.)", "", target))[0]


def _is_given_itself(call: CallFacts) -> bool:
    """Whether a call of a member's method passes the object: ``mRuntime.setPlugin(this)``."""
    parts = re.split(r"\.|->", re.sub(r"^(?:this->|self\.)", "", call.callee))
    is_setter = len(parts) == 2 and re.match(r"set|bind|attach|init|reset", parts[1]) is not None
    return is_setter and any(re.search(r"^(?:this|self)$|\(\s*this\s*\)", arg) for arg in call.args)


def _is_copied(facts: ClassFacts, copying: Sequence[MethodFacts], part: str) -> bool:
    """Whether a copy gets the part of the original, and is not made known to it."""
    if any(_is_pointed_anew(method, part) for method in copying):
        return False
    clone = facts.methods.get("clone")
    if clone is not None and _COPIES.search(clone.text) and not _is_set_in(clone, part):
        return not _has_copy_constructor(facts) or any(_takes_part(method, part) for method in copying)
    return any(_takes_part(method, part) for method in copying)


def _takes_part(method: MethodFacts, part: str) -> bool:
    """True if a method shares the part with another object, or copies it."""
    word = rf"(?:\w+(?:\.|->))*{re.escape(part)}\b"
    pattern = re.compile(
        rf"^[({{]?\s*(?:\*|copy\.(?:copy|deepcopy)\()?\s*{word}\s*\)?\s*[)}}]?$|[({{]\s*\*\s*{word}\s*[)}}]"
    )
    is_part = (store for store in method.stores if _member_of(store.target) == part)
    return any(pattern.search(store.value) and store.value != "this" for store in is_part)


def _is_pointed_anew(method: MethodFacts, part: str) -> bool:
    """Whether a method makes the part of the new object known to the new object."""
    deep = [store for store in method.stores if re.search(rf"\b{re.escape(part)}(?:\.|->)\w", store.target)]
    calls = [call for call in method.calls if re.search(rf"\b{re.escape(part)}(?:\.|->)\w", call.callee)]
    is_stored = any(re.fullmatch(r"\w+(?:\.get\(\))?", store.value) and store.value != "this" for store in deep)
    is_passed = any(re.fullmatch(r"\w+(?:\.get\(\))?", arg) and arg != "this" for call in calls for arg in call.args)
    own = [store for store in method.stores if _member_of(store.target) == part]
    is_constructor = method.name not in ("clone", "attach_to_context")
    is_remade = is_constructor and any(map(_gives_itself, own))
    return is_stored or is_passed or is_remade or (is_constructor and any(store.value == "this" for store in deep))


def _member_of(target: str) -> str:
    return re.split(r"\.|->", target)[-1]


def _is_copy_constructor(method: MethodFacts, facts: ClassFacts) -> bool:
    name = re.escape(facts.name)
    return (
        re.match(rf"(?:\w+\s+)*(?:{name}::)?{name}\s*\(\s*(?:const\s+{name}|{name}\s+const)\s*&", method.text)
        is not None
    )


def _gives_itself(store: StoreFacts) -> bool:
    if store.is_local:
        return False
    if re.fullmatch(r"\(\s*this\s*\)|\{\s*this\s*\}", store.value):
        return True
    if store.value in ("this", "self") and re.search(
        r"\w(?:\.|->)\w+(?:\.|->)?\w*$", re.sub(r"^(?:this->|self\.)", "", store.target)
    ):
        return True
    return bool(re.search(r"\b[A-Z]\w*(?:<[^>]*>)?[({][^(){}]*\b(?:self|this)\b\s*[,)}]", store.value)) or bool(
        re.search(r"make_(?:unique|shared)\s*<[^>]*>\s*\([^()]*\bthis\b", store.value)
    )


def _is_set_in(method: MethodFacts, target: str) -> bool:
    member = re.split(r"\.|->", target)[-1]
    return any(re.split(r"\.|->", store.target)[-1] == member for store in method.stores)


def _has_copy_constructor(facts: ClassFacts) -> bool:
    if facts.language is not Language.CPP:
        return False
    pattern = re.compile(rf"\b{facts.name}\s*\(\s*(?:const\s+{facts.name}|{facts.name}\s+const)\s*&")
    return any(pattern.search(method.text) for method in facts.methods.values())


@class_rule(
    "L07",
    "a V2 method that V3 never calls",
    why="what it does no longer happens, and nothing says so",
    fix="move what it does to where V3 calls",
)
def find_leftovers(facts: ClassFacts) -> Iterator[Place]:
    """Methods of V2 in a V3 class that does not call them itself."""
    if not facts.is_v3 or facts.is_v2:
        return
    for name, advice in _LEFTOVERS.items():
        method = facts.methods.get(name)
        if method is not None and not facts.calls_itself(name):
            yield Place.in_method(method, method.line, f"{facts.name}.{name} is never called: {advice}")


@class_rule(
    "L12",
    "a clone loses the tactic",
    why="set_tactic is called on the engine's object, and contexts run clones of it",
    fix="carry the member that set_tactic sets over in clone and attach_to_context",
)
def find_lost_tactics(facts: ClassFacts) -> Iterator[Place]:
    """Clones made anew that do not mention what ``set_tactic`` stores."""
    setter, clone = facts.methods.get("set_tactic"), facts.methods.get("clone")
    if not facts.is_v3 or setter is None or clone is None:
        return
    reached = " ".join(method.text for method in facts.find_reached("clone"))
    if _COPIES.search(reached):
        return
    for store in setter.stores:
        member = re.split(r"\.|->", store.target)[-1]
        if not store.is_local and not re.search(rf"\b{re.escape(member)}\b", reached):
            yield Place.in_method(clone, clone.line, f"{facts.name}.clone does not carry '{member}', set by set_tactic")


@class_rule(
    "L15",
    "resources without an end",
    why="what a plugin allocates it must free; objects are made and destroyed many times in a build",
    fix="release it in the destructor (Python: destroy)",
)
def find_unreleased(facts: ClassFacts) -> Iterator[Place]:
    """Allocations outside of runs in a class with nothing that ends it."""
    if not facts.is_v3 or {"destroy", "__del__"} & facts.declared:
        return
    for name in ("configure_plugin", "on_shape_change", "attach_to_context"):
        method = facts.methods.get(name)
        for call in method.calls if method is not None else ():
            if allocates_on_device(call, facts.language) and "malloc" in call.callee.lower():
                yield Place.in_method(method, call.line, f"{name} calls {call.callee}, and nothing frees it")  # type: ignore[arg-type]


@class_rule(
    "L11",
    "a V2 plugin",
    why="version 11 no longer loads V2 plugins",
    fix="derive it from IPluginV3; 'dovetail migrate' rewrites Python files",
)
def find_v2(facts: ClassFacts) -> Iterator[Place]:
    """Classes of the old interfaces."""
    if facts.is_v2 and not facts.is_v3:
        base = next(base for base in facts.bases if base.startswith("IPluginV2"))
        yield Place(facts.path, facts.line, f"{facts.name} derives from {base}")
    elif "IPluginCreator" in facts.bases:
        yield Place(facts.path, facts.line, f"{facts.name} derives from IPluginCreator")
