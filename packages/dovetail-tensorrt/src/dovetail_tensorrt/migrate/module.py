"""A source file with V2 plugins made one with V3 plugins: its classes, and what calls them."""

# ruff: noqa: N802 - libcst names its callbacks after the classes of its nodes

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from dovetail.errors import InputError
from dovetail_tensorrt.migrate.classes import migrate_creator, migrate_derived, migrate_plugin
from dovetail_tensorrt.migrate.names import CREATOR, INTERFACES, ApiNames, code_of, find_interface
from dovetail_tensorrt.migrate.notes import MigrationNote, Notebook

__all__ = ["Migration", "migrate_source"]

_RENAMED: Final = {
    "plugin_type": "plugin_name",
    "IPluginCreator": "IPluginCreatorV3One",
    "IPluginV2Layer": "IPluginV3Layer",
    "get_plugin_creator": "get_creator",
    "plugin_creator_list": "all_creators",
    **dict.fromkeys(INTERFACES, "IPluginV3"),
}
_INTERFACE_NAMES: Final = frozenset((*INTERFACES, CREATOR, "IPluginV2Layer"))
_CREATOR_METHODS: Final = frozenset(("create_plugin", "deserialize_plugin"))
_NOT_DECIDED: Final = {
    "PluginCreatorVersion": "V3 creators tell their kind by interface_info",
    "FORMAT_COMBINATION_LIMIT": "set self.format_combination_limit in the plugin instead",
    "get_serialization_size": "V3 stores fields, and asks for no size",
    "deserialize_plugin": "create_plugin(name, fields, TensorRTPhase.RUNTIME) makes a plugin from stored fields now",
}


@dataclass(frozen=True)
class Migration:
    """The new source, the classes that were changed, and what is left to the author."""

    code: str
    plugins: tuple[str, ...]
    creators: tuple[str, ...]
    notes: tuple[MigrationNote, ...]


def migrate_source(source: str, *, where: str = "source") -> Migration:
    """Rewrite every V2 plugin class and V2 creator of a source file to V3; formatting and comments stay.

    Raises:
        InputError: The source is no Python, or has no V2 plugin.
    """
    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise InputError(
            f"this is no Python: {error.message}", where=f"{where}:{error.raw_line}", fix="correct the file first"
        ) from None
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    notes = Notebook(lambda node: positions[node].start.line)
    classes = _ClassMigration(_find_families(module), notes)
    changed = module.visit(classes)
    if not classes.plugins and not classes.creators:
        raise InputError(
            "there is no V2 plugin and no V2 creator in it",
            where=where,
            expected=f"a class that derives from {', '.join(INTERFACES)} or {CREATOR}",
        )
    _note_the_rest(module, notes)
    finished = changed.visit(_References(classes))
    return Migration(finished.code, tuple(classes.plugins), tuple(classes.creators), tuple(notes.sorted()))


def _find_families(module: cst.Module) -> dict[str, list[cst.ClassDef]]:
    """By the name of each V2 plugin class, the class with those that derive from it, each after its base."""
    found = {node.name.value: node for node in m.findall(module, m.ClassDef()) if isinstance(node, cst.ClassDef)}
    families: dict[str, list[cst.ClassDef]] = {}
    for name, node in found.items():
        interface = find_interface(node)
        if interface is not None and interface[0] != CREATOR:
            families[name] = [node, *_find_derived(name, found)]
    return families


def _find_derived(name: str, classes: dict[str, cst.ClassDef]) -> list[cst.ClassDef]:
    direct = [node for node in classes.values() if name in {code_of(base.value) for base in node.bases}]
    return [part for node in direct for part in (node, *_find_derived(node.name.value, classes))]


class _ClassMigration(cst.CSTTransformer):
    """Migrates the classes of a module."""

    def __init__(self, families: dict[str, list[cst.ClassDef]], notes: Notebook) -> None:
        self._families, self._notes = families, notes
        self.plugins: list[str] = []
        self.creators: list[str] = []
        self.prefix = ""
        self.used: set[str] = set()

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        own = {part.name.value for part in node.body.body if isinstance(part, cst.FunctionDef)}
        for base in {code_of(base.value) for base in node.bases} & set(self.creators):
            if not own & _CREATOR_METHODS:
                continue
            self._notes.add(
                node,
                f"class {node.name.value} derives from {base}, which was migrated; its own methods were not",
                "give its create_plugin the phase, and call its deserialize_plugin _deserialize_plugin",
            )
        return False  # what is inside of a class belongs to it

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        found = find_interface(original_node)
        if found is None:
            return self._migrate_derived(original_node)
        interface, self.prefix = found
        names = ApiNames(self.prefix)
        if interface == CREATOR:
            self.creators.append(original_node.name.value)
            migrated = migrate_creator(original_node, names, self._notes)
        else:
            self.plugins.append(original_node.name.value)
            family = self._families[original_node.name.value]
            migrated = migrate_plugin(original_node, interface, family, names, self._notes)
        self.used |= names.used
        return migrated

    def _migrate_derived(self, node: cst.ClassDef) -> cst.ClassDef:
        family = next((family for family in self._families.values() if node in family[1:]), None)
        found = None if family is None else find_interface(family[0])
        if family is None or found is None:
            return node
        names = ApiNames(found[1])
        self.plugins.append(node.name.value)
        migrated = migrate_derived(node, found[0], family, names, self._notes)
        self.used |= names.used
        return migrated


