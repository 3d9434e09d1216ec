"""The same for values and steps of devices: what the rule says, then the cases.

The numbers are those of the plan "device": x is copied to the device (step 0: 0 -> 1), MatMul (1: 1 and 2, a weight
there, give 3), Relu (2: 3 -> 4), a copy to the host (3: 4 -> 5), Softmax (4: 5 -> 6) and Sub (5: 6 and 7, the weight
here, give 8) there, a copy back (6: 8 -> 9), Add (7: 9 and 4 give 10), and a copy to the output (8: 10 -> 11). In the
plan "device_io" input (0) and output lie on the device.
"""

from __future__ import annotations

from tests.adversarial.plan.edits import Case, append, body, both, drop, each, put, step, value
from tests.support.attack_plans import DEVICE, Json

__all__ = ["DEVICE_RULES"]


def _move_objects(manifest: Json) -> None:
    for made in manifest["programs"][0]["values"]:
        if made["kind"] == "object":
            made["memory"] = "cpu"


def _move_body_inputs(manifest: Json) -> None:
    bodies = [inner for made in manifest["programs"][0]["steps"] for inner in made.get("bodies", ())]
    for made in (made for inner in bodies for made in inner["values"]):
        if made["kind"] == "input":
            made["memory"] = "cpu"


DEVICE_RULES: dict[str, list[Case]] = {
    "lies in the memory of a provider that the plan does not have": each(
        "device", value(3, memory="gpu"), value(2, memory="gpu"), value(5, memory="onnxruntime")
    ),
    "lies in another memory than its value": [
        *each("device", value(0, memory=DEVICE), value(11, memory=DEVICE)),
        *each("device_io", put("inputs/0/memory", ""), put("outputs/0/memory", "cpu"), put("outputs/0/memory", "gpu")),
    ],
    "a value of kind object lies on a device": each("objects", _move_objects),
    "a value of kind input lies on a device": each("loop", _move_body_inputs),
    "lies on a device and not row by row": each("device_io", value(0, format="HWC")),
    "lies on a device and two elements share a byte": each("device_io", value(0, dtype="int4")),
    "lies on a device, and the host reads it": each(
        "device_io", put("inputs/0/is_shape", True), put("inputs/0/location", "HOST"), put("outputs/0/location", "HOST")
    ),
    "is an element of a value on a device": each(
        "device",
        both(
            value(1, dtype="int64"),
            append("programs/0/symbols", {"name": "e", "source": "element", "value": 1, "index": 0}),
        ),
    ),
    # copies
    "a copy has one input and one output": each(
        "device",
        step(0, inputs=[]),
        step(0, inputs=[0, 0]),
        step(0, inputs=[-1]),
        step(3, outputs=[5, -1]),
        step(3, outputs=[]),
    ),
    "a copy changes the type or the format": each(
        "device", value(1, dtype="float16"), value(1, dtype="int32"), value(5, format="HWC")
    ),
    "a copy changes the shape": each(
        "device", value(1, dims=["n", 9]), value(5, dims=["n", 3, 2]), value(9, dims=[1, 3, 3])
    ),
    "copies between memories that its provider does not have": each(
        "device",
        step(0, provider="cpu"),
        step(3, provider="cpu"),
        step(3, inputs=[0]),
        value(1, memory=None),
    ),
    "a copy takes no objects": each("device", value(0, type="tensor(string)", dtype="object")),
    # other steps
    "touches a value in the memory of another provider": each(
        "device",
        step(4, inputs=[4]),
        step(5, inputs=[6, 2]),
        both(step(4, inputs=[5]), value(6, memory=DEVICE), put("programs/0/values/6/offset", 512)),
    ),
    "a value does not lie in the memory of provider": each(
        "device",
        step(1, inputs=[1, 7]),
        step(7, inputs=[8, 4]),
        step(2, op="Shape", inputs=[0]),
    ),
    "a reformat goes from one memory to another": each(
        "chain", both(value(5, memory="cpu"), put("programs/0/arenas", {"cpu": 8192}))
    ),
    "writes to two memories": each("device", step(1, outputs=[3, 5])),
    "reads a value on a device": each("chain", both(value(8, memory="cpu"), step(6, shape_inputs=[8]))),
    "shares memory with a value that lies elsewhere": each(
        "chain", both(value(4, memory="cpu"), lambda m: m["programs"][0].update(arenas={"cpu": 0}))
    ),
    # arenas
    "has two arenas on the host": each("device", put("programs/0/arenas", {"": 256, DEVICE: 768})),
    "lies outside the arena": each(
        "device",
        put("programs/0/arenas", {DEVICE: 256}),
        put("programs/0/arenas", {}),
        put("programs/0/arenas", {DEVICE: -1}),
        drop("programs/0/arenas"),
        value(10, offset=768),
        value(10, offset=2**40),
    ),
    "the arena is larger than the values in it": each(
        "device",
        put("programs/0/arenas", {DEVICE: 1024}),
        put("programs/0/arenas", {DEVICE: 2**46}),
        put("programs/0/arenas", {DEVICE: 768, "cpu": 256}),
        put("programs/0/arenas", {DEVICE: 768, "nobody": 1}),
    ),
    "arena size out of range": each("device", put("programs/0/arenas", {DEVICE: 2**62})),
    "has an arena, which only programs with a profile have": [
        *each("open", lambda m: m["programs"][0].update(arenas={"cpu": 0})),
        *each("loop", body(0, arenas={"cpu": 64})),
    ],
    "lies on the bytes of another value that is still needed": each(
        "device",
        value(3, offset=0),
        both(value(10, offset=256), put("programs/0/arenas", {DEVICE: 512})),
        value(9, offset=0),
        both(value(6, offset=0), put("programs/0/arena_bytes", 256)),
    ),
}
