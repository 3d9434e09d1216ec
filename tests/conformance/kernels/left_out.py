"""Why a node test of onnx is not held against a kernel: the reasons, and which test has which."""

from __future__ import annotations

import onnx

from tests.conformance.kernels.node_runner import has_graph

__all__ = ["FUNCTION_BODY", "GRAPH", "RANDOM", "SEVERAL_NODES", "TRAINING", "UNREADABLE", "reason_for"]

SEVERAL_NODES = "the model has several nodes, most often the function body of an op"
GRAPH = "the node runs a graph of its own, which is a sub-program and no kernel"
FUNCTION_BODY = "the op has no kernel: its function body is expanded at import"
RANDOM = "the expected values are random draws"
UNREADABLE = "decoding images needs a library that Dovetail does not depend on"
TRAINING = "ai.onnx.preview.training is no inference"


def reason_for(node: onnx.NodeProto, test: str) -> str | None:
    """Why the kernels are not held to a test of this single node, or None."""
    if node.domain == "ai.onnx.preview.training":
        return TRAINING
    if has_graph(node):
        return GRAPH
    if node.op_type == "FlexAttention":
        return FUNCTION_BODY
    if node.op_type == "ImageDecoder":
        return UNREADABLE
    return RANDOM if test.startswith("test_bernoulli") else None
