"""Small real plans of every kind, and what it takes to change their manifests as somebody with a hex editor would.

A changed manifest gets a right sha256 and the blobs of the old one, so that only the rules of the manifest can refuse
it. ``Target.load`` tells what loading did besides: which creators were asked, which libraries were imported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.plan.container import Blob, PlanFile, digest_blob, plan_bytes
from dovetail.provider.loader import has_provider
from dovetail.testing import host_device
from tests.support.dynamic_plugins import FillPlugin, PositivePlugin
from tests.support.plugins import PlainCreator, ScalePlugin

__all__ = [
    "BUILDER",
    "COMPILER",
    "DEVICE",
    "IMPORTED",
    "TARGETS",
    "Json",
    "Target",
    "attack_device",
    "make_target",
    "target",
]

Json = dict[str, Any]

DEVICE = "attack_device"
"""The provider that one of the plans needs besides the embedded one."""

BUILDER, COMPILER = "attack_builder", "attack_compiler"
"""The providers of the plan "built": one packs weights and gives device code with kernels, one compiles partitions."""

CHOOSER = "attack_chooser"
"""The provider of the plan "carried", which has ways to choose between."""

IMPORTED: list[str] = []
"""A carried library of these plans writes its name here when it is imported."""

LIBRARY = """
from tests.support import attack_plans
from tests.support.plugins import PlainCreator, ScalePlugin

attack_plans.IMPORTED.append(__name__)


class Carried(ScalePlugin):
    def __init__(self, factor=3.0, calls=None):
        super().__init__(factor, calls)
        self.plugin_name = "Carried"


def get_creators():
    return [PlainCreator("Carried", Carried)]
