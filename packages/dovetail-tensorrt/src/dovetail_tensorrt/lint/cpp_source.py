"""Facts about plugins in C++ and CUDA sources, read with tree-sitter.

tree-sitter and not libclang: it needs no headers, so a file can be judged where neither TensorRT nor CUDA is installed,
it reads past what it does not know, and it is a hundredth of the size. It knows no types; the rules need none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.errors import ResourceError
from dovetail_tensorrt.lint.comments import find_silenced
from dovetail_tensorrt.lint.facts import (
    BranchFacts,
    CallFacts,
    ClassFacts,
    FileFacts,
    Language,
    MethodFacts,
    ReturnFacts,
    StoreFacts,
    WriteFacts,
    snake_case,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["adopt_definitions", "read_cpp"]

_LAUNCH: Final = re.compile(rb"<<<.*?>>>", re.DOTALL)
_QUALIFIERS: Final = re.compile(rb"\b__(?:global|device|host|forceinline|noinline)__\b")
_INCLUDE: Final = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_CLASSES: Final = ("class_specifier", "struct_specifier")
_LAUNCHERS: Final = ("cudaLaunchKernel", "cudaLaunchKernelEx", "cuLaunchKernel", "cuLaunchKernelEx")


@functools.cache
def _make_parser() -> Parser:
    try:
        import tree_sitter_cpp
        from tree_sitter import Language as Grammar
        from tree_sitter import Parser
    except ModuleNotFoundError as error:
        what = f"C++ sources need the package '{error.name}', which is not installed"
        raise ResourceError(what, fix="pip install 'dovetail-tensorrt[lint]'") from None
    return Parser(Grammar(tree_sitter_cpp.language()))


def read_cpp(path: Path, source: str) -> tuple[FileFacts, dict[str, list[MethodFacts]]]:
    """The facts of one file, and the methods that it defines outside of their classes, by class."""
    reader = _Reader(path, source.encode())
    classes = {facts.name: facts for facts in map(reader.read_class, reader.find(*_CLASSES)) if facts is not None}
    outside: dict[str, list[MethodFacts]] = {}
    functions: dict[str, int] = {}
    for node in reader.find("function_definition"):
        owner, name = reader.name_of(node)
        if owner:
            outside.setdefault(owner, []).append(reader.read_method(name, node))
        elif not _is_inside_class(node):
            functions[name] = _line(node)
    facts = FileFacts(
        path=path,
        language=Language.CPP,
        classes=classes,
        calls=tuple(reader.find_calls(reader.root)),
        modules=frozenset(_INCLUDE.findall(source)),
        silenced=find_silenced(source),
        functions=functions,
    )
    return facts, outside


def adopt_definitions(classes: dict[str, ClassFacts], outside: dict[str, list[MethodFacts]]) -> None:
    """Give classes the methods that are defined outside of them."""
    for owner, methods in outside.items():
        facts = classes.get(owner.rpartition("::")[2])
        for method in methods if facts is not None else []:
            facts.add_method(method)  # type: ignore[union-attr]


def _line(node: Node) -> int:
    return int(node.start_point[0]) + 1


def _is_inside_class(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "field_declaration_list"


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else " ".join(node.text.decode(errors="replace").split())


def _walk(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(current.children))


def _blank(match: re.Match[bytes]) -> bytes:
    """As many spaces, with the ends of lines where they were."""
    return bytes(c if c == 10 else 32 for c in match.group())


class _Reader:
    """One parsed file."""

    def __init__(self, path: Path, source: bytes) -> None:
        # The grammar is that of C++: what CUDA adds to it is blanked, and launches are remembered by where they were.
        plain = _QUALIFIERS.sub(_blank, source)
        self._launches = [match.start() for match in _LAUNCH.finditer(plain)]
        self._path = path
        self.root: Node = _make_parser().parse(_LAUNCH.sub(_blank, plain)).root_node

    def find(self, *types: str) -> Iterator[Node]:
        """The nodes of these types."""
        return (node for node in _walk(self.root) if node.type in types)

    def read_class(self, node: Node) -> ClassFacts | None:
        """The facts of a class that has a body."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return None
        facts = ClassFacts(
            name=_text(name).rpartition("::")[2],
            path=self._path,
            line=_line(node),
            language=Language.CPP,
            bases=tuple(self._bases(node)),
        )
        for part in body.children:
            self._add_member(facts, part)
        return facts

    def _bases(self, node: Node) -> Iterator[str]:
        for clause in node.children:
            if clause.type == "base_class_clause":
                for base in clause.children:
                    if base.type in ("type_identifier", "qualified_identifier", "template_type"):
                        yield _text(base).rpartition("::")[2]

    def _add_member(self, facts: ClassFacts, part: Node) -> None:
        if part.type == "function_definition":
            _, name = self.name_of(part)
            facts.declared.add(self._method_name(name))
            if part.child_by_field_name("body") is not None:  # others are "= default" or "= delete"
                facts.add_method(self.read_method(name, part))
        elif part.type in ("field_declaration", "declaration"):
            for node in _walk(part):
                if node.type == "function_declarator":
                    facts.declared.add(self._method_name(_text(node.child_by_field_name("declarator"))))
                elif node.type == "field_identifier":
                    facts.declared.add(_text(node))
                    facts.members.setdefault(_text(node), _text(part).partition(_text(node))[0])

    def name_of(self, node: Node) -> tuple[str, str]:
        """The class, empty where there is none in the name, and the name that a definition gives."""
        declarator = next((part for part in _walk(node) if part.type == "function_declarator"), None)
        name = "" if declarator is None else _text(declarator.child_by_field_name("declarator"))
        owner, _, last = name.rpartition("::")
        return owner, last

    @staticmethod
    def _method_name(name: str) -> str:
        return "destroy" if name.startswith("~") else snake_case(name)

    def read_method(self, name: str, node: Node) -> MethodFacts:
        """The facts of a method that has a body."""
        return MethodFacts(
            name=self._method_name(name),
            path=self._path,
            line=_line(node),
            params=tuple(self._params(node)),
            calls=tuple(self.find_calls(node)),
            stores=tuple(self._find_stores(node)),
            writes=tuple(self._find_writes(node)),
            returns=tuple(self._find_returns(node)),
            branches=tuple(self._find_branches(node)),
            throws=tuple(_line(part) for part in _walk(node) if part.type == "throw_statement" and not _in_try(part)),
            text=_text(node),
        )

    def _params(self, node: Node) -> Iterator[str]:
        for part in _walk(node):
            if part.type == "parameter_declaration":
                yield next((_text(name) for name in _walk(part) if name.type == "identifier"), "")

    def find_calls(self, node: Node) -> Iterator[CallFacts]:
        """Calls, ``new`` among them; a declaration that makes an object is a call of its type."""
        for part in _walk(node):
            arguments = part.child_by_field_name("arguments")
            if part.type == "call_expression":
                function = part.child_by_field_name("function")
                callee = re.sub(r"\s*<.*", "", _text(function))
                is_launch = callee in _LAUNCHERS or self._is_launched(function, arguments)
                yield CallFacts(callee, self._args(arguments), _line(part), is_launch)
            elif part.type == "new_expression":
                yield CallFacts("new", (_text(part.child_by_field_name("type")), *self._args(arguments)), _line(part))
            elif part.type == "declaration" and part.child_by_field_name("type") is not None:
                yield CallFacts(re.sub(r"\s*<.*", "", _text(part.child_by_field_name("type"))), (), _line(part))

    def _is_launched(self, function: Node | None, arguments: Node | None) -> bool:
        if function is None or arguments is None:
            return False
        return any(function.end_byte <= start < arguments.start_byte for start in self._launches)

    @staticmethod
    def _args(arguments: Node | None) -> tuple[str, ...]:
        return () if arguments is None else tuple(_text(arg) for arg in arguments.named_children)

    def _find_stores(self, node: Node) -> Iterator[StoreFacts]:
        for part in _walk(node):
            if part.type == "assignment_expression":
                left, right = part.child_by_field_name("left"), part.child_by_field_name("right")
                if left is not None and left.type != "subscript_expression":
                    yield StoreFacts(_text(left), _text(right), _line(part))
            elif part.type == "init_declarator":
                name = next((_text(child) for child in _walk(part) if child.type == "identifier"), "")
                kind = "" if part.parent is None else _text(part.parent).partition("=")[0].partition("{")[0]
                value = _text(part.child_by_field_name("value"))
                yield StoreFacts(name, value, _line(part), is_local=True, type=kind.partition(f" {name}")[0])
            elif part.type == "field_initializer":
                target, *values = part.named_children
                yield StoreFacts(_text(target), " ".join(map(_text, values)), _line(part))

    def _find_writes(self, node: Node) -> Iterator[WriteFacts]:
        for part in _walk(node):
            left = part.child_by_field_name("left") if part.type == "assignment_expression" else None
            if left is not None and left.type == "subscript_expression":
                yield WriteFacts(_text(left.child_by_field_name("argument")), _line(part))

    def _find_returns(self, node: Node) -> Iterator[ReturnFacts]:
        for part in _walk(node):
            if part.type == "return_statement" and part.named_children:
                yield ReturnFacts(_text(part.named_children[0]), _line(part))

    def _find_branches(self, node: Node) -> Iterator[BranchFacts]:
        for part in _walk(node):
            if part.type == "if_statement" and part.child_by_field_name("alternative") is not None:
                arms = [part.child_by_field_name("consequence"), part.child_by_field_name("alternative")]
            elif part.type == "switch_statement":
                body = part.child_by_field_name("body")
                arms = [arm for arm in body.children if arm.type == "case_statement"] if body is not None else []
            else:
                continue
            kernels = tuple(self._kernels(arm) for arm in arms if arm is not None)
            yield BranchFacts(_text(part.child_by_field_name("condition")), kernels, _line(part))

    def _kernels(self, node: Node) -> tuple[str, ...]:
        return tuple(call.callee for call in self.find_calls(node) if call.is_launch)


def _in_try(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        if parent.type == "try_statement":
            return True
        parent = parent.parent
    return False
