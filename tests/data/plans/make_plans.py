"""Makes the stored plans of the current version: ``python tests/data/plans/make_plans.py``.

Run it once a release, with the release's own code, and add the folder that it writes. A folder that is there is left
alone, because later versions must read what a version wrote, not what it would write today; while a version is under
development, ``--force`` makes its folder anew. Each plan has a file of the same name with inputs and expected outputs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.build.builder import Builder
from dovetail.build.config import BuilderConfig, BuilderFlag, ProfilingVerbosity
from dovetail.network.importer.importer import import_model
from dovetail.plan.container import write_plan
from dovetail.plan.manifest import DeviceRecord, encode_manifest

FOLDER = Path(__file__).parent
OPSET = 17
LIBRARY = '''\
"""A custom layer with two tactics, to be carried in a plan."""

import numpy as np

from dovetail import layer


@layer("stored::leaky", tactics=("where", "maximum"))
def leaky(x, *, alpha: float = 0.1, tactic: str = "where"):
    slope = x.dtype.type(alpha)
    return np.where(x > 0, x, x * slope) if tactic == "where" else np.maximum(x, x * slope)
'''

Shape = Sequence[int | str]
Arrays = Mapping[str, np.ndarray[Any, Any]]


def main() -> None:
    """Make the plans of this version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="replace the plans of this version")
    target = FOLDER / dovetail.__version__
    if target.exists() and not parser.parse_args().force:
        raise SystemExit(f"{target} is there: stored plans are kept as their version wrote them")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    make_perceptron(target)
    make_convolution(target)
    make_branch(target)
    make_carried(target)
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:7} {path.relative_to(FOLDER)}")


def make_perceptron(target: Path) -> None:
    """Two profiles over a dynamic batch; weights that can be refitted."""
    rng = np.random.default_rng(1)
    weights = {
        "w0": rng.standard_normal((4, 8)).astype(np.float32),
        "b0": rng.standard_normal(8).astype(np.float32),
        "w1": rng.standard_normal((8, 3)).astype(np.float16),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="hidden"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Cast", ["r"], ["c"], name="half", to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["c", "w1"], ["y"], name="last"),
    ]
    model = _model(nodes, {"x": ["n", 4]}, {"y": (TensorProto.FLOAT16, ["n", 3])}, weights)
    config = BuilderConfig()
    config.set_flag(BuilderFlag.REFIT)
    config.add_optimization_profile(dovetail.profile_from_shapes({"x": ((1, 4), (2, 4), (4, 4))}))
    config.add_optimization_profile(dovetail.profile_from_shapes({"x": ((5, 4), (8, 4), (16, 4))}))
    x = rng.standard_normal((3, 4)).astype(np.float32)
    hidden = np.maximum(x @ weights["w0"] + weights["b0"], 0).astype(np.float16)
    _store(target / "perceptron.plan", model, config, {"x": x}, {"y": hidden @ weights["w1"]})


def make_convolution(target: Path) -> None:
    """An open engine with an operator that has attributes of several kinds."""
    weight = np.array([[[[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]]], np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="laplace", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("LeakyRelu", ["c"], ["l"], name="leaky", alpha=0.25),
        helper.make_node("ReduceMean", ["l"], ["y"], name="mean", axes=[2, 3], keepdims=0),
    ]
    model = _model(nodes, {"x": ["n", 1, "h", "w"]}, {"y": (TensorProto.FLOAT, ["n", 1])}, {"w": weight})
    x = np.arange(2 * 5 * 6, dtype=np.float32).reshape(2, 1, 5, 6) % 7
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    ring = padded[..., :-2, 1:-1] + padded[..., 2:, 1:-1] + padded[..., 1:-1, :-2] + padded[..., 1:-1, 2:]
    laplace = ring - 4 * x
    expected = np.where(laplace > 0, laplace, 0.25 * laplace).mean((2, 3))
    _store(target / "convolution.plan", model, BuilderConfig(), {"x": x}, {"y": expected.astype(np.float32)})


def make_branch(target: Path) -> None:
    """Control flow: a conditional whose branches use a value from outside."""
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Exp")):
        output = helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], ["z"], name=op.lower())], name, [], [output])
    node = helper.make_node("If", ["p"], ["y"], name="branch", **branches)
    graph = helper.make_graph(
        [node],
        "branch",
        [
            helper.make_tensor_value_info("p", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    x = np.array([0.0, 1.0, -2.0], np.float32)
    _store(target / "branch.plan", model, BuilderConfig(), {"p": np.array(True), "x": x}, {"y": -x})


def make_carried(target: Path) -> None:
    """A plugin with a field and two tactics, whose library travels in the plan."""
    node = helper.make_node("leaky", ["x"], ["y"], name="custom", domain="stored", plugin_namespace="stored", alpha=0.5)
    model = _model([node], {"x": [2, 3]}, {"y": (TensorProto.FLOAT, [2, 3])}, {})
    model.opset_import.append(helper.make_opsetid("stored", 1))
    x = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "stored_layers.py")
        library.write_text(LIBRARY, encoding="utf-8")
        config = BuilderConfig()
        config.plugins_to_serialize = [library]
        config.profiling_verbosity = ProfilingVerbosity.DETAILED
        expected = np.where(x > 0, x, x / 2)
        _store(target / "carried.plan", model, config, {"x": x}, {"y": expected}, libraries=[library])


def _model(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, Shape], outputs: Mapping[str, tuple[int, Shape]], weights: Arrays
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "stored",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _store(
    path: Path,
    model: onnx.ModelProto,
    config: BuilderConfig,
    inputs: Arrays,
    outputs: Arrays,
    *,
    libraries: Sequence[Path] = (),
) -> None:
    """Build and write the plan and its arrays; the device is nobody's, so that every machine sees the same file."""
    builder = Builder()
    for library in libraries:
        builder.get_plugin_registry().load_library(library)
    imported = import_model(model, registry=builder.get_plugin_registry())
    config.providers = ["cpu"]  # the one provider that every version has
    plan = builder.build_plan(imported, config, is_open=not config.profiles)
    device = plan.manifest.devices[0]
    stored = DeviceRecord(provider=device.provider, name="stored plan", fingerprint="0" * 16, version=device.version)
    manifest = msgspec.structs.replace(plan.manifest, devices=[stored])
    write_plan(path, encode_manifest(manifest), plan.blobs)
    arrays = {f"in:{name}": array for name, array in inputs.items()}
    arrays |= {f"out:{name}": array for name, array in outputs.items()}
    np.savez_compressed(path.with_suffix(".npz"), allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
