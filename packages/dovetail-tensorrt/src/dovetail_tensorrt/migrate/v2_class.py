"""What a V2 plugin class has: its methods, and which parts of a V2 life it uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import libcst as cst
import libcst.matchers as m

from dovetail_tensorrt.migrate.edits import find_calls, is_trivial

__all__ = ["V2Class"]

_IDENTITY: Final = "plugin_namespace"


@dataclass(frozen=True)
class V2Class:
    """A plugin class as it was read.

    Attributes:
        node: The class.
        interface: The V2 interface that it, or the class it derives from, derives from.
        family: All classes of the file that derive from one interface class, that class first.
    """

    node: cst.ClassDef
    interface: str
    family: tuple[cst.ClassDef, ...]

    @cached_property
    def methods(self) -> dict[str, cst.FunctionDef]:
        """The methods by name."""
        return _methods_of(self.node)

    def find_in_family(self, name: str) -> list[cst.FunctionDef]:
        """The methods of this name in all classes of the family."""
        found = [_methods_of(node).get(name) for node in self.family]
        return [method for method in found if method is not None]

    @property
    def is_dynamic(self) -> bool:
        """Whether the interface sees whole shapes."""
        return self.interface.startswith("IPluginV2Dynamic")

    @cached_property
    def has_one_output(self) -> bool:
        """Whether the source says, wherever it says how many, that there is one output."""
        target = m.AssignTarget(m.Name("num_outputs") | m.Attribute(attr=m.Name("num_outputs")))
        setting = m.Assign(targets=[m.ZeroOrMore(), target, m.ZeroOrMore()])
        found = [part for node in self.family for part in m.findall(node, setting)]
        return bool(found) and all(m.matches(part, m.Assign(value=m.Integer("1"))) for part in found)

    @cached_property
    def sets_namespace(self) -> bool:
        """Whether every object has a namespace: from the constructor, the class, or a property."""
        of_self = m.Attribute(value=m.Name("self"), attr=m.Name(_IDENTITY))
        init = self.methods.get("__init__")
        if _IDENTITY in self.methods or (init is not None and m.findall(init, of_self)):
            return True
        of_class = [part for part in self.node.body.body if not isinstance(part, cst.FunctionDef)]
        return any(m.findall(part, m.Name(_IDENTITY)) for part in of_class)

    # the parts of a V2 life that V3 has not

    @cached_property
    def initializes(self) -> bool:
        """Whether ``initialize`` or ``terminate`` does something."""
        return self._acts("initialize") or self._acts("terminate")

    @cached_property
    def attaches(self) -> bool:
        """Whether ``attach_to_context`` or ``detach_from_context`` does something."""
        return self._acts("attach_to_context") or self._acts("detach_from_context")

    @property
    def has_phases(self) -> bool:
        """Whether the life of an object has to be tracked."""
        return self.initializes or self.attaches

    @cached_property
    def destroys(self) -> bool:
        """Whether ``destroy`` does something."""
        return self._acts("destroy")

    def _acts(self, name: str) -> bool:
        found = self.find_in_family(name)
        is_called = any(find_calls(node, name) for node in self.family)
        return bool(found) and (is_called or not all(is_trivial(method) for method in found))


def _methods_of(node: cst.ClassDef) -> dict[str, cst.FunctionDef]:
    return {part.name.value: part for part in node.body.body if isinstance(part, cst.FunctionDef)}