"""


class InPlacePlugin(ScalePlugin, dt.IPluginV3OneBuildV2):
    """Multiplies its input where it lies."""

    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestInPlace"

    def get_aliased_input(self, output_index: int) -> int:
        return 0


class PackedPlugin(ScalePlugin):
    """Takes its tensors in vectors of channels only, so that reformats stand around it."""

    formats = (dt.TensorFormat.CHW32,)

    def __init__(self, factor: float = 1.0, calls: Any = None) -> None:
        super().__init__(factor, calls)
        self.plugin_name = "TestPacked"

    def get_workspace_size(self, inputs: Any, outputs: Any) -> int:
        return 640


PLUGINS: dict[str, Callable[..., Any]] = {
    "TestScale": ScalePlugin,
    "TestInPlace": InPlacePlugin,
    "TestPacked": PackedPlugin,
    "TestFill": FillPlugin,
    "TestPositive": PositivePlugin,
}


@dataclass(frozen=True)
class Target:
    """One real plan, and how to load and run changed copies of it."""

    name: str
    raw: bytes
    inputs: tuple[Any, ...]
    """Arrays to run it with."""
    needs_host_code: bool = False
    manifest: Json = field(default_factory=dict)
    blobs: list[Blob] = field(default_factory=list)

    def changed(self, edit: Callable[[Json], object]) -> bytes:
        """The plan with a manifest that was edited."""
        manifest = copy.deepcopy(self.manifest)
        edit(manifest)
        return self.packed(json.dumps(manifest).encode())

    def with_payload(self, name: str, payload: bytes, edit: Callable[[Json], object] | None = None) -> bytes:
        """The plan with other bytes in a blob of code, their right digest, and perhaps an edited manifest."""
        manifest = copy.deepcopy(self.manifest)
        manifest["blobs"][name].update(shape=[len(payload)], digest=digest_blob(payload, "sha256"))
        if edit is not None:
            edit(manifest)
        changed = Blob(name=name, dtype="U8", shape=(len(payload),), data=payload)
        return self.packed(
            json.dumps(manifest).encode(), [changed if blob.name == name else blob for blob in self.blobs]
        )

    def payload(self, name: str) -> bytes:
        """The bytes of a blob."""
        return bytes(next(blob.data for blob in self.blobs if blob.name == name))

    def packed(self, manifest: bytes, blobs: list[Blob] | None = None) -> bytes:
        """A whole plan file around a manifest."""
        return plan_bytes(manifest, self.blobs if blobs is None else blobs)

    def runtime(self, *, host_code: bool | None = None) -> tuple[dt.Runtime, list[PlainCreator]]:
        """A runtime that has all creators, and the creators, which count what they make."""
        runtime = dt.Runtime()
        runtime.engine_host_code_allowed = self.needs_host_code if host_code is None else host_code
        creators = [PlainCreator(name, make) for name, make in PLUGINS.items()]
        for creator in creators:
            runtime.get_plugin_registry().register_creator(creator, "")
        return runtime, creators

    def arrays(self) -> list[Any]:
        """Fresh copies of the inputs."""
        return [copy.deepcopy(array) for array in self.inputs]


def make_target(name: str, raw: bytes, *inputs: Any, needs_host_code: bool = False) -> Target:
    with PlanFile.from_bytes(raw) as file:
        blobs = [
            Blob(name=info.name, dtype=info.dtype, shape=info.shape, data=bytes(file.blob(info.name)))
            for info in file.blobs.values()
        ]
        return Target(name, raw, inputs, needs_host_code, json.loads(file.manifest), blobs)


def _chain() -> Target:
    """Kernels, a constant, a plugin in place, a packed one between reformats, a shape input, a profile."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 3, 4, 4))
    shape = network.add_input("s", dt.int64, (2,))
    weights = network.add_constant((1, 3, 1, 1), np.full((1, 3, 1, 1), 2, np.float32)).get_output(0)
    total = network.add_elementwise(x, weights, dt.ElementWiseOperation.SUM).get_output(0)
    doubled = network.add_plugin_v3([total], [], InPlacePlugin(2.0)).get_output(0)
    packed = network.add_plugin_v3([doubled], [], PackedPlugin(3.0)).get_output(0)
    softmax = network.add_softmax(packed)
    softmax.axes = 1 << 1
    filled = network.add_plugin_v3([packed], [shape], FillPlugin(1.0)).get_output(0)
    negated = network.add_unary(softmax.get_output(0), dt.UnaryOperation.NEG).get_output(0)
    for tensor, name in ((negated, "y"), (filled, "z")):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    config.set_flag(dt.BuilderFlag.REFIT)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3, 4, 4), (2, 3, 4, 4), (4, 3, 4, 4))
    profile.set_shape_input("s", (1, 1), (2, 3), (8, 8))
    config.add_optimization_profile(profile)
    raw = bytes(builder.build_serialized_network(network, config))
    return make_target("chain", raw, np.ones((2, 3, 4, 4), np.float32), np.array([2, 3], np.int64))


def _open() -> Target:
    """Kernels with attributes of every type, over a shape that nobody bounds."""
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.5])
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=value),
        helper.make_node("Add", ["a", "ones"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Add", ["c", "w"], ["y"]),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 1], [1.0, 2.0, 3.0])
    ports = [
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    ]
    graph = helper.make_graph(nodes, "open", *ports, [weight])
    engine = dt.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), providers=["cpu"])
    return make_target("open", engine.serialize(), np.ones((2, 3), np.float32))


