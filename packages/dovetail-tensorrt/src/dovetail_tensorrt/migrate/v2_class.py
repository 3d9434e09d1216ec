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
    """A plugin class as it was read."""

    node: cst.ClassDef
    interface: str

    @cached_property
    def methods(self) -> dict[str, cst.FunctionDef]:
        """The methods by name."""
        return {part.name.value: part for part in self.node.body.body if isinstance(part, cst.FunctionDef)}

    @property
    def is_dynamic(self) -> bool:
        """Whether the interface sees whole shapes."""
        return self.interface.startswith("IPluginV2Dynamic")

    @cached_property
    def has_one_output(self) -> bool:
        """Whether the source says that there is one output."""
        return self._assigns("num_outputs", m.Integer("1"))

    @cached_property
    def sets_namespace(self) -> bool:
        """Whether every object has a namespace: from the constructor, the class, or a property."""
        of_self = m.Attribute(value=m.Name("self"), attr=m.Name(_IDENTITY))
        init = self.methods.get("__init__")
        if _IDENTITY in self.methods or (init is not None and m.findall(init, of_self)):
            return True
        of_class = [part for part in self.node.body.body if not isinstance(part, cst.FunctionDef)]
        return any(m.findall(part, m.Name(_IDENTITY)) for part in of_class)

    def _assigns(self, name: str, value: m.BaseExpressionMatchType) -> bool:
        target = m.AssignTarget(m.Name(name) | m.Attribute(attr=m.Name(name)))
        return bool(m.findall(self.node, m.Assign(targets=[m.ZeroOrMore(), target, m.ZeroOrMore()], value=value)))

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

    def _acts(self, name: str) -> bool:
        return not is_trivial(self.methods.get(name)) or (name in self.methods and bool(find_calls(self.node, name)))
