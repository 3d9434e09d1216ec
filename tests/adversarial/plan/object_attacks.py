"""The same for sequences, optionals and strings: what the rule says, then the cases.

The numbers are those of the plan "objects": inputs are a sequence (value 0), an optional (1), strings (2) and numbers
(3); a loop carries the sequence (step 0: 0 -> 5, in its body 2 and the captured 3 give 4), the optional is asked
(1: 1 -> 6), a branch gives a sequence (2: 7) and a constant (8) is put behind the strings (3: 9).
"""

from __future__ import annotations

from tests.adversarial.plan.edits import Case, append, body, both, each, put, step, value

__all__ = ["OBJECT_RULES"]

OBJECT_RULES: dict[str, list[Case]] = {
    # types
    "there is no such type of value": each(
        "objects",
        value(5, type="seq(float)"),
        value(5, type="seq(seq(tensor(float)))"),
        value(5, type="seq(optional(tensor(float)))"),
        value(5, type="map(float,tensor(float))"),
        value(5, type="map(string,tensor(float16))"),
        value(5, type="map(string,map(string,tensor(float)))"),
        value(5, type="optional(map(string,tensor(float)))"),
        value(5, type="map(seq(tensor(float)))"),
        value(5, type="seq(map(string,tensor(float))"),
        value(5, type="map(string, tensor(float))"),
        value(5, type="seq(tensor(float)"),
        value(5, type="seq(tensor(float))))"),
        value(5, type="tensor(float)"),
        value(5, type="seq(tensor(object))", dtype="object"),
        value(5, type="(" * 5000),
        put("inputs/0/type", "tensor(float)"),
    ),
    "unknown element type": each("objects", value(5, type="seq(tensor(datetime64))")),
    "has another element type than its type says": each(
        "objects", value(5, dtype="int8"), value(9, dtype="float32"), put("inputs/2/dtype", "uint8")
    ),
    "is an object without a type": each("objects", value(5, type=None), value(9, type=None, dtype="float32")),
    "an object is of kind": each(
        "objects",
        value(5, kind="dynamic"),
        value(9, kind="output"),
        value(6, type="tensor(string)", dtype="object", dims=None),
    ),
    "is a constant and no tensor": each("objects", value(8, type="seq(tensor(string))")),
    "is an object with a shape": each("objects", value(5, dims=[3]), value(9, dims=["n"]), value(0, dims=[1])),
    "is an object and lies in memory": each(
        "objects", value(5, format="CHW32"), value(5, alias=0), value(5, size_bytes=64), value(5, offset=0)
    ),
    "is an object and has what only numbers have": each(
        "objects",
        put("inputs/0/dims", []),
        put("outputs/0/dims", [1]),
        lambda m: m["inputs"][2].update(is_shape=True),
        lambda m: m["inputs"][0].update(format="CHW32"),
    ),
    # what objects are used for
    "names a blob that is not": each(
        "objects", value(8, blob="m"), value(4, blob="suffix"), value(8, blob="nothing"), value(4, blob="nothing")
    ),
    "belongs to an object": each(
        "objects",
        append("programs/0/symbols", {"name": "e", "source": "dim", "value": 0, "index": 0}),
        append("programs/0/symbols", {"name": "e", "source": "dim", "value": 5, "index": 0}),
        append("programs/0/symbols", {"name": "e", "source": "element", "value": 9, "index": 0}),
    ),
    "a value has another type in its body": each(
        "objects",
        body(0, captures=[[0, 3]]),
        body(0, inputs=[0, 2, 1]),
        both(step(0, outputs=[-1]), body(2, captures=[[3, 0]])),
        body(0, outputs=[5, 5]),
        value(5, type="map(string,tensor(float))"),
        value(5, type="seq(map(int64,tensor(float)))"),
    ),
    "a plugin takes no objects": each(
        "library",
        both(
            value(0, type="tensor(string)", dtype="object"),
            lambda m: m["inputs"][0].update(type="tensor(string)", dtype="object"),
        ),
    ),
    "a reformat takes no objects": each(
        "objects", step(3, kind="reformat", op="Reformat", inputs=[2]), step(1, kind="reformat", op="Reformat")
    ),
    "bounds an input that is an object": each(
        "objects",
        lambda m: m.update(open=False, profiles=[{"shapes": {"s": [[1], [1], [1]]}}]),
        lambda m: m.update(open=False, profiles=[{"values": {"t": [[1], [1], [1]]}}]),
    ),
}
