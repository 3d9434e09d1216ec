"""Models to damage, and ways to damage them; every mutation is named by a number, and the same number gives the same.

Run as a program it imports all of them in one process and prints what happened as JSON, so that a crash, an error of a
class that is not ours, memory without bounds or a file opened outside shows as such in the test that started it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper, parser

import dovetail

__all__ = ["COUNT", "make_mutation"]

COUNT: Final = 720
_BUDGET_BYTES: Final = 1 << 30
_SLOW_SECONDS: Final = 20.0

_TEXTS: Final = (
    """<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>
    agraph (float[N,4] x, bool c) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}, int64[2] s = {0, -1}> {
        a = Mul(x, w) b = acme.Twice<k = 0.5>(a) r = Reshape<allowzero = 0>(b, s)
        y = If (c) <then_branch = t () => (float[N,4] p) { p = Add(r, w) },
                    else_branch = e () => (float[N,4] q) { q = LeakyRelu<alpha = 0.5>(r) }> }
    <domain: "acme", opset_import: ["" : 21]> Twice <k> (a) => (r) { t = LeakyRelu<alpha = @k>(a) r = Add(t, a) }""",
    """<ir_version: 3, opset_import: ["" : 5]>
    agraph (float[2,3,8,8] x) => (float[2,4,1,1] y) <float[4,3,3,3] w = {1}, float[4] b = {1, 2, 3, 4}> {
        c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
        d = Add<broadcast = 1, axis = 1>(c, b) e = Relu<consumed_inputs = [0]>(d)
        f = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(e) y = GlobalAveragePool(f) }""",
    """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    agraph (float[N,6] x, float[6] g) => (float[N,6] y, int64[M] i) {
        a = LayerNormalization<axis = -1>(x, g, g) b = com.microsoft.FastGelu(a)
        v, i2 = TopK<axis = -1>(b, k) i = Shape(i2) s = Slice(b, k, k, k) y = Softmax(b) }""",
    """<ir_version: 10, opset_import: ["" : 21]>
    agraph (float[N] x, int64 n, bool c) => (float[N] y, float z) {
        y, z = Loop (n, c, x) <body = b (int64 i, bool k, float[N] v) => (bool k2, float[N] v2, float[N] o) {
            k2 = Identity(k) v2 = Add(v, v) o = Neg(v2) }> }""",
    """<ir_version: 10, opset_import: ["" : 18]>
    agraph (float[1,2,6,6] x) => (float y) <float[4] s = {1, 1, 2, 2}, int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> {
        a = Pad(x, p) b = Resize<mode = "linear">(a, "", s) t = Transpose<perm = [0, 2, 3, 1]>(b)
        u = Gather<axis = 3>(t, g) y = ReduceMean<keepdims = 0>(u) }""",
)


def _base(index: int) -> onnx.ModelProto:
    model = parser.parse_model(_TEXTS[index])
    chance = np.random.default_rng(index)
    if index == 1:
        array = chance.normal(size=(4, 3, 3, 3)).astype(np.float32)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "w"))
    if index == 2:
        model.graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), "k"))
    if index == 3:
        array = chance.normal(size=(40, 500)).astype(np.float32)  # large enough to stay in the file
        model.graph.initializer.append(numpy_helper.from_array(array, "large"))
    if index == 4:
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, -1], np.int64), "g"))
    return model


# damage to bytes


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_extreme(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF))


def _insert_varint(data: bytearray, chance: random.Random) -> None:
    position = chance.randrange(len(data))
    data[position : position + 1] = chance.choice(
        (b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\xff\xff\xff\xff\x07", b"\x00")
    )


def _move(data: bytearray, chance: random.Random) -> None:
    low, high = sorted(chance.sample(range(len(data)), 2))
    piece = data[low:high]
    if chance.random() < 0.5:
        del data[low:high]
    position = chance.randrange(len(data) + 1)
    data[position:position] = piece


_BYTES: Final = (_cut, _flip, _flip, _set_extreme, _insert_varint, _move)


# damage to structure


def _node(model: onnx.ModelProto, chance: random.Random) -> onnx.NodeProto:
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for node in list(nodes):
        for attribute in node.attribute:
            nodes += attribute.g.node
    return chance.choice(nodes)


def _double_name(model: onnx.ModelProto, chance: random.Random) -> None:
    first, second = chance.choices(list(model.graph.node), k=2)
    second.output[0] = first.output[0] if chance.random() < 0.7 else model.graph.input[0].name


def _make_cycle(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(list(model.graph.node))
    if node.input:
        node.input[0] = chance.choice(list(model.graph.node)).output[0]
    else:
        node.input.append(node.output[0])


def _dangle(model: onnx.ModelProto, chance: random.Random) -> None:
    node = _node(model, chance)
    names = ["", "nowhere", "\x1b[2J", "x" * 5000, "\u202e", "a\nb"]
    if node.input and chance.random() < 0.7:
        node.input[chance.randrange(len(node.input))] = chance.choice(names)
    else:
        model.graph.output[0].name = chance.choice(names)


def _absurd_dims(model: onnx.ModelProto, chance: random.Random) -> None:
    sizes = [-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
    if model.graph.initializer and chance.random() < 0.5:
        tensor = chance.choice(list(model.graph.initializer))
        del tensor.dims[:]
        tensor.dims.extend(chance.choices(sizes, k=chance.randrange(5)))
        return
    info = chance.choice([*model.graph.input, *model.graph.output])
    for _ in range(chance.choice((1, 2, 30))):
        info.type.tensor_type.shape.dim.add(dim_value=chance.choice(sizes))


def _absurd_attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    node = _node(model, chance)
    numbers = [0, -1, 7, 2**31, 2**62, -(2**63)]
    if not node.attribute:
        node.attribute.append(helper.make_attribute("axis", chance.choice(numbers)))
        return
    attribute = chance.choice(list(node.attribute))
    if attribute.ints:
        attribute.ints[chance.randrange(len(attribute.ints))] = chance.choice(numbers)
    elif attribute.type == AttributeProto.INT:
        attribute.i = chance.choice(numbers)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = chance.choice([float("nan"), float("inf"), -1.0, 3e38])
    else:
        attribute.type = chance.choice(list(AttributeProto.AttributeType.values()))


def _absurd_values(model: onnx.ModelProto, chance: random.Random) -> None:
    tensors = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT64]
    if not tensors:
        return _absurd_dims(model, chance)
    tensor = chance.choice(tensors)
    count = max(int(np.prod(tensor.dims)), 1)
    numbers = chance.choices([0, -1, -2, 2**31, 2**40, 2**62, -(2**63)], k=count)
    tensor.ClearField("int64_data")
    tensor.raw_data = struct.pack(f"<{count}q", *numbers)
    return None


def _nest(model: onnx.ModelProto, chance: random.Random) -> None:
    graph = model.graph
    for _ in range(chance.choice((3, 40, 90))):
        graph = (
            graph.node.add(op_type="If", input=["c"], output=["z"])
            .attribute.add(name="then_branch", type=AttributeProto.GRAPH)
            .g
        )


def _change_opset(model: onnx.ModelProto, chance: random.Random) -> None:
    opset = chance.choice(list(model.opset_import))
    opset.version = chance.choice([-1, 0, 1, 6, 8, 9, 10, 12, 13, 18, 22, 28, 29, 2**31, 2**62])


def _change_operator(model: onnx.ModelProto, chance: random.Random) -> None:
    node = _node(model, chance)
    names = ["Loop", "If", "Scan", "Constant", "Cast", "Split", "Einsum", "Unsqueeze", "NoSuch", "", "Upsample", "LSTM"]
    node.op_type = chance.choice(names)
    node.domain = chance.choice(["", "", "ai.onnx", "com.microsoft", "acme", "dovetail", "dovetail.plugin"])


def _point_outside(model: onnx.ModelProto, chance: random.Random) -> None:
    if not model.graph.initializer:
        return _dangle(model, chance)
    tensor = chance.choice(list(model.graph.initializer))
    for name in ("raw_data", "float_data", "int64_data"):
        tensor.ClearField(name)
    tensor.data_location = TensorProto.EXTERNAL
    places = ["../secret.bin", "/etc/passwd", "link", "w.bin", "pipe", "sub/../../secret.bin", "nowhere", "/dev/zero"]
    tensor.external_data.add(key="location", value=chance.choice(places))
    tensor.external_data.add(key="offset", value=chance.choice(["0", "-4", "99999999999", "x"]))
    return None


_STRUCTURE: Final[tuple[Callable[[onnx.ModelProto, random.Random], None], ...]] = (
    _double_name,
    _make_cycle,
    _dangle,
    _absurd_dims,
    _absurd_attribute,
    _absurd_values,
    _nest,
    _change_opset,
    _change_operator,
    _point_outside,
)


def make_mutation(number: int) -> tuple[str, bytes]:
    """One damaged model: what was done to it, and its bytes."""
    chance = random.Random(number)
    model = _base(number % len(_TEXTS))
    if number % 2:
        damage = _BYTES[(number // 2) % len(_BYTES)]
        data = bytearray(model.SerializeToString())
        damage(data, chance)
        return damage.__name__, bytes(data)
    change = _STRUCTURE[(number // 2) % len(_STRUCTURE)]
    change(model, chance)
    if chance.random() < 0.2:
        chance.choice(_STRUCTURE)(model, chance)
    return change.__name__, model.SerializeToString()


# the program


class _Watch:
    """Sees every file that is opened while it is on; those of Python and its packages are not told."""

    def __init__(self, folder: Path) -> None:
        self.allowed = (str(folder), sys.prefix, sys.base_prefix, "/proc/self", str(Path(dovetail.__file__).parent))
        self.on = False
        self.outside: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on or event != "open" or not isinstance(args[0], str | bytes):
            return
        path = os.fsdecode(args[0])
        relative = "/" not in path and path not in (".", "..")  # a part of a path, opened relative to a folder
        if not relative and not path.startswith(self.allowed):
            self.outside.append(path)


def _make_folder(folder: Path) -> None:
    (folder.parent / "secret.bin").write_bytes(b"\x06" * 4096)
    (folder / "sub").mkdir()
    (folder / "w.bin").write_bytes(b"\0" * 4096)
    (folder / "link").symlink_to("../secret.bin")
    os.mkfifo(folder / "pipe")


def _run(folder: Path) -> dict[str, Any]:
    from dovetail.errors import DovetailError
    from dovetail.loggers import ILogger, Severity
    from dovetail.network.importer.importer import import_model
    from dovetail.plugin.registry import PluginRegistry

    class Silent(ILogger):
        def log(self, severity: Severity, msg: str) -> None:
            return

    registry, logger, path = PluginRegistry(), Silent(), folder / "m.onnx"
    path.write_bytes(make_mutation(0)[1])
    import_model(_base(0), registry=registry, logger=logger)  # everything that is imported late is imported now
    watch = _Watch(folder)
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _BUDGET_BYTES, resource.RLIM_INFINITY))
    results: Counter[str] = Counter()
    foreign, slow = [], []
    for number in range(COUNT):
        name, data = make_mutation(number)
        path.write_bytes(data)
        print(number, name, file=sys.stderr, flush=True)
        start, watch.on = time.perf_counter(), True
        try:
            import_model(path, registry=registry, logger=logger)
            results["imported"] += 1
        except DovetailError as error:
            results[type(error).__name__] += 1
        except BaseException as error:  # noqa: BLE001 - what is looked for
            foreign.append(f"{number} {name}: {type(error).__name__}: {str(error)[:200]}")
        watch.on = False
        if time.perf_counter() - start > _SLOW_SECONDS:
            slow.append(f"{number} {name}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"results": results, "foreign": foreign, "slow": slow, "outside": watch.outside, "peak_kib": peak}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as base:
        inner = Path(base).resolve() / "model"
        inner.mkdir()
        _make_folder(inner)
        print(json.dumps(_run(inner)))
