"""How much of the operator set the kernels serve: node tests by reason, and operators by version."""

from __future__ import annotations

from collections import Counter

import onnx.defs
import pytest

from dovetail.providers.cpu.kernels import load_kernels
from dovetail.providers.cpu.registry import registry
from tests.conformance.kernels import left_out
from tests.conformance.kernels.node_runner import load_models

load_kernels()

COVERED = "one call of a kernel"
COUNTS = {
    COVERED: 1416,
    left_out.SEVERAL_NODES: 422,
    left_out.GRAPH: 21,
    left_out.FUNCTION_BODY: 6,
    left_out.RANDOM: 3,
    left_out.UNREADABLE: 9,
    left_out.TRAINING: 7,
}
"""The node tests of onnx 1.23.2, 1,884 in all."""

OPSETS = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": 5}
OLDEST = 9
"""Models of older opsets are rewritten to this one at import."""

WITHOUT_KERNEL = {
    "If": "a sub-program",
    "Loop": "a sub-program",
    "Scan": "a sub-program",
    "SequenceMap": "its function body is expanded at import",
    "ImageDecoder": left_out.UNREADABLE,
}
"""Operators that no kernel serves -> why."""


def _reason(test: object) -> str:
    nodes = test.model.graph.node  # type: ignore[attr-defined]
    if len(nodes) != 1:
        return left_out.SEVERAL_NODES
    return left_out.reason_for(nodes[0], test.name) or COVERED  # type: ignore[attr-defined]


def test_node_tests_are_counted_by_reason() -> None:
    """``test_node_tests`` runs what is covered, so a count that falls is something lost."""
    if onnx.__version__ != "1.23.2":
        pytest.skip(f"the counts are those of onnx 1.23.2, and this is {onnx.__version__}")
    assert Counter(_reason(test) for test in load_models()) == COUNTS


def _schemas() -> list[onnx.defs.OpSchema]:
    """Every schema that a model of a supported opset can mean."""
    found = {}
    for schema in onnx.defs.get_all_schemas():
        newest = OPSETS.get(schema.domain, 0)
        for opset in range(OLDEST if schema.domain == "" else 1, newest + 1):
            if onnx.defs.has(schema.name, opset, schema.domain):
                meant = onnx.defs.get_schema(schema.name, opset, schema.domain)
                found[meant.domain, meant.name, meant.since_version] = meant
    return list(found.values())


def test_every_operator_has_a_kernel_at_every_version() -> None:
    lacking = {
        f"{schema.domain or 'ai.onnx'}::{schema.name}-{schema.since_version}"
        for schema in _schemas()
        if schema.name not in WITHOUT_KERNEL
        # A deprecated version of an operator is no version of it.
        and not (schema.deprecated and schema.domain == "")
        and registry.find(schema.name, schema.domain, max(schema.since_version, OLDEST if not schema.domain else 1))
        is None
    }
    assert lacking == set()


@pytest.mark.parametrize("op", WITHOUT_KERNEL)
def test_ops_without_kernel_have_none(op: str) -> None:
    assert registry.find(op, "", OPSETS[""]) is None, f"{op} has a kernel now: take it out of the list"
