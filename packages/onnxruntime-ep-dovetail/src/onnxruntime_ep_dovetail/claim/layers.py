"""Nodes that a session's rules give to this execution provider (``session.layer_assignment_settings`` and the like).

ONNX Runtime hides nodes that a rule gives to others. It knows ``cuda(...)`` as the name of one execution provider only,
so a rule of that kind is followed here: its nodes are taken, whatever the option ``claim`` says of them. The same holds
for rules that name the kind of device or this execution provider. ONNX Runtime's interface shows no annotations, so
those are read from the model's file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
import onnx_ir as ir

from onnxruntime_ep_dovetail.abi import LogLevel, OrtRuntime
from onnxruntime_ep_dovetail.device.backends import Backend
from onnxruntime_ep_dovetail.session.options import EP_NAME, EpOptions

__all__ = ["LayerRoute", "LayerRule", "find_annotated", "find_named", "read_annotations", "read_rules", "selects"]

_ANNOTATION: Final = "layer_ann"
_HIDES_NODES: Final = 27
"""The version of ONNX Runtime from which on it follows such rules."""
_ENTRY: Final = re.compile(r"\s*([^();]+?)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True, kw_only=True)
class LayerRule:
    """One text of a rule, and who gets the nodes that have it."""

    device: str
    text: str
    is_exact: bool = False


def read_rules(setting: str) -> list[LayerRule]:
    """The rules of a setting, in order; what is no rule is left to ONNX Runtime, which refuses it.

    >>> [(rule.device, rule.text, rule.is_exact) for rule in read_rules("cuda(encoder, =head); cpu(tail)")]
    [('cuda', 'encoder', False), ('cuda', 'head', True), ('cpu', 'tail', False)]
    """
    entries = [found for entry in setting.split(";") if (found := _ENTRY.fullmatch(entry))]
    texts = [(found[1], text.strip()) for found in entries for text in found[2].split(",")]
    return [
        LayerRule(device=device, text=text.removeprefix("=").strip(), is_exact=text.startswith("="))
        for device, text in texts
        if text.removeprefix("=").strip()
    ]


def selects(rule: LayerRule, backend: Backend) -> bool:
    """Whether a rule names this back end; to ONNX Runtime a device with memory of its own is a GPU."""
    if not backend.is_device:
        return rule.device == EP_NAME
    names = {"accelerator", "cuda", "gpu", f"gpu:{backend.provider.device.ordinal}"}
    return rule.device == EP_NAME or rule.device.lower() in names


def find_annotated(
    nodes: Iterable[ir.Node], annotations: Mapping[str, str], rules: Sequence[LayerRule], backend: Backend
) -> set[ir.Node]:
    """The nodes whose annotation a rule for this back end begins with, or is."""
    return {node for node in nodes if _is_given(_annotation_of(node, annotations), rules, backend, str.startswith)}


def find_named(nodes: Iterable[ir.Node], rules: Sequence[LayerRule], backend: Backend) -> set[ir.Node]:
    """The nodes whose name has the text of a rule for this back end in it."""
    return {node for node in nodes if _is_given(node.name or "", rules, backend, str.__contains__)}


def _is_given(text: str, rules: Sequence[LayerRule], backend: Backend, matches: Callable[[str, str], bool]) -> bool:
    first = next((rule for rule in rules if (text == rule.text if rule.is_exact else matches(text, rule.text))), None)
    return bool(text) and first is not None and selects(first, backend)


def _annotation_of(node: ir.Node, annotations: Mapping[str, str]) -> str:
    names = [node.name, *(value.name for value in node.outputs)]
    return next((annotations[name] for name in names if name and name in annotations), "")


class LayerRoute:
    """The part of the execution provider that follows such rules; it can find the path of a model."""

    runtime: OrtRuntime
    logger: int
    backend: Backend
    options: EpOptions
    model_path: Callable[[int], str]

    def start_layers(self) -> None:
        """Get ready, before graphs are shown."""
        self._reported: set[str] = set()
        self._rules, self._name_rules = read_rules(self.options.layer_rules), read_rules(self.options.name_rules)
        self._annotations: dict[str, str] | None = None

    def report(self, text: str) -> None:
        """Warn in the session's log, once: ONNX Runtime asks for the same nodes several times."""
        if text not in self._reported:
            self._reported.add(text)
            self.runtime.log(LogLevel.WARNING, text, self.logger)

    def note_layers(self, graph: int) -> None:
        """Read the annotations of a graph's model, where a rule for this back end needs them."""
        if (self._rules or self._name_rules) and self.runtime.version < _HIDES_NODES:
            self.report(f"ONNX Runtime assigns nodes by rules from 1.{_HIDES_NODES} on; here only ours are followed")
        if self._annotations is not None or not any(selects(rule, self.backend) for rule in self._rules):
            return
        path = self.model_path(graph)
        if not path:
            self.report(
                "annotations of a model from memory cannot be seen here: session.layer_assignment_settings has no node "
                "taken that the option claim leaves; session.name_based_layer_assignment does"
            )
        self._annotations = read_annotations(Path(path)) if path else {}

    def find_given(self, nodes: Sequence[ir.Node]) -> set[ir.Node]:
        """The nodes that rules give to this back end."""
        annotated = find_annotated(nodes, self._annotations or {}, self._rules, self.backend)
        return annotated | find_named(nodes, self._name_rules, self.backend)


def read_annotations(path: Path) -> dict[str, str]:
    """What the nodes of a model's file are annotated with, by their names and by those of what they make."""
    found: dict[str, str] = {}
    for node in onnx.load(path, load_external_data=False).graph.node:
        note = next((one.value for one in node.metadata_props if one.key == _ANNOTATION), "")
        if note:
            found |= dict.fromkeys((name for name in (node.name, *node.output) if name), note)
    return found
