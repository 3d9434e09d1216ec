"""Polygraphy as it is on the registry, its commands run unchanged over the module."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

POLYGRAPHY = Path(sysconfig.get_path("scripts")) / "polygraphy"
LOADER = """
import numpy as np

def load_data():
    for seed in range(4):
        yield {"x": np.random.default_rng(seed).normal(size=(1, 8)).astype(np.float32)}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a data loader, and an engine with what Polygraphy saves beside it."""
    path = tmp_path_factory.mktemp("polygraphy")
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="rectify"),
        helper.make_node("Softmax", ["b"], ["y"], name="normalize"),
    ]
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32), "W")
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 8), ("y", 16))
    ]
    graph = helper.make_graph(nodes, "small", ports[:1], ports[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path / "m.onnx")
    (path / "loader.py").write_text(LOADER)
    shapes = "--trt-min-shapes x:[1,8] --trt-opt-shapes x:[4,8] --trt-max-shapes x:[8,8] --input-shapes x:[3,8]"
    saved = "--save-engine e.plan --save-timing-cache t.cache --save-inputs i.json --save-outputs o.json"
    printed = _run(path, f"run m.onnx --trt --onnxrt --validate {shapes} {saved}")
    assert "PASSED | Output: 'y'" in printed
    assert "is valid" in printed
    return path


def _run(folder: Path, command: str) -> str:
    arguments = [sys.executable, "-m", "dovetail_tensorrt", str(POLYGRAPHY), *command.split()]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[-3000:]
    return printed


def test_what_a_run_saves(folder: Path) -> None:
    assert all((folder / name).stat().st_size for name in ("e.plan", "t.cache", "i.json", "o.json"))


def test_an_engine_is_run(folder: Path) -> None:
    assert "PASSED | Runtime" in _run(folder, "run e.plan --trt --model-type engine --input-shapes x:[2,8]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("run m.onnx --trt --fp16 --onnxrt --atol 1e-2 --rtol 1e-2", "PASSED | Output: 'y'"),
        ("run m.onnx --trt --trt-outputs mark all --onnxrt --onnx-outputs mark all", "PASSED | Output: 'a'"),
        ("run m.onnx --trt --int8 --data-loader-script loader.py --onnxrt --atol 0.1", "Passed: 4/4"),
        ("run m.onnx --trt --load-timing-cache t.cache", "PASSED | Runtime"),
        ("run e.plan --trt --model-type engine --load-inputs i.json --load-outputs o.json", "PASSED | Output: 'y'"),
        ("inspect model m.onnx --display-as=trt --show layers attrs", "[Op: LayerType.SOFTMAX]"),
        ("inspect model e.plan --model-type engine --show layers", "TensorRT Engine"),
        ("inspect capability m.onnx", "Graph is fully supported by TensorRT"),
        ("inspect data o.json", "y [dtype=float32, shape=(3, 16)]"),
        ("convert m.onnx -o c.plan", ""),
        ("convert m.onnx --convert-to trt --fp16 -o h.plan", ""),
        ("template trt-network m.onnx -o network.py", ""),
        ("template trt-config -o config.py", ""),
        ("run m.onnx --trt --onnxrt --plugins libnvinfer_plugin.so", "PASSED | Output: 'y'"),
        ("run m.onnx --trt --tensor-dtypes x:float16 y:float16", "y [dtype=float16, shape=(1, 16)]"),
        ("run m.onnx --trt --mark-unfused-tensors-as-debug-tensors", "x [dtype=float32, shape=(1, 8)]}"),
        ("run m.onnx --trt --quantization-flags calibrate_before_fusion", "PASSED | Runtime"),
        ("debug precision m.onnx --fp16 --mode linear --check true", "PASSED | Iteration"),
        ("debug repeat --until 2 --check true", "Passed: 2/2"),
        ("debug build m.onnx --until 1 --check true", "PASSED | Iteration 1"),
    ],
)
def test_a_command(folder: Path, command: str, expected: str) -> None:
    assert expected in _run(folder, command)


@pytest.mark.slow
def test_a_network_from_a_template_is_built(folder: Path) -> None:
    _run(folder, "template trt-network m.onnx -o made.py")
    assert "PASSED | Runtime" in _run(folder, "run made.py --model-type=trt-network-script --trt")


def test_the_api(folder: Path) -> None:
    script = folder / "api.py"
    script.write_text(
        "import numpy as np\n"
        "from polygraphy.backend.trt import CreateConfig, EngineFromNetwork, NetworkFromOnnxPath, Profile, SaveEngine\n"
        "from polygraphy.backend.trt import TrtRunner, engine_from_path\n"
        "profiles = [Profile().add('x', (1, 8), (4, 8), (8, 8))]\n"
        "build = EngineFromNetwork(NetworkFromOnnxPath('m.onnx'), config=CreateConfig(profiles=profiles))\n"
        "with TrtRunner(SaveEngine(build, 'api.plan')):\n"
        "    pass\n"
        "with TrtRunner(engine_from_path('api.plan')) as runner:\n"
        "    outputs = runner.infer({'x': np.ones((3, 8), np.float32)})\n"
        "print('sum', round(float(outputs['y'].sum()), 3))\n"
    )
    arguments = [sys.executable, "-m", "dovetail_tensorrt", str(script)]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert "sum 3.0" in done.stdout, done.stdout + done.stderr


API = """
import numpy as np
import tensorrt as trt
from onnx import TensorProto, helper
from polygraphy.backend.trt import (
    CreateConfig, EngineFromNetwork, Profile, TrtRunner, create_config, create_network, network_from_onnx_bytes,
    network_from_onnx_path,
)
from polygraphy.datatype import DataType
from polygraphy.exception import PolygraphyException

for dtype in trt.DataType.__members__.values():
    assert DataType.to_dtype(DataType.from_dtype(dtype), "tensorrt") == dtype, "numbers are not taken for ONNX's"

ports = [("x", 1, [1, 3]), ("sizes", 7, [2]), ("y", 1, ["n", 3])]
infos = [helper.make_tensor_value_info(*port) for port in ports]
graph = helper.make_graph([helper.make_node("Expand", ["x", "sizes"], ["y"])], "expand", infos[:2], infos[2:])
model = helper.make_model(graph, ir_version=8).SerializeToString()

builder, network, parser = network_from_onnx_bytes(model)
network.mark_debug(network.get_input(0))
network.mark_debug(network.get_input(1))
profiles = [Profile().add("sizes", (1, 3), (2, 3), (4, 3))]
with TrtRunner(EngineFromNetwork((builder, network, parser), CreateConfig(profiles=profiles))) as runner:
    for count in (1, 4):
        found = runner.infer({"x": np.ones((1, 3), np.float32), "sizes": np.array([count, 3])})
        assert found["y"].shape == (count, 3) and found["x"].shape == (1, 3)
        assert found["sizes"].tolist() == [count, 3]

empty = create_network()
assert isinstance(create_config(*empty), trt.IBuilderConfig)
try:
    network_from_onnx_path("m.onnx", flags=[trt.OnnxParserFlag.REPORT_CAPABILITY_DLA], config=CreateConfig())
except PolygraphyException as error:
    print("refused")
"""


def test_shapes_from_values_debug_tensors_and_refusals(folder: Path) -> None:
    (folder / "more.py").write_text(API)
    arguments = [sys.executable, "-m", "dovetail_tensorrt", "more.py"]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "there is no DLA here" in done.stdout
    assert done.stdout.endswith("refused\n")
