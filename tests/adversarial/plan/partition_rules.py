"""The same for compiled partitions: what the rule says, then the cases.

The numbers are those of the plan "partitions", in both of its programs: a partition (step 0: 0 -> 1), a plugin (1:
1 -> 2) and a second partition (2: 2 -> 3, the output), both with the weight "w". In "sequences" a partition gives a
sequence (step 0: 0 -> 1), a kernel adds to it (1: 1 and 0 give 2), and a partition reads it (2: 2 -> 3 and 4).
"""

from __future__ import annotations

from tests.adversarial.plan.edits import Case, S, both, drop, each, put, step, value
from tests.support.attack_plans import DEVICE

__all__ = ["PARTITION_RULES"]

G = f"{S}/0/partition"
FIRST = "partition:first"

PARTITION_RULES: dict[str, list[Case]] = {
    "compiled steps, and only they, have a partition": [
        *each("partitions", drop(G), put(G, None), step(0, kind="kernel"), step(0, kind="plugin")),
        *each(
            "partitions", put(S, lambda steps: [steps[0], {**steps[1], "partition": steps[0]["partition"]}, steps[2]])
        ),
        *each("chain", step(0, kind="partition")),
    ],
    "names a blob that is no payload": [
        *each("partitions", *(put(f"{G}/payload", name) for name in ("w", "ghost", "", "partition:First"))),
        *each("partitions", put("programs/1/steps/2/partition/payload", "w")),
    ],
    "names a blob that is no weights": [
        *each("partitions", *(put(f"{G}/weights/w", name) for name in (FIRST, "ghost", ""))),
        *each("whole", put(f"{G}/weights", {"w": "w", "more": "partition:MatMul"})),
    ],
    "a partition has another number of names than values": [
        *each("partitions", put(f"{G}/inputs", []), put(f"{G}/inputs", ["x", "y"]), put(f"{G}/outputs", ["a", "b"])),
        *each("partitions", step(0, inputs=[0, 0]), step(0, inputs=[]), step(2, inputs=[2, 0])),
        *each("sequences", put(f"{S}/2/partition/outputs", ["y", "y"])),
        *each("sequences", both(put(f"{S}/2/partition/inputs", ["t", "t"]), step(2, inputs=[2, 2]))),
    ],
    "a partition has no absent inputs or outputs": [
        *each("partitions", step(0, inputs=[-1]), step(2, inputs=[-1])),
        *each("sequences", step(2, outputs=[-1, 4]), step(2, outputs=[3, -1])),
    ],
    "a partition takes a value that does not lie row by row": each(
        "partitions",
        both(value(1, format="DLA_HWC4", dims=["n", 20, 1, 1], size_bytes=2**10), put("programs/0/arena_bytes", 2**10)),
    ),
    "a weight of a partition has the name of an input": each(
        "partitions", put(f"{G}/weights", {"x": "w"}), put(f"{S}/2/partition/weights", {"w": "w", "b": "w"})
    ),
    "a name is empty": each(
        "partitions",
        put(f"{G}/inputs", [""]),
        put(f"{G}/outputs", [""]),
        put(f"{G}/weights", {"": "w"}),
    ),
    "a name has a NUL character": each(
        "partitions",
        put(f"{G}/inputs", ["x\0"]),
        put(f"{G}/outputs", ["\0"]),
        put(f"{G}/weights", {"w\0": "w"}),
        put(f"{G}/version", "1.31.1\0"),
        put(f"{G}/layers", ["first\0"]),
    ),
    "a name has over 65536 characters": each(
        "partitions",
        put(f"{G}/version", "1" * 70_000),
        put(f"{G}/layers", ["n" * 10**5]),
        put(f"{G}/inputs", ["x" * 10**5]),
    ),
    "plugin steps, and only they, name a plugin": each(
        "partitions",
        put(S, lambda steps: [{**steps[0], "plugin": steps[1]["plugin"]}, *steps[1:]]),
        put(
            S, lambda steps: [steps[0], {**steps[1], "kind": "partition", "partition": steps[0]["partition"]}, steps[2]]
        ),
    ),
    "has what only plugin steps have": each(
        "partitions",
        step(0, shape_inputs=[0]),
        step(0, sizes={"n": 1}),
        step(0, tactic=1),
        step(0, asks_workspace=True),
    ),
    "has attributes, which only kernels and control flow have": each(
        "partitions", step(0, attributes=[{"name": "axis", "type": "int", "value": 0}])
    ),
    "control flow, and only it, has bodies": each(
        "partitions", step(0, bodies=[{"inputs": [], "outputs": [], "values": [], "steps": []}])
    ),
    "shares memory with no input": each("partitions", value(1, alias=2, offset=None), value(3, alias=1)),
    "a value of kind planned shares memory with one of kind": each("partitions", value(1, alias=0, offset=None)),
    "a value of kind output shares memory with one of kind": each("partitions", value(3, alias=2)),
    "writes to a value of kind": each("partitions", step(2, outputs=[0])),
    "makes a value that was made before": each("partitions", step(2, outputs=[1])),
    "reads a value before it is made": each("partitions", step(0, inputs=[2]), step(0, inputs=[3])),
    "names another provider": each("partitions", step(0, provider="tensorrt"), step(2, provider="")),
    # blobs
    "code without a sha256 digest": each("partitions", put(f"blobs/{FIRST}/algorithm", "xxh3")),
    "code is bytes": each("partitions", put(f"blobs/{FIRST}/dtype", "int8")),
    "only weights can be stripped": each(
        "partitions", both(put(f"blobs/{FIRST}/digest", ""), lambda m: m["blobs"][FIRST].update(stripped=True))
    ),
    "blob does not match its": [
        *each("partitions", put(f"blobs/{FIRST}/digest", "0" * 64), put("blobs/w/digest", "0" * 32)),
        *each("whole", put("blobs/w/digest", "0" * 32)),
    ],
    "unknown kind": each("partitions", put(f"blobs/{FIRST}/kind", "session"), step(0, kind="subgraph")),
    "a library is carried and not named": each("partitions", put(f"blobs/{FIRST}/kind", "library")),
    "names a blob that is no library": each(
        "partitions", lambda m: m.update(libraries=[{"name": "code", "blob": FIRST}])
    ),
    # memory
    "touches a value in the memory of another provider": each("mixed", step(3, inputs=[3]), step(3, outputs=[6])),
    "has less room in the arena than its shape can need": each(
        "partitions", value(1, size_bytes=319), value(1, dims=["n", 21])
    ),
    "lies on the bytes of another value that is still needed": each(
        "partitions", both(value(2, offset=256), put("programs/0/arena_bytes", 768))
    ),
    "a copy has one input and one output": each("mixed", step(2, outputs=[4, 5])),
    "copies between memories that its provider does not have": each("mixed", step(2, provider="onnxruntime")),
    "lies in the memory of a provider that the plan does not have": each("partitions", value(1, memory=DEVICE)),
    # what the payload itself says
    "one of its inputs has another type than the plan says": [
        *each("whole", both(value(0, dtype="int32"), put("inputs/0/dtype", "int32"))),
        *each("whole", both(value(0, dtype="float64"), put("inputs/0/dtype", "float64"))),
        *each("partitions", both(value(2, dtype="int32"), put(f"{S}/1/tactic", 1))),
        *each("sequences", step(2, inputs=[0])),
    ],
    "one of its outputs has another type than the plan says": [
        *each("whole", both(value(1, dtype="int32"), put("outputs/0/dtype", "int32"))),
        *each("whole", both(value(1, dtype="float16"), put("outputs/0/dtype", "float16"))),
        *each("partitions", value(1, dtype="int32")),
    ],
    "a compiled partition has other inputs than the plan says": each(
        "whole", put(f"{G}/inputs", ["X"]), put(f"{G}/inputs", ["y"])
    ),
    "a compiled partition has other outputs than the plan says": each(
        "whole", put(f"{G}/outputs", ["x"]), put(f"{G}/outputs", ["z"]), put(f"{G}/outputs", ["w"])
    ),
}
