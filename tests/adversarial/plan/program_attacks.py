"""Changes to manifests that keep every type right and break one rule of programs: what the rule says, then the cases.

The numbers are those of tests/support/attack_plans.py: "chain" adds (step 0: values 0 and 2 give 3), works in place
(1: 3 -> 4), reformats (2: 4 -> 5), runs packed (3: 5 -> 6), reformats (4: 6 -> 7), softmax (5: 7 -> 8), fills
(6: 7 -> 9, an output) and negates (7: 8 -> 10, an output).
"""

from __future__ import annotations

from tests.adversarial.plan.edits import (
    FIELD,
    LIB,
    NOTE,
    Case,
    S,
    V,
    W,
    append,
    body,
    both,
    bury,
    drop,
    each,
    put,
    step,
    twice,
    value,
)

__all__ = ["PROGRAM_RULES"]

PROGRAM_RULES: dict[str, list[Case]] = {
    # programs: their tensors
    "has another number of inputs than the plan": each(
        "chain", put("programs/0/inputs", [0]), put("programs/0/inputs", [0, 1, 2]), put("programs/0/inputs", [])
    ),
    "has another number of outputs than the plan": each("chain", put("programs/0/outputs", [10])),
    "captures values, which only bodies do": each("chain", lambda m: m["programs"][0].update(captures=[[0, 3]])),
    "its inputs are not its values of that kind": [
        *each("chain", put("programs/0/inputs", [0, 0]), put("programs/0/inputs", [0, 3]), value(3, kind="input")),
        *each("loop", body(0, inputs=[0, 1, 4]), body(0, inputs=[2, 2, 2])),
    ],
    "two outputs are one value": each("chain", put("programs/0/outputs", [10, 10])),
    "is of another type or format than its value": each(
        "chain",
        value(0, dtype="float16"),
        value(0, dtype="float64"),
        put("inputs/0/dtype", "float64"),
        put("outputs/0/dtype", "float16"),
        put("inputs/0/format", "CHW32"),
        value(10, format="HWC"),
    ),
    "has a shape that inputs do not decide": [
        *each("chain", put("outputs/0/dims/0", "nothing"), put("outputs/0/dims/0", "step1_in0_0")),
        *each("sizes", put("outputs/0/max_dims/0", "step0_size1")),
    ],
    "is an input with a dimension that is neither a number nor a symbol": each(
        "chain",
        both(put("inputs/0/dims/0", ["sum", "_d0", 1]), value(0, dims=[["sum", "_d0", 1], 3, 4, 4])),
        both(put("inputs/0/dims/0", None), value(0, dims=None)),
    ),
    "has another shape than its value": [
        *each("chain", put("inputs/1/dims", []), value(0, dims=None), value(0, dims=["_d0", 3, 4, 5])),
        *each(
            "chain", put("outputs/1/dims", ["value_s_0"]), put("outputs/0/dims/3", 1), value(10, dims=["_d0", 3, 4, 8])
        ),
        *each("partitions", put("outputs/0/dims/1", 1), put("programs/1/values/3/dims", ["n", 4096])),
        *each("in_place", put("outputs/0/dims/0", 1), value(1, dims=["_d0", 4096])),
    ],
    "is a value of a kind that cannot leave": [
        *each("chain", both(put("programs/0/outputs", [8, 9]), value(10, kind="dynamic"))),
        *each("chain", both(put("programs/0/outputs", [2, 9]), value(10, kind="dynamic"))),
        *each("open", put("programs/0/outputs", [0])),
    ],
    "shares memory with another input than its value": each("chain", put("outputs/0/alias", "x")),
    "has a known shape and a bound besides": each("chain", put("outputs/0/max_dims", ["_d0", 3, 4, 4])),
    "has a dimension that is not its own bound": [
        *each(
            "sizes", put("outputs/0/dims", [4]), put("outputs/2/dims", [1]), put("outputs/0/dims", [["prod", "_d0", 2]])
        ),
    ],
    "is an output that nobody gets": each("chain", value(8, kind="output", offset=None, size_bytes=None)),
    "reads an input that is no shape": each("chain", drop("inputs/1/is_shape"), put("inputs/1/is_shape", False)),
    # programs: values
    "is of a kind that does not exist here": [
        *each("chain", value(3, kind="static"), value(3, kind="")),
        *each("loop", put(f"{S}/0/bodies/0/values/6/kind", "planned"), put(f"{S}/0/bodies/0/values/6/kind", "output")),
    ],
    "constants, and only they, have a blob": each("chain", value(2, blob=None), value(3, blob=W), value(0, blob=W)),
    "names a blob that is not weights": [
        *each("chain", value(2, blob="ghost"), put("refit/weights", {"w": "ghost"}), value(2, blob="")),
        *each("library", put(f"{V}/0", lambda old: {**old, "kind": "constant", "blob": LIB})),
    ],
    "has another type than its blob": each("chain", value(2, dtype="float16"), value(2, dtype="float64")),
    "has another shape than its blob": each(
        "chain", value(2, dims=[1, 300, 1, 1]), value(2, dims=[]), value(2, dims=None), value(2, dims=["_d0", 3, 1, 1])
    ),
    "is a constant that does not lie row by row": each("chain", value(2, format="CHW32")),
    "shares memory and is not made by a step": each("chain", value(0, alias=1), value(2, alias=0)),
    # programs: symbols and shapes
    "is neither a dimension nor an element": each(
        "chain", put("programs/0/symbols/0/source", "size"), put("programs/0/symbols/1/source", "")
    ),
    "is out of range": each("chain", put("programs/0/symbols/0/index", -1), put("programs/0/symbols/0/index", 2**31)),
    "is a dimension that the value does not have": each(
        "chain", put("programs/0/symbols/0/index", 4), put("programs/0/symbols/3/index", 9)
    ),
    "is an element that the value does not have": each(
        "chain", put("programs/0/symbols/1/index", 2), put("programs/0/symbols/6/index", 2**30)
    ),
    "is an element of an input that holds no integers": each("chain", put("programs/0/symbols/0/source", "element")),
    "is an element of an input whose size is not fixed": each(
        "chain",
        both(
            put("inputs/1/dims", ["k"]),
            value(1, dims=["k"]),
            append("programs/0/symbols", {"name": "k", "source": "dim", "value": 1, "index": 0}),
        ),
    ),
    "two symbols have the same name": each(
        "chain", twice("programs/0/symbols", 0), put("programs/0/symbols/1/name", "_d0")
    ),
    "has no shape": each("chain", value(3, dims=None), value(10, dims=None)),
    "uses symbols that are not defined": [
        *each("chain", put("programs/0/symbols", []), value(3, dims=["nothing", 3, 4, 4])),
        *each("chain", value(3, dims=["step1_in0_0", 3, 4, 4]), put("programs/0/symbols/0/value", 3)),
        *each("sizes", value(2, dims=["step0_size1"]), value(1, dims=["gone"])),
    ],
    "refers to a value that does not exist": [
        *each("chain", *(put("programs/0/inputs", [index, 1]) for index in (-1, 11, 2**63))),
        *each("chain", *(put("programs/0/outputs", [index, 9]) for index in (-1, -11, 11, 2**31))),
        *each("chain", *(step(0, inputs=[index, 2]) for index in (-2, 11, 10**30))),
        *each("chain", *(step(0, outputs=[index]) for index in (-2, 11, 2**62))),
        *each("chain", step(6, shape_inputs=[-1]), step(6, shape_inputs=[99]), step(1, outputs=[99])),
        *each("chain", step(2, inputs=[99]), step(2, outputs=[99])),
        *each("loop", step(0, outputs=[3, 99]), put(f"{S}/0/bodies/0/steps/1/outputs", [99])),
        *each("chain", put("programs/0/symbols/0/value", 11), put("programs/0/symbols/0/value", -1)),
        *each("loop", body(0, captures=[[0, 8]]), body(0, captures=[[99, 5]]), body(0, captures=[[-1, 5]])),
        *each("loop", body(0, inputs=[0, 1, 99]), body(0, outputs=[4, 6, -1])),
    ],
    # programs: steps in order
    "reads a value before it is made": [
        *each("chain", step(0, inputs=[0, 8]), step(0, inputs=[3, 2]), step(1, inputs=[4]), step(6, shape_inputs=[10])),
        *each("chain", put(S, lambda steps: steps[::-1]), put(S, lambda steps: steps[1:])),
        *each("loop", body(0, captures=[[3, 5]]), body(0, captures=[]), put(f"{S}/0/bodies/0/steps/0/inputs", [0, 7])),
    ],
    "makes a value that was made before": [
        *each("chain", step(7, outputs=[8]), step(5, outputs=[8, 8]), twice(S, 0)),
        *each("loop", put(f"{S}/0/bodies/0/steps/2/outputs", [5])),
    ],
    "writes to a value of kind": [
        *each("chain", step(5, outputs=[0]), step(5, outputs=[2]), step(3, outputs=[2]), step(7, outputs=[1])),
        *each("loop", put(f"{S}/0/bodies/0/steps/1/outputs", [3])),
    ],
    "an output is not made by any step": [
        *each("sizes", put(S, lambda steps: steps[:-1])),
        *each("loop", put(f"{S}/0/bodies/0/steps", lambda steps: steps[:-1])),
    ],
    "is not made by any step": [
        *each("chain", append(V, {"name": "q", "dtype": "float32", "kind": "planned", "dims": [1]})),
    ],
    "captures two values as one": each("loop", body(0, captures=[[0, 5], [2, 5]])),
    "captures a value as an input or constant": each("loop", body(0, captures=[[0, 0]]), body(0, captures=[[0, 3]])),
    "bodies are nested too deep": each("loop", bury(40)),
    # workspaces
    "has a workspace without a place in the arena": each(
        "chain", step(3, workspace_offset=None), step(0, workspace_bytes=1), step(5, workspace_bytes=256)
    ),
    "its workspace lies outside the arena": each(
        "chain",
        step(3, workspace_offset=2**40),
        step(3, workspace_offset=-256),
        step(3, workspace_offset=16640),
        step(3, workspace_bytes=769),
        step(3, workspace_bytes=2**40),
    ),
    "its workspace does not start at a multiple of 256": each("chain", step(3, workspace_offset=16385)),
    "has a place for a workspace that it does not have": each(
        "chain",
        step(0, workspace_offset=0),
        step(3, workspace_bytes=0),
        step(3, asks_workspace=True),
    ),
    "has a workspace in an arena that does not exist": each(
        "open", step(0, workspace_offset=0), both(step(0, workspace_bytes=64), step(0, workspace_offset=256))
    ),
    "has a workspace that it cannot use": each("chain", step(2, workspace_bytes=64)),
    # programs: memory that is shared
    "shares memory with no input": [
        *each(
            "chain", value(4, alias=4), value(4, alias=5), value(4, alias=2**40), value(4, alias=-1), value(3, alias=4)
        ),
        *each("chain", both(value(3, alias=4, offset=None), value(4, alias=3)), value(5, alias=4, offset=None)),
        *each("chain", value(10, alias=0)),
    ],
    "a value of kind planned shares memory with one of kind": [
        *each("chain", both(step(1, inputs=[2]), value(4, alias=2)), both(step(1, inputs=[0]), value(4, alias=0))),
    ],
    "a value of kind output shares memory with one of kind": each("chain", value(9, alias=7)),
    "a value of kind dynamic shares memory with one of kind": each(
        "chain", both(step(1, inputs=[2]), value(4, alias=2, kind="dynamic"))
    ),
    "shares memory with a value of another type or format": each(
        "chain", value(4, dtype="int32"), value(3, format="HWC")
    ),
    # the arena
    "arena size out of range": each(
        "chain", *(put("programs/0/arena_bytes", size) for size in (-1, 2**47, 2**63, 2**80))
    ),
    "the arena is larger than the values in it": each(
        "chain", put("programs/0/arena_bytes", 17153), put("programs/0/arena_bytes", 2**46)
    ),
    "lies outside the arena": each(
        "chain",
        put("programs/0/arena_bytes", 0),
        put("programs/0/arena_bytes", 16128),
        value(3, offset=16640),
        value(3, offset=-256),
        value(3, offset=2**62),
        value(7, size_bytes=2**40),
    ),
    "has a size out of range": each(
        "chain", value(3, size_bytes=-1), value(3, size_bytes=2**47), value(3, size_bytes=2**64)
    ),
    "does not start at a multiple of 256": each("chain", value(3, offset=1), value(5, offset=64)),
    "is planned but has no place in the arena": each("chain", value(3, offset=None), value(4, alias=None)),
    "is planned but has no size": each("chain", value(3, size_bytes=None)),
    "has less room in the arena than its shape can need": each(
        "chain",
        value(3, size_bytes=0),
        value(3, size_bytes=767),
        value(6, size_bytes=768),
        value(8, dtype="float64"),
        value(3, dims=["_d0", 3, 4, 5]),
        value(3, dims=[["prod", "_d0", 2], 3, 4, 4]),
        put("profiles/0/shapes/x/2/0", 5),
    ),
    "is planned and the profile does not bound its shape": each(
        "chain",
        put("profiles/0/shapes", {}),
        drop("profiles/0/shapes/x"),
        both(drop("profiles/0/values"), value(8, dims=["value_s_0", 1, 1, 1])),
    ),
    "lies on the bytes of another value that is still needed": each(
        "chain",
        value(8, offset=0),
        value(6, offset=0),
        both(step(3, workspace_offset=0), put("programs/0/arena_bytes", 16384)),
        both(step(3, workspace_offset=8192), put("programs/0/arena_bytes", 16384)),
        both(step(3, workspace_offset=15872), put("programs/0/arena_bytes", 16640)),
        value(5, offset=8192),
        value(5, offset=512),
        value(8, offset=512),
    ),
    "has a place in the arena and is not planned": each("chain", value(10, offset=256), value(0, offset=512)),
    "has an arena, which only programs with a profile have": [
        *each("open", lambda m: m["programs"][0].update(arena_bytes=4096)),
        *each("loop", body(0, arena_bytes=64)),
    ],
    "has a place in an arena that does not exist": [
        *each("open", value(1, offset=0)),
        *each("loop", put(f"{S}/0/bodies/0/values/6", lambda old: {**old, "offset": 0})),
    ],
    # steps
    "opset out of range": each("chain", step(0, opset=-1), step(0, opset=2**31), step(0, opset=10**20)),
    "tactic out of range": each("chain", step(3, tactic=-1), step(3, tactic=2**31), step(3, tactic=2**63)),
    "workspace out of range": each("chain", step(3, workspace_bytes=-1), step(3, workspace_bytes=2**47)),
    "names another provider": each("chain", step(0, provider="cuda"), step(1, provider=""), step(2, provider="CPU")),
    "plugin steps, and only they, name a plugin": each(
        "chain",
        step(1, plugin=None),
        put(S, lambda steps: [{**steps[0], "plugin": steps[1]["plugin"]}, *steps[1:]]),
        step(1, kind="kernel"),
        step(0, kind="plugin"),
    ),
    "has what only plugin steps have": each(
        "chain",
        step(0, shape_inputs=[1]),
        step(0, sizes={"_d0": 1}),
        step(0, tactic=1),
        step(2, asks_workspace=True),
    ),
    "control flow, and only it, has bodies": [
        *each("loop", step(0, bodies=[]), step(1, kind="control"), step(0, kind="kernel")),
        *each("chain", step(0, kind="control")),
    ],
    "has attributes, which only kernels and control flow have": each(
        "chain", step(1, attributes=[NOTE]), step(2, attributes=[NOTE])
    ),
    "is not of the type": [
        *each("chain", *(put(f"{S}/5/attributes/0/value", new) for new in ("1", 1.0, True, None, [1], {}, 2**63))),
        *each(
            "chain", *(put(f"{S}/5/attributes/0/type", new) for new in ("ints", "string", "tensor", "", "s", "graph"))
        ),
        *each(
            "open", *(put(f"{S}/0/attributes/0/value", new) for new in ("half", "Infinity", [0.5], True, None, "1e9"))
        ),
        *each(
            "open", *(put(f"{S}/4/attributes/0/value", new) for new in ("10", [1.5], [True], ["a"], 1, {"a": 1}, [[1]]))
        ),
        *each("open", put(f"{S}/2/attributes/0/value", 3), put(f"{S}/2/attributes/0/value", ["w"])),
    ],
    "an attribute is given twice": each("open", put(f"{S}/0/attributes", lambda old: old * 2)),
    "an attribute names a blob that is no weights": each("open", put(f"{S}/2/attributes/0/value", "ghost")),
    "a reformat has one input and one output": each(
        "chain", step(2, inputs=[4, 3]), step(2, inputs=[-1]), step(2, inputs=[]), step(2, outputs=[-1])
    ),
    "a reformat changes the number of dimensions": each("chain", value(7, dims=["_d0", 3, 16])),
    # control flow
    "unknown control flow": each("loop", step(0, op="While"), step(3, op="if")),
    "has another number of bodies": each("loop", step(0, op="If"), put(f"{S}/3/bodies", lambda old: old[:1])),
    "its body has another number of inputs": [
        *each("loop", step(0, inputs=[1, 2]), step(0, inputs=[1, 2, 0, 0])),
    ],
    "its body has too few outputs": each("loop", body(0, outputs=[4]), body(3, outputs=[])),
    "an output of control flow is not dynamic": each(
        "loop", value(8, kind="output", dims=[3]), value(3, kind="planned", dims=[3])
    ),
    "If has one input": each("loop", step(3, inputs=[]), step(3, inputs=[-1]), step(3, inputs=[7, 7])),
    "Loop has a count, a condition and its state": each("loop", step(0, inputs=[]), step(0, inputs=[1])),
    "malformed num_scan_inputs": each(
        "loop",
        step(0, op="Scan"),
        *(
            step(0, op="Scan", attributes=[{"name": "num_scan_inputs", "type": "int", "value": n}])
            for n in (0, -1, 4, 2**40)
        ),
        step(0, op="Scan", attributes=[{"name": "num_scan_inputs", "type": "string", "value": "1"}]),
    ),
    "Scan has an output for each state": each(
        "loop",
        step(0, op="Scan", outputs=[3], attributes=[{"name": "num_scan_inputs", "type": "int", "value": 1}]),
    ),
    "an axis or direction is needed for each scan": each(
        "loop",
        step(
            0,
            op="Scan",
            attributes=[
                {"name": "num_scan_inputs", "type": "int", "value": 2},
                {"name": "scan_input_axes", "type": "ints", "value": [0]},
            ],
        ),
        step(
            0,
            op="Scan",
            attributes=[
                {"name": "num_scan_inputs", "type": "int", "value": 2},
                {"name": "scan_output_directions", "type": "int", "value": 1},
            ],
        ),
    ),
    # plugins
    "a plugin has no absent inputs or outputs": each("chain", step(1, inputs=[-1]), step(1, outputs=[-1])),
    "a plugin has at least one output": each("sizes", step(1, outputs=[])),
    "plugins have no such type": each(
        "chain", value(4, dtype="float64"), value(4, dtype="complex64"), value(4, dtype="uint32")
    ),
    "an output of a plugin has no shape": each("sizes", value(3, dims=None)),
    "the name of a plugin is too long": each("chain", put(f"{S}/1/plugin/name", "p" * 1024)),
    "the name of a field is too long": each("chain", put(f"{FIELD}/name", "ü" * 600)),
    "a plugin field is malformed": each(
        "chain",
        *(
            put(f"{FIELD}/data", data)
            for data in ("%%%", "AAAAQA", "AAAAQA=", "AAAAQA==\n", "\u00e9", "AAA=", "AAAAQAA=")
        ),
        *(put(f"{FIELD}/type", name) for name in ("FLOAT", "float32", "", "FLOAT64", "INT64")),
    ),
    "the size of a plugin field does not fit its data": each(
        "chain", *(put(f"{FIELD}/size", size) for size in (-1, 0, 3, 8, 2**62)), put(f"{FIELD}/data", "")
    ),
    "bounds a symbol that is not a size it writes": [
        *each("sizes", step(0, sizes={"_d0": 1}), step(0, sizes={"gone": 1}), step(1, sizes={"step0_size1": 1})),
    ],
    "a size tensor is not one integer": each(
        "sizes",
        both(value(2, dtype="float32"), put("outputs/1/dtype", "float32")),
        both(value(2, dims=[1]), put("outputs/1/dims", [1])),
    ),
    "a size tensor is part of an expression": each(
        "sizes", value(1, dims=[["sum", "step0_size1", 1]]), value(1, dims=[["max", 1, "step0_size1"]])
    ),
    "a shape depends on what is not known yet": [
        *each("sizes", step(0, sizes={}), step(0, sizes={"step0_size1": "step0_size1"})),
        *each("sizes", step(0, sizes={"step0_size1": "step1_in0_0"}), value(1, dims=["step1_in0_0"])),
        *each("sizes", put("programs/0/symbols/3/value", 3), put("programs/0/symbols/3/value", 4)),
    ],
}
