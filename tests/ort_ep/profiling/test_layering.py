"""Where a user says which nodes go to which execution provider, Dovetail gets those and no others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.support import ort_ep
from tests.support.ort_ep_models import feeds, two_part_model

Session = Callable[..., ort.InferenceSession]
pytestmark = [
    pytest.mark.versions,
    pytest.mark.skipif(ort_ep.RUNTIME < (1, 27), reason="nodes are assigned by layer from 1.27 on"),
]


def annotated() -> onnx.ModelProto:
    """The model with a note on its first and its last node."""
    model = two_part_model()
    for node, layer in zip(model.graph.node, ("encoder.0", "middle", "decoder.0"), strict=True):
        node.metadata_props.add(key="layer_ann", value=layer)
    return model


def layered(key: str, rule: str) -> ort.SessionOptions:
    options = ort_ep.session_options(fallback=True, entries={key: rule})
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def check(session: ort.InferenceSession, taken: list[str]) -> None:
    assert ort_ep.assigned(session).get(ort_ep.EP, []) == sorted(taken)
    x = feeds()["x"]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], -np.sqrt(np.maximum(x, 0)), rtol=1e-6)


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        ("CPUExecutionProvider(middle)", ["Relu", "Neg"]),
        ("CPUExecutionProvider(=decoder.0)", ["Relu", "Sqrt"]),
        ("CPUExecutionProvider(encoder, decoder)", ["Sqrt"]),
        (f"{ort_ep.EP}(encoder); CPUExecutionProvider(decoder)", ["Relu", "Sqrt"]),
    ],
)
def test_by_annotation(dovetail_session: Session, rule: str, taken: list[str]) -> None:
    options = layered("session.layer_assignment_settings", rule)
    check(dovetail_session(annotated(), options=options, claim="all", route="kernels"), taken)


@pytest.mark.parametrize(("name", "taken"), [("middle", ["Relu", "Neg"]), ("first", ["Sqrt", "Neg"])])
def test_by_name(dovetail_session: Session, name: str, taken: list[str]) -> None:
    options = layered("session.name_based_layer_assignment", f"CPUExecutionProvider({name})")
    check(dovetail_session(two_part_model(), options=options, claim="all", route="kernels"), taken)


def test_whole_partitions_where_nothing_is_hidden(dovetail_session: Session) -> None:
    options = layered("session.layer_assignment_settings", f"{ort_ep.EP}(encoder, decoder)")
    check(dovetail_session(annotated(), options=options, claim="all"), ["Relu", "Sqrt", "Neg"])


def test_whole_partitions_beside_hidden_nodes_fail_loudly(dovetail_session: Session) -> None:
    """ONNX Runtime cannot fuse nodes of a graph that it shows in part; what matters is that nothing falls back."""
    options = layered("session.layer_assignment_settings", "CPUExecutionProvider(middle)")
    ort_ep.refuse("num_nodes_processed", lambda: dovetail_session(annotated(), options=options, claim="all"))