def _narrow() -> Target:
    """A network that was given half precision, with what each layer got and why."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 3], [float(i) for i in range(9)])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "narrow", ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    quiet = dt.Logger(dt.Logger.ERROR)
    engine = dt.compile(model, providers=["cpu"], precision="fp16", logger=quiet)
    return make_target("narrow", engine.serialize(), np.ones((2, 3), np.float32))


def _loop() -> Target:
    """A loop that captures a value and a branch that captures another."""
    floats, ints, bools = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Less", ["i", "limit"], ["going"]),
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Neg", ["next"], ["part"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", ints, []),
            helper.make_tensor_value_info("was", bools, []),
            helper.make_tensor_value_info("state", floats, [3]),
        ],
        [
            helper.make_tensor_value_info("going", bools, []),
            helper.make_tensor_value_info("next", floats, [3]),
            helper.make_tensor_value_info("part", floats, [3]),
        ],
        [helper.make_tensor("limit", ints, [], [6])],
    )
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["last"], [f"{op}_out"])],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", floats, [3])],
        )
        for op in ("Neg", "Identity")
    ]
    nodes = [
        helper.make_node("Loop", ["m", "keep", "x"], ["last", "parts"], body=body),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    ports = [
        [helper.make_tensor_value_info("x", floats, [3]), helper.make_tensor_value_info("m", ints, [])],
        [helper.make_tensor_value_info("y", floats, [3]), helper.make_tensor_value_info("parts", floats, None)],
    ]
    constants = [helper.make_tensor("zero", floats, [], [0.0]), helper.make_tensor("keep", bools, [], [True])]
    graph = helper.make_graph(nodes, "loop", *ports, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return make_target(
        "loop", dt.compile(model, providers=["cpu"]).serialize(), np.ones(3, np.float32), np.array(3, np.int64)
    )


def _sizes() -> Target:
    """A plugin whose output shape only its run tells, and what follows it."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1,))
    layer = network.add_plugin_v3([x], [], PositivePlugin(2.0))
    scaled = network.add_plugin_v3([layer.get_output(0)], [], ScalePlugin(10.0)).get_output(0)
    negated = network.add_unary(scaled, dt.UnaryOperation.NEG).get_output(0)
    for tensor, name in ((layer.get_output(0), "y"), (layer.get_output(1), "count"), (negated, "w")):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (0,), (8,), (32,))
    config.add_optimization_profile(profile)
    raw = bytes(builder.build_serialized_network(network, config))
    return make_target("sizes", raw, np.linspace(-1, 1, 9, dtype=np.float32))


def _library() -> Target:
    """A plugin whose code the plan carries."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "carried_library.py"
        path.write_text(LIBRARY)
        builder = dt.Builder()
        builder.get_plugin_registry().load_library(str(path))
        creator = builder.get_plugin_registry().get_creator("Carried", "1", "")
        network = builder.create_network()
        x = network.add_input("x", dt.float32, (2, 3))
        plugin = creator.create_plugin("carried", dt.PluginFieldCollection([]), dt.TensorRTPhase.BUILD)
        y = network.add_plugin_v3([x], [], plugin).get_output(0)
        y.name = "y"
        network.mark_output(y)
        config = builder.create_builder_config()
        config.providers = ["cpu"]
        config.plugins_to_serialize = [str(path)]
        raw = bytes(builder.build_serialized_network(network, config))
    IMPORTED.clear()
    return make_target("library", raw, np.ones((2, 3), np.float32), needs_host_code=True)


@contextmanager
def attack_device() -> Iterator[None]:
    """Have the devices of the plans ``device`` and ``built`` here, unless they are already."""
    if has_provider(DEVICE):
        yield
        return
    _build_carried()  # while its device is not here
    built: dict[str, Any] = {"has_code": True, "workspace_bytes": 64}
    with (
        host_device(name=DEVICE, ops=["MatMul", "Relu", "Add"]),
        host_device(name=BUILDER, ops=["MatMul"], packs=True, **built),
        host_device(name=COMPILER, ops=["Mul", "Tanh"], compiles=True, **built),
        host_device(name=CHOOSER, **_CHOICES),
    ):
        yield


_CHOICES: dict[str, Any] = {"ops": ["Relu", "Exp"], "compiles": True, "ways": ("slow", "fast"), "has_code": True}


@cache
def _build_carried() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="relu"), helper.make_node("Exp", ["a"], ["y"], name="exp")]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "carried", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    config = _on_host()
    config.candidate_bytes = 1 << 20
    with host_device(name=CHOOSER, is_here=False, **_CHOICES):
        quiet = dt.Logger(dt.Logger.ERROR)
        return dt.compile(
            model, providers=[CHOOSER], config=config, shapes={"x": ((1, 3), (2, 3), (3, 3))}, logger=quiet
        ).serialize()


def _carried() -> Target:
    """A partition with candidates, which a device that was not there is to choose between."""
    return make_target("carried", _build_carried(), np.ones((2, 3), np.float32))


def _device() -> Target:
    """Steps of a device, one of the host between them, a weight on both, and copies, with a profile."""
    return _compile_device("device", _on_host())


def _on_host() -> dt.BuilderConfig:
    """Has inputs and outputs on the host, and so copies to and from the device."""
    config = dt.BuilderConfig()
    config.io_memory = {"x": "host", "y": "host"}
    return config


def _device_io() -> Target:
    """The same with inputs and outputs in the memory of the device."""
    return _compile_device("device_io", dt.BuilderConfig())


def _compile_device(name: str, config: dt.BuilderConfig) -> Target:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("Sub", ["c", "w"], ["d"]),
        helper.make_node("Add", ["d", "b"], ["y"]),
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 3], [float(i) for i in range(9)])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, name, ports[:1], ports[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with attack_device():
        shapes = {"x": ((1, 3, 3), (2, 3, 3), (4, 3, 3))}
        engine = dt.compile(model, providers=[DEVICE, "cpu"], shapes=shapes, config=config)
        return make_target(name, engine.serialize(), np.ones((2, 3, 3), np.float32))


def _built() -> Target:
    """What providers built: a kernel with a packed weight, a partition with a report, device code, and a note."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("Mul", ["b", "v"], ["c"], name="times"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax"),
        helper.make_node("Neg", ["x"], ["unread"], name="dead"),  # a pass removes it, and the plan says so
    ]
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [3, 3], [float(i) for i in range(9)]) for name in "wv"]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "built", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    config = _on_host()
    config.profiling_verbosity = dt.ProfilingVerbosity.DETAILED  # the phases of the build are in it then
    config.set_flag(dt.BuilderFlag.REFIT)
    with attack_device():
        engine = dt.compile(
            model,
            providers=[BUILDER, COMPILER],
            config=config,
            shapes={"x": ((1, 3), (3, 3), (3, 3))},
            logger=dt.Logger(dt.Logger.ERROR),
        )
        return make_target("built", engine.serialize(), np.ones((3, 3), np.float32))


