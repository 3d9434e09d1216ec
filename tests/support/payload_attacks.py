"""Plans whose compiled partitions are something else: load each from a file and from memory, and run what loads.

Run as ``python -m tests.support.payload_attacks FOLDER``, in a process of its own because a bad payload could, at
worst, end it. Prints one JSON object a case: what loading gave, what running gave, and how many sessions were made.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import DovetailError
from dovetail.plan.container import Blob, digest_blob
from dovetail.providers.onnxruntime import provider as onnxruntime_provider
from dovetail.providers.onnxruntime.wire import AppendedTensor, FilePlace, append_weights
from tests.support.attack_plans import Json, Target, target
from tests.support.hostile_models import (
    NAMING_FILES,
    external,
    graph_bytes,
    long_tag,
    make_model,
    nested,
    partition,
    varint,
)

__all__ = ["CASES"]

INTS, DOUBLES, STRINGS, FLOATS = TensorProto.INT64, TensorProto.DOUBLE, TensorProto.STRING, TensorProto.FLOAT
GUARD = 4096
"""Bytes around memory that is bound by address, which nobody may touch."""

Edit = Callable[[Json], object]
Maker = Callable[[], tuple[Target, bytes]]
CASES: dict[str, Maker] = {}


def _whole(payload: onnx.ModelProto | bytes, edit: Edit | None = None) -> Maker:
    """The plan "whole" around another payload."""

    def make() -> tuple[Target, bytes]:
        raw = payload if isinstance(payload, bytes) else payload.SerializeToString()
        return target("whole"), target("whole").with_payload("partition:MatMul", raw, edit)

    return make


def _planned(payload: onnx.ModelProto) -> Maker:
    """The plan "partitions", whose first partition writes into planned memory."""

    def make() -> tuple[Target, bytes]:
        plan = target("partitions")
        for port, name in zip((*payload.graph.input, *payload.graph.output), ("x", "a"), strict=True):
            port.name = name
        for node in payload.graph.node:
            node.output[:] = ["a" if name == "y" else name for name in node.output]
        return plan, plan.with_payload("partition:first", payload.SerializeToString())

    return make


def _node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, **attributes)


def _weight(name: str, *shape: int, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ones(shape, dtype), name)


# what is no model


def _real() -> bytes:
    return target("whole").payload("partition:MatMul")


def _flipped(seed: int) -> Maker:
    def make() -> tuple[Target, bytes]:
        raw, rng = bytearray(_real()), random.Random(seed)
        for _ in range(rng.choice((1, 1, 4))):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        return _whole(bytes(raw))()

    return make


def _cut(part: int) -> Maker:
    return lambda: _whole(_real()[: len(_real()) * part // 16])()


def _appended(name: str) -> bytes:
    place = FilePlace(file="attack.plan", offset=4096, length_bytes=1600)
    tensor = AppendedTensor(name=name, dtype="float32", shape=(20, 20), contents=place)
    return append_weights(b"", [tensor])


def _swallowed() -> tuple[Target, bytes]:
    """A payload that ends in a field it does not hold all of, and a weight whose name goes on as a model would."""
    hidden = graph_bytes(external())
    name = (varint(7 << 3 | 2) + varint(len(hidden)) + hidden + varint(6 << 3 | 2)).decode()
    rest = len(_appended("")) - _appended("").index(b"\x6a")  # from the first field behind the name
    name += varint(rest).decode()
    start = _appended(name).index(name.encode())
    hungry = varint(6 << 3 | 2) + varint(start)
    nodes = [_node("Identity", ["x"], ["a"]), _node("Add", ["a", "s"], ["y"])]
    payload = partition(*nodes).SerializeToString() + hungry

    def edit(manifest: Json) -> None:
        manifest["programs"][0]["steps"][0]["partition"]["weights"] = {name: "w"}

    return _whole(payload, edit)()


CASES |= {f"names a file: {name}": _whole(payload) for name, payload in NAMING_FILES.items()}
CASES |= {
    f"names a file: behind a tag of {above + 32} bits": _whole(
        partition(_node("Add", ["x", "s"], ["y"])).SerializeToString()
        + long_tag(7, graph_bytes(external()), above=above)
    )
    for above in (1, 2, 6, 7)
}
CASES |= {
    "names a file: in the name of a weight": _swallowed,
    "garbage: nothing": _whole(b""),
    "garbage: zeros": _whole(bytes(1000)),
    "garbage: ones": _whole(b"\xff" * 1000),
    "garbage: text": _whole(b"this is no model at all" * 50),
    "garbage: noise": _whole(random.Random(0).randbytes(5000)),
    "garbage: a plan": lambda: _whole(target("whole").raw)(),
    "garbage: no graph": _whole(onnx.ModelProto(ir_version=10)),
    "garbage: an empty graph": _whole(make_model([], [], [])),
    "garbage: an unfinished number": _whole(b"\x3a" + b"\xff" * 20),
    "garbage: a length beyond all": _whole(b"\x3a" + varint(2**62)),
    "garbage: a group": _whole(b"\x3b\x3c"),
    "garbage: another format": _whole(b"\x14\x00\x00\x00ORTM" + bytes(200)),
}
CASES |= {f"cut: {part} of 16": _cut(part) for part in range(1, 16)}
CASES |= {f"flipped: {seed}": _flipped(seed) for seed in range(60)}

# other borders

CASES |= {
    "border: another input": _whole(partition(_node("MatMul", ["z", "w"], ["y"]), x=("z", FLOATS, ["n", 20]))),
    "border: another output": _whole(partition(_node("MatMul", ["x", "w"], ["z"]), y=("z", FLOATS, ["n", 20]))),
    "border: one input more": _whole(
        make_model(
            [_node("Add", ["x", "z"], ["y"])],
            [helper.make_tensor_value_info(name, FLOATS, ["n", 20]) for name in ("x", "z")],
            [helper.make_tensor_value_info("y", FLOATS, ["n", 20])],
        )
    ),
    "border: no input": _whole(
        make_model([_node("Identity", ["w"], ["y"])], [], [helper.make_tensor_value_info("y", FLOATS, [20, 20])])
    ),
    "border: one output more": _whole(
        make_model(
            [_node("MatMul", ["x", "w"], ["y"]), _node("Neg", ["y"], ["z"])],
            [helper.make_tensor_value_info("x", FLOATS, ["n", 20])],
            [helper.make_tensor_value_info(name, FLOATS, ["n", 20]) for name in ("y", "z")],
        )
    ),
    "border: int64 input": _whole(partition(_node("Cast", ["x"], ["y"], to=FLOATS), x=("x", INTS, ["n", 20]))),
    "border: string input": _whole(partition(_node("Cast", ["x"], ["y"], to=FLOATS), x=("x", STRINGS, ["n", 20]))),
    "border: input of another rank": _whole(
        partition(_node("Neg", ["x"], ["y"]), x=("x", FLOATS, ["n"]), y=("y", FLOATS, ["n"]))
    ),
    "border: input of another size": _whole(
        partition(_node("Neg", ["x"], ["y"]), x=("x", FLOATS, ["n", 21]), y=("y", FLOATS, ["n", 21]))
    ),
}
for _kind, _type in (("int64", INTS), ("double", DOUBLES), ("string", STRINGS), ("int8", TensorProto.INT8)):
    _casting = partition(_node("Cast", ["x"], ["y"], to=_type), y=("y", _type, ["n", 20]))
    CASES[f"border: {_kind} output"] = _whole(_casting)
    CASES[f"border: {_kind} output in planned memory"] = _planned(
        onnx.ModelProto.FromString(_casting.SerializeToString())
    )
_SEQUENCE = helper.make_value_info("y", helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOATS, None)))
CASES["border: sequence output"] = _whole(
    make_model(
        [_node("SequenceConstruct", ["x", "x"], ["y"])],
        [helper.make_tensor_value_info("x", FLOATS, ["n", 20])],
        [_SEQUENCE],
    )
)
CASES["border: output of another size in planned memory"] = _planned(
    partition(_node("Concat", ["x", "x"], ["y"], axis=1), y=("y", FLOATS, ["n", 40]))
)

# results of other shapes than the plan has memory for, which only the run tells


def _branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [helper.make_tensor_value_info(name, FLOATS, None)])


def _condition() -> list[onnx.NodeProto]:
    return [_node("ReduceSum", ["x"], ["sum"], keepdims=0), _node("Less", ["sum", "limit"], ["c"])]


def _loop_body() -> onnx.GraphProto:
    ports = [
        helper.make_tensor_value_info("i", INTS, []),
        helper.make_tensor_value_info("was", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", FLOATS, None),
    ]
    nodes = [_node("Concat", ["state", "x"], ["next"], axis=0), _node("Identity", ["was"], ["going"])]
    outputs = [
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", FLOATS, None),
    ]
    return helper.make_graph(nodes, "body", ports, outputs)


_LIMIT = numpy_helper.from_array(np.array(1e9, np.float32), "limit")
_OTHER_SHAPES: dict[str, tuple[list[onnx.NodeProto], tuple[Any, ...]]] = {
    "more rows": ([_node("Concat", ["x", "x", "x"], ["y"], axis=0)], ()),
    "fewer rows": (
        [_node("Slice", ["x", "zero", "one"], ["y"])],
        (_weight("zero", 1, dtype=np.int64), _weight("one", 1, dtype=np.int64)),
    ),
    "one element": ([_node("ReduceSum", ["x"], ["y"], keepdims=0)], ()),
    "flat": ([_node("Reshape", ["x", "flat"], ["y"])], (numpy_helper.from_array(np.array([-1]), "flat"),)),
    "turned": ([_node("Transpose", ["x"], ["y"], perm=[1, 0])], ()),
    "a weight": ([_node("Identity", ["big"], ["y"])], (_weight("big", 300, 20),)),
    "repeated": ([_node("Expand", ["x", "to"], ["y"])], (numpy_helper.from_array(np.array([50, 2, 20]), "to"),)),
    "a branch": (
        [
            *_condition(),
            _node(
                "If",
                ["c"],
                ["y"],
                then_branch=_branch("t", _node("Concat", ["x", "x"], ["t"], axis=0)),
                else_branch=_branch("e", _node("Neg", ["x"], ["e"])),
            ),
        ],
        (_LIMIT,),
    ),
    "a loop": (
        [_node("Loop", ["five", "", "x"], ["y"], body=_loop_body())],
        (numpy_helper.from_array(np.array(5), "five"),),
    ),
    "what is not zero": ([_node("NonZero", ["x"], ["at"]), _node("Cast", ["at"], ["y"], to=FLOATS)], ()),
    "from a sequence": (
        [_node("SequenceConstruct", ["big", "x"], ["q"]), _node("SequenceAt", ["q", "zero"], ["y"])],
        (_weight("big", 300, 20), numpy_helper.from_array(np.array(0), "zero")),
    ),
}
for _kind, (_nodes, _weights) in _OTHER_SHAPES.items():
    _other = partition(*_nodes, y=("y", FLOATS, None), weights=_weights)
    CASES[f"shape: {_kind}"] = _whole(_other)
    CASES[f"shape: {_kind} in planned memory"] = _planned(onnx.ModelProto.FromString(_other.SerializeToString()))

# weights


def _with_weight(dtype: str, shape: list[int], stored: str) -> Maker:
    """The weight with another type or shape, stored rightly."""

    def make() -> tuple[Target, bytes]:
        plan = target("whole")
        manifest = json.loads(json.dumps(plan.manifest))
        data = np.ones(shape, dtype).tobytes()
        manifest["blobs"]["w"].update(dtype=dtype, shape=shape, digest=digest_blob(data, "xxh3"))
        blob = Blob(name="w", dtype=stored, shape=tuple(shape), data=data)
        return plan, plan.packed(json.dumps(manifest).encode(), [blob if b.name == "w" else b for b in plan.blobs])

    return make


def _naming(weights: dict[str, str]) -> Edit:
    return lambda manifest: manifest["programs"][0]["steps"][0]["partition"].update(weights=weights)


def _unchanged(edit: Edit) -> Maker:
    return lambda: (target("whole"), target("whole").changed(edit))


CASES |= {
    "weights: float64": _with_weight("float64", [20, 20], "F64"),
    "weights: int64": _with_weight("int64", [20, 20], "I64"),
    "weights: bool": _with_weight("bool", [20, 20], "BOOL"),
    "weights: complex": _with_weight("complex64", [20, 20], "C64"),
    "weights: too few": _with_weight("float32", [2, 20], "F32"),
    "weights: too many": _with_weight("float32", [2000, 20], "F32"),
    "weights: too wide": _with_weight("float32", [20, 2000], "F32"),
    "weights: empty": _with_weight("float32", [0, 20], "F32"),
    "weights: one number": _with_weight("float32", [], "F32"),
    "weights: many dimensions": _with_weight("float32", [1] * 30 + [20, 20], "F32"),
    "weights: none": _unchanged(_naming({})),
    "weights: another name": _unchanged(_naming({"v": "w"})),
    "weights: one more": _unchanged(_naming({"w": "w", "v": "w"})),
    "weights: the name of the result": _unchanged(_naming({"w": "w", "y": "w"})),
    "weights: one that the payload has": _whole(partition(weights=(_weight("w", 20, 20),))),
    "weights: one that the payload has in another shape": _whole(partition(weights=(_weight("w", 3, 3),))),
    "weights: one that is an input": _whole(
        make_model(
            [_node("MatMul", ["x", "w"], ["y"])],
            [
                helper.make_tensor_value_info("x", FLOATS, ["n", 20]),
                helper.make_tensor_value_info("w", FLOATS, [20, 20]),
            ],
            [helper.make_tensor_value_info("y", FLOATS, ["n", 20])],
        )
    ),
}

# what is a model and not for here

_BOMB = numpy_helper.from_array(np.array([2**22, 2**21]), "size")
CASES |= {
    "foreign: a domain nobody has": _whole(partition(_node("Run", ["x"], ["y"], domain="evil"))),
    "foreign: a domain that is not imported": _whole(partition(_node("Run", ["x"], ["y"], domain="other"))),
    "foreign: compiled for a device": _whole(
        partition(_node("EPContext", ["x"], ["y"], domain="com.microsoft", embed_mode=0, ep_cache_context="secret.bin"))
    ),
    "foreign: an op that is none": _whole(partition(_node("Nag", ["x"], ["y"]))),
    "foreign: an opset to come": _whole(partition(opset=999)),
    "foreign: a version to come": _whole(partition(ir_version=999)),
    "foreign: nested 20 deep": _whole(nested(20)),
    "foreign: nested 300 deep": _whole(nested(300)),
    "foreign: a circle": _whole(
        partition(_node("Add", ["x", "b"], ["a"]), _node("Neg", ["a"], ["b"]), _node("Neg", ["b"], ["y"]))
    ),
    "foreign: a name twice": _whole(partition(_node("Neg", ["x"], ["y"]), _node("Abs", ["x"], ["y"]))),
    "foreign: names that terminals act on": _whole(partition(_node("\x1b[2J\x1b]0;owned\x07", ["x"], ["y"]))),
    "bomb: memory that no machine has": _whole(
        partition(
            _node("ConstantOfShape", ["size"], ["a"]),
            _node("ReduceSum", ["a"], ["b"], keepdims=0),
            _node("Add", ["x", "b"], ["y"]),
            weights=(_BOMB,),
        )
    ),
    "bomb: memory that only the run asks for": _whole(
        partition(
            _node("ReduceMax", ["x"], ["m"], keepdims=0),
            _node("Cast", ["m"], ["i"], to=INTS),
            _node("Mul", ["size", "i"], ["s"]),
            _node("ConstantOfShape", ["s"], ["a"]),
            _node("ReduceSum", ["a"], ["b"], keepdims=0),
            _node("Add", ["x", "b"], ["y"]),
            weights=(_BOMB,),
        )
    ),
}


def _profiling() -> onnx.ModelProto:
    model = partition()
    settings = {"session_options": {"enable_profiling": 1, "intra_op_num_threads": 3}}
    model.metadata_props.add(key="ort_config", value=json.dumps(settings))
    return model


CASES["settings in the payload"] = _whole(_profiling())


# running


def _load(plan: Target, raw: bytes, path: Path | None) -> Any:
    runtime, _ = plan.runtime()
    if path is None:
        return runtime.deserialize_cuda_engine(raw)
    path.write_bytes(raw)
    return runtime.load_engine(path)


def _try(function: Callable[[], Any]) -> tuple[Any, dict[str, str]]:
    try:
        return function(), {}
    except DovetailError as error:
        return None, {"error": type(error).__name__, "text": str(error)}


def _run_bound(engine: Any, x: Any) -> list[Any]:
    """Run with memory bound by address, in the middle of more that nobody may write to."""
    size = x.nbytes
    memory = np.full(size + 2 * GUARD, 0x55, np.uint8)
    context = engine.create_execution_context()
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", memory.ctypes.data + GUARD)
    try:
        context.execute_async_v3(0)
    finally:
        if (memory[:GUARD] != 0x55).any() or (memory[-GUARD:] != 0x55).any():
            raise AssertionError("memory around an output was written")
    return memory[GUARD:-GUARD].view(np.float32).tolist()


def _run(engine: Any, plan: Target) -> dict[str, Any]:
    """Run over several shapes, twice each, by array and by address."""
    outcome: dict[str, Any] = {}
    for rows in (2, 4, 1, 2):
        x = np.arange(rows * 20, dtype=np.float32).reshape(rows, 20)
        for _ in range(2):
            result, failed = _try(lambda x=x: engine(x))  # type: ignore[misc]
            outcome |= failed
            if result is not None:
                outcome["ran"] = f"{result.dtype.name} {result.shape}"
                result.tobytes()
        _, failed = _try(lambda x=x: _run_bound(engine, x))  # type: ignore[misc]
        outcome |= {f"bound {key}": text for key, text in failed.items()}
    return outcome


def _run_case(make: Maker, folder: Path) -> dict[str, Any]:
    plan, raw = make()
    outcome: dict[str, Any] = {"sessions": 0}
    for place, path in (("file", folder / "attack.plan"), ("memory", None)):
        _SESSIONS.clear()
        engine, failed = _try(lambda path=path: _load(plan, raw, path))  # type: ignore[misc]
        outcome["sessions"] += len(_SESSIONS)
        outcome[place] = failed or {"error": None, "text": ""}
        if engine is not None:
            with engine:
                outcome[f"{place} run"] = _run(engine, plan)
    return outcome


_SESSIONS: list[str] = []


def _count_sessions() -> None:
    create = onnxruntime_provider.create_session

    def counted(*args: Any, **kwargs: Any) -> Any:
        _SESSIONS.append("one")
        return create(*args, **kwargs)

    onnxruntime_provider.create_session = counted


if __name__ == "__main__":
    _count_sessions()
    for name, make in CASES.items():
        print(json.dumps({"case": name}), flush=True)
        print(json.dumps({"case": name, **_run_case(make, Path(sys.argv[1]))}), flush=True)
