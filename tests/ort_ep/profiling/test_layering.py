"""Where a user says which nodes go to which execution provider, Dovetail gets those and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.support import ort_ep
from tests.support.ort_devices import devices_in_ort
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


# rules for a device of ours, which ONNX Runtime does not know by that name


@pytest.fixture
def device_session(registration: str) -> Iterator[Session]:
    """``device_session(model, **ep_options)``: a session on a device of its own, which logs nothing."""

    with devices_in_ort() as (device,):

        def make(model: onnx.ModelProto | Path, options: ort.SessionOptions, **ep_options: str) -> ort.InferenceSession:
            options.add_provider_for_devices([device.ep_device], ep_options)
            source = str(model) if isinstance(model, Path) else model.SerializeToString()
            return ort.InferenceSession(source, options)

        yield make


ROUTES = pytest.mark.parametrize("route", ["compile", "kernels"])


@ROUTES
@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        ("cuda(encoder)", ["Relu"]),
        ("CUDA(=middle, encoder)", ["Relu", "Sqrt"]),
        ("cuda(=encoder)", []),
        ("gpu(decoder)", ["Neg"]),
        ("gpu:0(decoder)", ["Neg"]),
        ("gpu:7(encoder)", []),
        ("accelerator(encoder, decoder)", ["Relu", "Neg"]),
        ("tpu(encoder); cuda(e, m)", ["Sqrt"]),
    ],
)
def test_nodes_that_a_rule_gives_to_the_device_are_taken(
    device_session: Session, rule: str, taken: list[str], route: str, tmp_path: Path
) -> None:
    onnx.save(annotated(), tmp_path / "m.onnx")
    options = layered("session.layer_assignment_settings", rule)
    check(device_session(tmp_path / "m.onnx", options, claim="custom", route=route), taken)


@ROUTES
@pytest.mark.parametrize(("rule", "taken"), [("cuda(first, last)", ["Relu", "Neg"]), ("cuda(mid)", ["Sqrt"])])
def test_by_the_names_of_nodes_too(device_session: Session, rule: str, taken: list[str], route: str) -> None:
    options = layered("session.name_based_layer_assignment", rule)
    check(device_session(two_part_model(), options, claim="custom", route=route), taken)


def test_annotations_of_a_model_from_memory_are_told_to_be_unseen(
    device_session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    options = layered("session.layer_assignment_settings", "cuda(encoder)")
    options.log_severity_level = 2
    check(device_session(annotated(), options, claim="custom"), [])
    assert "annotations of a model from memory cannot be seen here" in capfd.readouterr().err


def test_a_host_is_no_such_device(dovetail_session: Session) -> None:
    options = layered("session.name_based_layer_assignment", "cuda(first); accelerator(last)")
    check(dovetail_session(two_part_model(), options=options, claim="custom"), [])