def _objects() -> Target:
    """Sequences, an optional and strings as inputs and outputs, in a loop and in branches, and a string constant."""
    floats, strings = TensorProto.FLOAT, TensorProto.STRING
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(floats, None))
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(floats, None))

    def port(name: str) -> Any:
        return helper.make_value_info(name, sequence)

    body = helper.make_graph(
        [
            helper.make_node("SequenceInsert", ["state", "x"], ["next"]),
            helper.make_node("Identity", ["was"], ["going"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("was", TensorProto.BOOL, []),
            port("state"),
        ],
        [helper.make_tensor_value_info("going", TensorProto.BOOL, []), port("next")],
    )
    then = helper.make_graph([helper.make_node("Identity", ["longer"], ["kept"])], "then", [], [port("kept")])
    other = helper.make_graph([helper.make_node("SequenceEmpty", [], ["none"])], "else", [], [port("none")])
    nodes = [
        helper.make_node("Loop", ["m", "", "s"], ["longer"], body=body),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("If", ["has"], ["y"], then_branch=then, else_branch=other),
        helper.make_node("StringConcat", ["t", "suffix"], ["u"]),
    ]
    ports = [
        port("s"),
        helper.make_value_info("o", optional),
        helper.make_tensor_value_info("t", strings, ["n"]),
        helper.make_tensor_value_info("x", floats, [3]),
    ]
    outputs = [port("y"), helper.make_tensor_value_info("u", strings, ["n"])]
    constants = [
        helper.make_tensor("m", TensorProto.INT64, [], [2]),
        helper.make_tensor("suffix", strings, [1], ["-é".encode()]),
    ]
    graph = helper.make_graph(nodes, "objects", ports, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    engine = dt.compile(model, providers=["cpu"])
    one = np.ones(3, np.float32)
    return make_target("objects", engine.serialize(), [one], one, np.array(["a", "b"], dtype=object), one)


def _weight(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(np.random.default_rng(3).standard_normal(shape, np.float32), name)


def _partitions() -> Target:
    """Two compiled partitions that share a weight, a plugin between them, and two profiles."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("TestScale", ["a"], ["b"], domain="test", factor=2.0, name="scale"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="second"),
        helper.make_node("Relu", ["c"], ["d"], name="relu"),
        helper.make_node("Add", ["d", "bias"], ["y"], name="add"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "partitions", ports[:1], ports[1:], [_weight("w", 20, 20), _weight("bias", 20)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("test", 1)]
    registry = dt.PluginRegistry()
    registry.register_creator(PlainCreator("TestScale", ScalePlugin), "")
    profiles = [{"x": ((1, 20), (2, 20), (4, 20))}, {"x": ((5, 20), (6, 20), (9, 20))}]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    engine = dt.compile(model, registry=registry, profiles=profiles)
    return make_target("partitions", engine.serialize(), np.ones((2, 20), np.float32))


def _whole() -> Target:
    """A model that is one partition, over a shape that nobody bounds."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "whole", ports[:1], ports[1:], [_weight("w", 20, 20)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return make_target("whole", dt.compile(model).serialize(), np.ones((2, 20), np.float32))


def _sequences() -> Target:
    """Partitions that give and take a sequence, with a kernel of another provider between them."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="neg"),
        helper.make_node("SplitToSequence", ["a"], ["s"], axis=0, name="split"),
        helper.make_node("SequenceInsert", ["s", "x"], ["t"], name="insert"),
        helper.make_node("SequenceLength", ["t"], ["length"], name="length"),
        helper.make_node("SequenceAt", ["t", "zero"], ["u"], name="at"),
        helper.make_node("Abs", ["u"], ["y"], name="abs"),
    ]
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
        helper.make_value_info("t", sequence),
        helper.make_tensor_value_info("length", TensorProto.INT64, []),
    ]
    zero = helper.make_tensor("zero", TensorProto.INT64, [], [0])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "sequences", inputs, outputs, [zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    config = dt.BuilderConfig()
    config.layer_providers = {"insert": "cpu"}
    return make_target("sequences", dt.compile(model, config=config).serialize(), np.ones((2, 3), np.float32))


def _mixed() -> Target:
    """Steps of a device with a partition between them, and copies to and from it, over any shape."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"]),
        helper.make_node("Sub", ["b", "w"], ["c"]),
        helper.make_node("Add", ["c", "a"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20, 20]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "mixed", ports[:1], ports[1:], [_weight("w", 20, 20)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    with attack_device():
        engine = dt.compile(model, providers=[DEVICE, "onnxruntime", "cpu"], config=_on_host())
        return make_target("mixed", engine.serialize(), np.ones((2, 20, 20), np.float32))


def _in_place() -> Target:
    """A plugin that updates an input of the engine where it lies, over a shape that nobody bounds."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 4))
    y = network.add_plugin_v3([x], [], InPlacePlugin(3.0)).get_output(0)
    z = network.add_unary(y, dt.UnaryOperation.NEG).get_output(0)
    for tensor, name in ((y, "y"), (z, "z")):
        tensor.name = name
        network.mark_output(tensor)
    config = builder.create_builder_config()
    config.providers = ["cpu"]
    config.set_preview_feature(dt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (64, 4))
    config.add_optimization_profile(profile)
    raw = bytes(builder.build_serialized_network(network, config))
    return make_target("in_place", raw, np.ones((2, 4), np.float32))


_MAKERS: dict[str, Callable[[], Target]] = {
    "partitions": _partitions,
    "whole": _whole,
    "sequences": _sequences,
    "mixed": _mixed,
    "objects": _objects,
    "device": _device,
    "built": _built,
    "carried": _carried,
    "device_io": _device_io,
    "chain": _chain,
    "open": _open,
    "narrow": _narrow,
    "loop": _loop,
    "sizes": _sizes,
    "in_place": _in_place,
    "library": _library,
}
TARGETS = tuple(_MAKERS)


@cache
def target(name: str) -> Target:
    """The plan of that name, built once."""
    return _MAKERS[name]()


def steps_of(manifest: Json) -> Iterator[Json]:
    """All steps of a manifest, bodies included."""
    stack = list(manifest["programs"])
    while stack:
        for step in stack.pop()["steps"]:
            yield step
            stack += step.get("bodies", ())
