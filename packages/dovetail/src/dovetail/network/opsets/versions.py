"""Does an operator mean the same at two versions of its operator set?

Most versions of an operator only allow more types, or add something optional whose default is the old behaviour. A node
may then move between the versions as it is. Where the schema cannot tell, because the meaning changed and the form did
not, the operator is listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import onnx
import onnx_ir as ir

from dovetail.network.onnx_schema import find_schema

__all__ = ["changes_in_silence", "find_changed", "has_same_meaning", "schema_versions"]

_OPTION: Final[Any] = onnx.defs.OpSchema.FormalParameterOption

_NEW_MEANING: Final[Mapping[str, frozenset[int]]] = {
    "GroupNormalization": frozenset((21,)),  # scale and bias: one each group, then one each channel
    "PRelu": frozenset((7,)),  # a vector of slopes belonged to the channels, then to the last dimension
    "Resize": frozenset((11,)),  # coordinates were asymmetric, now half_pixel unless it is said
    "RoiAlign": frozenset((16,)),  # coordinates were output_half_pixel, now half_pixel unless it is said
    "Scan": frozenset((9,)),  # it ran over batches
    "Upsample": frozenset((11,)),  # it is Resize since 10, with the change of 11
}
"""Versions of ONNX operators from which on a node of the same form means something else."""


@lru_cache(maxsize=2048)
def schema_versions(op: str, domain: str) -> tuple[int, ...]:
    """The versions of an operator set in which an ONNX operator changed, oldest first.

    >>> schema_versions("Relu", "")
    (1, 6, 13, 14)
    """
    return _version_table().get((domain, op), ())


@lru_cache(maxsize=1)
def _version_table() -> dict[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}


def find_changed(nodes: Iterable[ir.Node], domain: str, source: int, target: int) -> list[ir.Node]:
    """The nodes of a domain that mean something else, or nothing, at another version of its operator set."""
    return [node for node in nodes if node.domain == domain and not has_same_meaning(node, source, target)]


def has_same_meaning(node: ir.Node, source: int, target: int) -> bool:
    """Whether a node of one version of its operator set can stand in a model of another as it is."""
    if source == target:
        return True
    schema = find_schema(node.op_type, node.domain, target)
    if schema is None:
        return find_schema(node.op_type, node.domain, source) is None  # a plugin or a function, whatever the version
    if not _is_steady(node.op_type, node.domain, min(source, target), max(source, target)):
        return False
    fits: bool = len(node.inputs) <= schema.max_input and len(node.outputs) <= schema.max_output
    return fits and node.attributes.keys() <= schema.attributes.keys()


def changes_in_silence(op: str, source: int, target: int) -> bool:
    """Whether a node of an ONNX operator means something else at a later version in the same form.

    ONNX's converter leaves such nodes as they are, so it must not get them.
    """
    return any(source < version <= target for version in _NEW_MEANING.get(op, ()))


@lru_cache(maxsize=4096)
def _is_steady(op: str, domain: str, low: int, high: int) -> bool:
    """Whether an operator only grew between two versions."""
    first = find_schema(op, domain, low)
    if first is None or first.deprecated:
        return False
    changes = [version for version in schema_versions(op, domain) if first.since_version < version <= high]
    if not domain and any(version in _NEW_MEANING.get(op, ()) for version in changes):
        return False
    steps = [first, *(onnx.defs.get_schema(op, version, domain) for version in changes)]
    return all(_has_grown(old, new) for old, new in pairwise(steps))


def _has_grown(old: Any, new: Any) -> bool:
    return (
        not new.deprecated
        and _are_kept(old.inputs, new.inputs)
        and _are_kept(old.outputs, new.outputs)
        and _attributes_are_kept(old.attributes, new.attributes)
    )


def _are_kept(old: Any, new: Any) -> bool:
    """Whether parameters stay in their places, and all that were added may be left out."""
    if len(old) > len(new) or any(formal.option == _OPTION.Single for formal in new[len(old) :]):
        return False
    pairs = zip(old, new, strict=False)
    return all(
        first.option in (second.option, _OPTION.Single) and first.types <= second.types for first, second in pairs
    )


def _attributes_are_kept(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if any(attribute.required for name, attribute in new.items() if name not in old):
        return False
    return all(name in new and _form(attribute) == _form(new[name]) for name, attribute in old.items())


def _form(attribute: Any) -> tuple[Any, ...]:
    return attribute.type, attribute.required, attribute.default_value.SerializeToString()