class _References(cst.CSTTransformer):
    """Names, calls and imports in the rest of the module."""

    def __init__(self, classes: _ClassMigration) -> None:
        self._prefix, self._used = classes.prefix, set(classes.used)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False  # names imported one by one are changed together, at the end

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        new = _RENAMED.get(updated_node.value) if updated_node.value in _INTERFACE_NAMES else None
        return updated_node if new is None else cst.Name(new)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        new = _RENAMED.get(updated_node.attr.value)
        return updated_node if new is None else updated_node.with_changes(attr=cst.Name(new))

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        if m.matches(updated_node.target, m.Name("plugin_type")):
            return updated_node.with_changes(target=cst.Name("plugin_name"))
        return updated_node

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if updated_node.name.value == "plugin_type":
            return updated_node.with_changes(name=cst.Name("plugin_name"))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = updated_node.func
        if not isinstance(func, cst.Attribute):
            return updated_node
        method = func.attr.value
        if method == "add_plugin_v2":
            added = _add_shape_inputs(updated_node)
            return added.with_changes(func=func.with_changes(attr=cst.Name("add_plugin_v3")))
        if method == "create_plugin" and len(updated_node.args) == 2:
            return _add_phase(updated_node, f"{self._name('TensorRTPhase')}.BUILD")
        return updated_node

    def _name(self, name: str) -> str:
        self._used.add(name)
        return f"{self._prefix}{name}"

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if self._prefix:
            return updated_node
        imports = _ImportMigration(self._used)
        return updated_node.visit(imports)


def _add_shape_inputs(call: cst.Call) -> cst.Call:
    args = list(call.args)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    empty = cst.Arg(cst.List([]), comma=comma)
    if args and args[0].keyword is not None:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        empty = empty.with_changes(keyword=cst.Name("shape_inputs"), equal=equal)
    return call.with_changes(args=[*args[:1], empty, *args[1:]])


def _add_phase(call: cst.Call, phase: str) -> cst.Call:
    args = list(call.args)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    added = cst.Arg(cst.parse_expression(phase), comma=args[1].comma)
    if args[1].keyword is not None:
        equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
        added = added.with_changes(keyword=cst.Name("phase"), equal=equal)
    first = args[0].comma if isinstance(args[0].comma, cst.Comma) else comma
    return call.with_changes(args=[args[0], args[1].with_changes(comma=first), added])


class _ImportMigration(cst.CSTTransformer):
    """Imports of names one by one: V2 names go, what the new code uses comes."""

    def __init__(self, used: set[str]) -> None:
        self._used = used
        self._is_done = False

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        if isinstance(updated_node.names, cst.ImportStar) or self._is_done:
            return updated_node
        known = [alias.name.value for alias in updated_node.names if isinstance(alias.name, cst.Name)]
        if not {*INTERFACES, CREATOR} & set(known):
            return updated_node
        self._is_done = True
        old = [name for name in known if name not in (*INTERFACES, CREATOR)]
        names = sorted({*old, *self._used}, key=lambda name: (not name.isupper(), name))
        commas = [alias.comma for alias in updated_node.names]
        return updated_node.with_changes(names=_aliases(names, commas))


def _aliases(names: list[str], commas: list[cst.Comma | cst.MaybeSentinel]) -> list[cst.ImportAlias]:
    """Names with the commas that the import had: between them, and after the last."""
    default = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    between = commas[0] if len(commas) > 1 and isinstance(commas[0], cst.Comma) else default
    last = len(names) - 1
    return [
        cst.ImportAlias(cst.Name(name), comma=commas[-1] if index == last else between)
        for index, name in enumerate(names)
    ]


def _note_the_rest(module: cst.Module, notes: Notebook) -> None:
    for name, why in _NOT_DECIDED.items():
        for node in m.findall(module, m.Attribute(attr=m.Name(name))):
            notes.add(node, f"'{code_of(node)}' has no equal in V3", why)
