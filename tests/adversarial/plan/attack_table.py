"""Changes to manifests that keep every type right and break one rule: what the rule says, which plan, which change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.support.attack_plans import Json

__all__ = ["RULES", "Edit", "put"]

Edit = Callable[[Json], object]
Case = tuple[str, Edit]


def _walk(manifest: Any, path: str) -> tuple[Any, Any]:
    """The container that the last part of a path is in, and that part as its key."""
    *parents, last = path.split("/")
    for part in parents:
        manifest = manifest[int(part)] if isinstance(manifest, list) else manifest[part]
    return manifest, int(last) if isinstance(manifest, list) else last


def put(path: str, value: Any) -> Edit:
    """Set what a path names; a function makes the new value from the old."""

    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        owner[key] = value(owner[key]) if callable(value) else copy.deepcopy(value)

    return edit


def drop(path: str) -> Edit:
    """Remove what a path names."""

    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        del owner[key]

    return edit


def both(*edits: Edit) -> Edit:
    """One change after the other."""

    def edit(manifest: Json) -> None:
        for part in edits:
            part(manifest)

    return edit


def value(number: int, **fields: Any) -> Edit:
    """Set fields of a value of the first program; those set to ``None`` go."""
    return _fields(f"programs/0/values/{number}", fields)


def step(number: int, **fields: Any) -> Edit:
    """The same for a step."""
    return _fields(f"programs/0/steps/{number}", fields)


def body(number: int, **fields: Any) -> Edit:
    """The same for the first body of a step."""
    return _fields(f"programs/0/steps/{number}/bodies/0", fields)


def _fields(path: str, fields: dict[str, Any]) -> Edit:
    def edit(manifest: Json) -> None:
        owner, key = _walk(manifest, path)
        for name, new in fields.items():
            owner[key][name] = copy.deepcopy(new)
            if new is None:
                del owner[key][name]

    return edit


def _each(plan: str, *edits: Edit) -> list[Case]:
    return [(plan, edit) for edit in edits]


def _nested(depth: int) -> Any:
    dim: Any = "_d0"
    for _ in range(depth):
        dim = ["sum", dim, 1]
    return dim


def _append(path: str, item: Any) -> Edit:
    return put(path, lambda old: [*old, copy.deepcopy(item)])


def _twice(path: str, index: int) -> Edit:
    return put(path, lambda old: [*old, copy.deepcopy(old[index])])


def _bury(depth: int) -> Edit:
    """Put loops into loops."""
    inner: Json = {"inputs": [0, 1], "outputs": [1], "steps": []}
    inner["values"] = [{"name": name, "dtype": "bool", "kind": "input"} for name in ("i", "was")]
    for _ in range(depth):
        loop = {"name": "deeper", "kind": "control", "op": "Loop", "provider": "cpu", "inputs": [0, 1], "outputs": []}
        inner = {**inner, "steps": [{**loop, "bodies": [inner]}]}
    return lambda manifest: manifest["programs"][0]["steps"][0]["bodies"][0]["steps"].extend(inner["steps"])


W = "(Unnamed Layer* 0) [Constant].constant"
LIB = "library:carried_library"
V = "programs/0/values"
S = "programs/0/steps"
FIELD = f"{S}/1/plugin/fields/0"
NOTE = {"name": "note", "type": "float", "value": 1.0}

# The numbers are those of tests/support/attack_plans.py: "chain" adds (step 0: values 0 and 2 give 3), works in place
# (1: 3 -> 4), reformats (2: 4 -> 5), runs packed (3: 5 -> 6), reformats (4: 6 -> 7), softmax (5: 7 -> 8), fills
# (6: 7 -> 9, an output) and negates (7: 8 -> 10, an output).
RULES: dict[str, list[Case]] = {
    # tensors
    "two tensors have the same name": _each(
        "chain", put("inputs/1/name", "x"), put("outputs/1/name", "y"), put("outputs/0/name", "x")
    ),
    "the plan has no outputs": _each("chain", both(put("outputs", []), put("programs/0/outputs", []))),
    "is an input and has what only outputs have": _each(
        "chain", put("inputs/0/alias", "s"), put("inputs/0/max_dims", [1, 3, 4, 4])
    ),
    "aliases no input": _each("chain", put("outputs/0/alias", "nobody"), put("outputs/0/alias", "y")),
    "a name is empty": [
        *_each("chain", put("inputs/0/name", ""), put(f"{S}/0/op", ""), put("programs/0/symbols/0/name", "")),
        *_each("chain", put(f"{S}/1/plugin/name", ""), put(f"{FIELD}/name", ""), put("devices/0/provider", "")),
        *_each("library", put("libraries/0/name", "")),
        *_each("open", put(f"{S}/0/attributes/0/name", "")),
    ],
    "a name has a NUL character": [
        *_each("chain", *(put(f"{path}/name", "x\0y") for path in ("inputs/0", "outputs/0", f"{V}/3", f"{S}/0"))),
        *_each("chain", put(f"{S}/0/op", "Add\0"), put(f"{S}/0/domain", "\0"), put("devices/0/provider", "cpu\0")),
        *_each("chain", *(put(f"{S}/1/plugin/{part}", "T\0") for part in ("name", "version", "namespace"))),
        *_each("chain", put(f"{FIELD}/name", "factor\0"), put("programs/0/symbols/0/name", "_d0\0")),
        *_each("chain", put("tuning/0/name", "\0"), put("refit/weights", {"\0": W})),
        *_each("library", put("libraries/0/name", "lib\0")),
        *_each("open", put(f"{S}/0/attributes/0/name", "alpha\0")),
        *_each("loop", put(f"{S}/0/bodies/0/values/0/name", "i\0"), put(f"{S}/0/bodies/0/steps/0/name", "i\0")),
    ],
    "a name has over 4096 characters": _each(
        "chain", put(f"{S}/0/name", "n" * 5000), put("inputs/0/name", "n" * 10**5)
    ),
    "unknown element type": [
        *_each(
            "chain",
            *(
                put("inputs/0/dtype", name)
                for name in ("object", "O", "void", "V8", "datetime64[s]", "timedelta64", "S4")
            ),
            *(put(f"{V}/3/dtype", name) for name in ("float31", "f4", "<f4", ">f4", "str", "", "float32\0", "FLOAT")),
            put("outputs/0/dtype", "float"),
            put(f"blobs/{W}/dtype", "f4,f4"),
        ),
        *_each("loop", put(f"{S}/0/bodies/0/values/4/dtype", "bool_")),
    ],
    "unknown location": _each("chain", put("outputs/0/location", "CLOUD")),
    "unknown format": _each("chain", put("outputs/0/format", "CHW33"), value(5, format="chw32"), value(3, format="")),
    "the format does not exist for that rank": [
        *_each("chain", put("outputs/1/format", "CHW32"), value(9, format="HWC8"), value(3, format="DLA_LINEAR")),
        *_each("sizes", value(1, format="CHW2")),
    ],
    "too many dimensions": _each(
        "chain", put("inputs/0/dims", [1] * 33), value(3, dims=[1] * 40), put("inputs/0/dims", [1] * 100_000)
    ),
    "a dimension is out of range": _each(
        "chain",
        *(put("outputs/0/dims/1", dim) for dim in (-1, 2**40, 2**63, 2**64, -(2**70))),
        *(put(f"{V}/3/dims/1", dim) for dim in (-1, 2**62, 10**300)),
    ),
    "a dimension has a number out of range": _each(
        "chain",
        value(3, dims=[["prod", "_d0", 2**40], 3, 4, 4]),
        value(3, dims=[["sum", ["sub", -(2**63), 1], "_d0"], 3, 4, 4]),
    ),
    "a dimension is malformed": [
        *_each(
            "chain",
            *(put(f"{V}/3/dims/0", dim) for dim in (True, 1.5, {}, [], ["sum"], ["sum", 1], ["sum", 1, 2, 3], None)),
            *(put(f"{V}/3/dims/0", dim) for dim in (["pow", "_d0", 2], ["sum", None, 1], [["sum"], 1, 2], [1, 2, 3])),
            put(f"{V}/3/dims/0", _nested(250)),
            put("outputs/0/dims/0", ["SumX", "_d0", 1]),
        ),
        *_each("sizes", step(0, sizes={"step0_size1": None}), step(0, sizes={"step0_size1": ["max", "_d0"]})),
    ],
    "has bounds of another rank": [
        *_each("sizes", put("outputs/0/max_dims", []), put("outputs/0/max_dims", ["_d0", 1])),
        *_each("chain", put("profiles/0/shapes/x", [[1, 3], [2, 3], [4, 3]])),
    ],
    # blobs
    "unknown kind": [
        *_each("chain", put(f"blobs/{W}/kind", "code"), step(0, kind="kernels"), step(2, kind="copy")),
        *_each("loop", step(0, kind="loop")),
    ],
    "unknown digest algorithm": _each("chain", *(put(f"blobs/{W}/algorithm", name) for name in ("md5", "", "SHA256"))),
    "code without a sha256 digest": [
        *_each("library", put(f"blobs/{LIB}/algorithm", "xxh3")),
        *_each("chain", put(f"blobs/{W}/kind", "kernel")),
    ],
    "code is bytes": _each("library", both(put(f"blobs/{LIB}/dtype", "int8"))),
    "has too many dimensions": _each("chain", put(f"blobs/{W}/shape", [1] * 40)),
    "has a dimension out of range": _each("chain", *(put(f"blobs/{W}/shape/1", n) for n in (-1, -3, 2**47, 2**64))),
    "is larger than any memory": _each(
        "chain", put(f"blobs/{W}/shape", [2**40, 2**40, 0]), put(f"blobs/{W}/shape", [2**30, 2**30])
    ),
    "only weights can be stripped": _each("library", put(f"blobs/{LIB}/stripped", True)),
    "is stripped and has a digest": _each("chain", put(f"blobs/{W}/stripped", True)),
    "is stripped and in the file": _each("chain", both(put(f"blobs/{W}/stripped", True), put(f"blobs/{W}/digest", ""))),
    "is not in the file": _each("chain", put("blobs", lambda old: {**old, "ghost": old[W]})),
    "the file has blobs that the manifest does not name": [
        *_each("open", drop("blobs/w")),
        *_each("chain", put("blobs", {})),
    ],
    "malformed digest": _each(
        "chain",
        *(put(f"blobs/{W}/digest", edit) for edit in (str.upper, lambda d: d[:-1], lambda d: d + "0", lambda d: "")),
    ),
    "blob does not match its": [
        *_each("chain", put(f"blobs/{W}/digest", "0" * 32)),
        *_each("library", put(f"blobs/{LIB}/digest", "0" * 64)),
        *_each("chain", both(put(f"blobs/{W}/algorithm", "sha256"), put(f"blobs/{W}/digest", "a" * 64))),
    ],
    "has another size than its type and shape say": _each(
        "chain",
        put(f"blobs/{W}/dtype", "float64"),
        put(f"blobs/{W}/dtype", "float16"),
        put(f"blobs/{W}/dtype", "int4"),
        put(f"blobs/{W}/shape", [1, 4, 1, 1]),
        put(f"blobs/{W}/shape", [0]),
        put(f"blobs/{W}/shape", []),
    ),
    "is stored as another type than the manifest says": [
        *_each("chain", put(f"blobs/{W}/dtype", "int32"), put(f"blobs/{W}/dtype", "uint32")),
        *_each("loop", put("blobs/keep/dtype", "int8"), put("blobs/limit/dtype", "float64")),
    ],
    "is stored with another shape": _each("chain", put(f"blobs/{W}/shape", [3]), put(f"blobs/{W}/shape", [1, 3, 1])),
    # host code
    "names a blob that is no library": [
        *_each("library", put("libraries/0/blob", "ghost")),
        *_each("library", put("libraries", lambda old: [{**old[0], "blob": ""}])),
        *_each("chain", lambda m: m.update(libraries=[{"name": "weights", "blob": W}])),
    ],
    "two libraries name the same blob": _each("library", _twice("libraries", 0)),
    "a library is carried and not named": _each("library", put("libraries", []), drop("libraries")),
    # profiles, devices, tables
    "the engine is open and has profiles": [
        *_each("chain", put("open", True)),
        *_each("open", put("profiles", [{}])),
    ],
    "there must be one a profile": [
        *_each("chain", _twice("programs", 0), put("programs", []), _twice("profiles", 0)),
        *_each("library", _twice("programs", 0)),
    ],
    "names an unknown input": _each("chain", put("profiles/0/shapes", lambda old: {"q": old["x"]})),
    "has min, opt and max of different lengths": _each("chain", put("profiles/0/shapes/x/1", [2, 3, 4])),
    "min, opt and max are not in order": _each(
        "chain",
        put("profiles/0/shapes/x", [[4, 3, 4, 4], [2, 3, 4, 4], [1, 3, 4, 4]]),
        put("profiles/0/shapes/x/1/0", 5),
        put("profiles/0/values/s/2", [1, 1]),
    ),
    "has a bound out of range": _each(
        "chain", put("profiles/0/shapes/x/2/0", 2**47), put("profiles/0/values/s/2/0", 2**63)
    ),
    "has a negative bound": _each("chain", put("profiles/0/shapes/x/0/0", -1)),
    "has bounds for a dimension that is fixed": _each("chain", put("profiles/0/shapes/x/2/1", 4)),
    "the plan names no device": _each("chain", put("devices", [])),
    "two devices are of one provider": _each("chain", _twice("devices", 0)),
    "belongs to no profile": _each("chain", put("tuning/0/profile", 1), put("tuning/0/profile", -1)),
    "has a negative time": _each("chain", put("tuning/0/candidates/0/time_us", -1.0)),
    # programs: their tensors
    "has another number of inputs than the plan": _each(
        "chain", put("programs/0/inputs", [0]), put("programs/0/inputs", [0, 1, 2]), put("programs/0/inputs", [])
    ),
    "has another number of outputs than the plan": _each("chain", put("programs/0/outputs", [10])),
    "captures values, which only bodies do": _each("chain", lambda m: m["programs"][0].update(captures=[[0, 3]])),
    "its inputs are not its values of that kind": [
        *_each("chain", put("programs/0/inputs", [0, 0]), put("programs/0/inputs", [0, 3]), value(3, kind="input")),
        *_each("loop", body(0, inputs=[0, 1, 4]), body(0, inputs=[2, 2, 2])),
    ],
    "two outputs are one value": _each("chain", put("programs/0/outputs", [10, 10])),
    "is of another type or format than its value": _each(
        "chain",
        value(0, dtype="float16"),
        value(0, dtype="float64"),
        put("inputs/0/dtype", "float64"),
        put("outputs/0/dtype", "float16"),
        put("inputs/0/format", "CHW32"),
        value(10, format="HWC"),
    ),
    "has a shape that inputs do not decide": [
        *_each("chain", put("outputs/0/dims/0", "nothing"), put("outputs/0/dims/0", "step1_in0_0")),
        *_each("sizes", put("outputs/0/max_dims/0", "step0_size1")),
    ],
    "is an input with a dimension that is neither a number nor a symbol": _each(
        "chain",
        both(put("inputs/0/dims/0", ["sum", "_d0", 1]), value(0, dims=[["sum", "_d0", 1], 3, 4, 4])),
        both(put("inputs/0/dims/0", None), value(0, dims=None)),
    ),
    "has another shape than its value": [
        *_each("chain", put("inputs/1/dims", []), value(0, dims=None), value(0, dims=["_d0", 3, 4, 5])),
    ],
    "is a value of a kind that cannot leave": [
        *_each("chain", both(put("programs/0/outputs", [8, 9]), value(10, kind="dynamic"))),
        *_each("chain", both(put("programs/0/outputs", [2, 9]), value(10, kind="dynamic"))),
        *_each("open", put("programs/0/outputs", [0])),
    ],
    "shares memory with another input than its value": _each("chain", put("outputs/0/alias", "x")),
    "has another number of dimensions than its value": _each("chain", put("outputs/1/dims", ["value_s_0"])),
    "is an output that nobody gets": _each("chain", value(8, kind="output", offset=None, size_bytes=None)),
    "reads an input that is no shape": _each("chain", drop("inputs/1/is_shape"), put("inputs/1/is_shape", False)),
    # programs: values
    "is of a kind that does not exist here": [
        *_each("chain", value(3, kind="static"), value(3, kind="")),
        *_each("loop", put(f"{S}/0/bodies/0/values/6/kind", "planned"), put(f"{S}/0/bodies/0/values/6/kind", "output")),
    ],
    "constants, and only they, have a blob": _each("chain", value(2, blob=None), value(3, blob=W), value(0, blob=W)),
    "names a blob that is not weights": [
        *_each("chain", value(2, blob="ghost"), put("refit/weights", {"w": "ghost"}), value(2, blob="")),
        *_each("library", put(f"{V}/0", lambda old: {**old, "kind": "constant", "blob": LIB})),
    ],
    "has another type than its blob": _each("chain", value(2, dtype="float16"), value(2, dtype="float64")),
    "has another shape than its blob": _each(
        "chain", value(2, dims=[1, 300, 1, 1]), value(2, dims=[]), value(2, dims=None), value(2, dims=["_d0", 3, 1, 1])
    ),
    "is a constant that does not lie row by row": _each("chain", value(2, format="CHW32")),
    "shares memory and is not made by a step": _each("chain", value(0, alias=1), value(2, alias=0)),
    # programs: symbols and shapes
    "is neither a dimension nor an element": _each(
        "chain", put("programs/0/symbols/0/source", "size"), put("programs/0/symbols/1/source", "")
    ),
    "is out of range": _each("chain", put("programs/0/symbols/0/index", -1), put("programs/0/symbols/0/index", 2**31)),
    "is a dimension that the value does not have": _each(
        "chain", put("programs/0/symbols/0/index", 4), put("programs/0/symbols/3/index", 9)
    ),
    "is an element that the value does not have": _each(
        "chain", put("programs/0/symbols/1/index", 2), put("programs/0/symbols/6/index", 2**30)
    ),
    "is an element of an input that holds no integers": _each("chain", put("programs/0/symbols/0/source", "element")),
    "two symbols have the same name": _each(
        "chain", _twice("programs/0/symbols", 0), put("programs/0/symbols/1/name", "_d0")
    ),
    "has no shape": _each("chain", value(3, dims=None), value(10, dims=None)),
    "uses symbols that are not defined": [
        *_each("chain", put("programs/0/symbols", []), value(3, dims=["nothing", 3, 4, 4])),
        *_each("chain", value(3, dims=["step1_in0_0", 3, 4, 4]), put("programs/0/symbols/0/value", 3)),
        *_each("sizes", value(2, dims=["step0_size1"]), value(1, dims=["gone"])),
    ],
    "refers to a value that does not exist": [
        *_each("chain", *(put("programs/0/inputs", [index, 1]) for index in (-1, 11, 2**63))),
        *_each("chain", *(put("programs/0/outputs", [index, 9]) for index in (-1, -11, 11, 2**31))),
        *_each("chain", *(step(0, inputs=[index, 2]) for index in (-2, 11, 10**30))),
        *_each("chain", *(step(0, outputs=[index]) for index in (-2, 11, 2**62))),
        *_each("chain", step(6, shape_inputs=[-1]), step(6, shape_inputs=[99]), step(1, outputs=[99])),
        *_each("chain", step(2, inputs=[99]), step(2, outputs=[99])),
        *_each("loop", step(0, outputs=[3, 99]), put(f"{S}/0/bodies/0/steps/1/outputs", [99])),
        *_each("chain", put("programs/0/symbols/0/value", 11), put("programs/0/symbols/0/value", -1)),
        *_each("loop", body(0, captures=[[0, 8]]), body(0, captures=[[99, 5]]), body(0, captures=[[-1, 5]])),
        *_each("loop", body(0, inputs=[0, 1, 99]), body(0, outputs=[4, 6, -1])),
    ],
    # programs: steps in order
    "reads a value before it is made": [
        *_each(
            "chain", step(0, inputs=[0, 8]), step(0, inputs=[3, 2]), step(1, inputs=[4]), step(6, shape_inputs=[10])
        ),
        *_each("chain", put(S, lambda steps: steps[::-1]), put(S, lambda steps: steps[1:])),
        *_each("loop", body(0, captures=[[3, 5]]), body(0, captures=[]), put(f"{S}/0/bodies/0/steps/0/inputs", [0, 7])),
    ],
    "makes a value that was made before": [
        *_each("chain", step(7, outputs=[8]), step(5, outputs=[8, 8]), _twice(S, 0)),
        *_each("loop", put(f"{S}/0/bodies/0/steps/2/outputs", [5])),
    ],
    "writes to a value of kind": [
        *_each("chain", step(5, outputs=[0]), step(5, outputs=[2]), step(3, outputs=[2]), step(7, outputs=[1])),
        *_each("loop", put(f"{S}/0/bodies/0/steps/1/outputs", [3])),
    ],
    "an output is not made by any step": [
        *_each("sizes", put(S, lambda steps: steps[:-1])),
        *_each("loop", put(f"{S}/0/bodies/0/steps", lambda steps: steps[:-1])),
    ],
    "is not made by any step": [
        *_each("chain", _append(V, {"name": "q", "dtype": "float32", "kind": "planned", "dims": [1]})),
    ],
    "captures two values as one": _each("loop", body(0, captures=[[0, 5], [2, 5]])),
    "captures a value as an input or constant": _each("loop", body(0, captures=[[0, 0]]), body(0, captures=[[0, 3]])),
    "bodies are nested too deep": _each("loop", _bury(40)),
    "its workspace is not what its steps need": _each(
        "chain",
        put("programs/0/workspace_bytes", 0),
        put("programs/0/workspace_bytes", 2**46),
        put("programs/0/workspace_bytes", -1),
        step(3, workspace_bytes=641),
    ),
    # programs: memory that is shared
    "shares memory with no input": [
        *_each(
            "chain", value(4, alias=4), value(4, alias=5), value(4, alias=2**40), value(4, alias=-1), value(3, alias=4)
        ),
        *_each("chain", both(value(3, alias=4, offset=None), value(4, alias=3)), value(8, alias=7, offset=None)),
        *_each("chain", value(10, alias=0)),
    ],
    "a value of kind planned shares memory with one of kind": [
        *_each("chain", both(step(1, inputs=[2]), value(4, alias=2)), both(step(1, inputs=[0]), value(4, alias=0))),
    ],
    "a value of kind output shares memory with one of kind": _each("chain", value(9, alias=7)),
    "a value of kind dynamic shares memory with one of kind": _each(
        "chain", both(step(1, inputs=[2]), value(4, alias=2, kind="dynamic"))
    ),
    "shares memory with a value of another type or format": _each(
        "chain", value(4, dtype="int32"), value(3, format="HWC")
    ),
    # the arena
    "arena size out of range": _each(
        "chain", *(put("programs/0/arena_bytes", size) for size in (-1, 2**47, 2**63, 2**80))
    ),
    "the arena is larger than the values in it": _each(
        "chain", put("programs/0/arena_bytes", 16385), put("programs/0/arena_bytes", 2**46)
    ),
    "lies outside the arena": _each(
        "chain",
        put("programs/0/arena_bytes", 0),
        put("programs/0/arena_bytes", 16128),
        value(3, offset=16384),
        value(3, offset=-256),
        value(3, offset=2**62),
        value(7, size_bytes=2**40),
    ),
    "has a size out of range": _each(
        "chain", value(3, size_bytes=-1), value(3, size_bytes=2**47), value(3, size_bytes=2**64)
    ),
    "does not start at a multiple of 256": _each("chain", value(3, offset=1), value(5, offset=64)),
    "is planned but has no place in the arena": _each("chain", value(3, offset=None), value(4, alias=None)),
    "is planned but has no size": _each("chain", value(3, size_bytes=None)),
    "has less room in the arena than its shape can need": _each(
        "chain",
        value(3, size_bytes=0),
        value(3, size_bytes=767),
        value(6, size_bytes=768),
        value(8, dtype="float64"),
        value(3, dims=["_d0", 3, 4, 5]),
        value(3, dims=[["prod", "_d0", 2], 3, 4, 4]),
        put("profiles/0/shapes/x/2/0", 5),
    ),
    "is planned and the profile does not bound its shape": _each(
        "chain",
        put("profiles/0/shapes", {}),
        drop("profiles/0/shapes/x"),
        both(drop("profiles/0/values"), value(8, dims=["value_s_0", 1, 1, 1])),
    ),
    "lies on the bytes of another value that is still needed": _each(
        "chain",
        value(8, offset=0),
        both(value(6, offset=0), put("programs/0/arena_bytes", 8960)),
        value(5, offset=8192),
        value(5, offset=512),
        value(8, offset=512),
    ),
    "has a place in the arena and is not planned": _each("chain", value(10, offset=256), value(0, offset=512)),
    "has an arena, which only programs with a profile have": [
        *_each("open", lambda m: m["programs"][0].update(arena_bytes=4096)),
        *_each("loop", body(0, arena_bytes=64)),
    ],
    "has a place in an arena that does not exist": [
        *_each("open", value(1, offset=0)),
        *_each("loop", put(f"{S}/0/bodies/0/values/6", lambda old: {**old, "offset": 0})),
    ],
    # steps
    "opset out of range": _each("chain", step(0, opset=-1), step(0, opset=2**31), step(0, opset=10**20)),
    "tactic out of range": _each("chain", step(3, tactic=-1), step(3, tactic=2**31), step(3, tactic=2**63)),
    "workspace out of range": _each("chain", step(3, workspace_bytes=-1), step(3, workspace_bytes=2**47)),
    "names another provider": _each("chain", step(0, provider="cuda"), step(1, provider=""), step(2, provider="CPU")),
    "plugin steps, and only they, name a plugin": _each(
        "chain",
        step(1, plugin=None),
        put(S, lambda steps: [{**steps[0], "plugin": steps[1]["plugin"]}, *steps[1:]]),
        step(1, kind="kernel"),
        step(0, kind="plugin"),
    ),
    "has what only plugin steps have": _each(
        "chain",
        step(0, shape_inputs=[1]),
        step(0, sizes={"_d0": 1}),
        step(0, workspace_bytes=1),
        step(2, asks_workspace=True),
    ),
    "control flow, and only it, has bodies": [
        *_each("loop", step(0, bodies=[]), step(1, kind="control"), step(0, kind="kernel")),
        *_each("chain", step(0, kind="control")),
    ],
    "has attributes, which only kernels and control flow have": _each(
        "chain", step(1, attributes=[NOTE]), step(2, attributes=[NOTE])
    ),
    "is not of the type": [
        *_each("chain", *(put(f"{S}/5/attributes/0/value", new) for new in ("1", 1.0, True, None, [1], {}, 2**63))),
        *_each(
            "chain", *(put(f"{S}/5/attributes/0/type", new) for new in ("ints", "string", "tensor", "", "s", "graph"))
        ),
        *_each(
            "open", *(put(f"{S}/0/attributes/0/value", new) for new in ("half", "Infinity", [0.5], True, None, "1e9"))
        ),
        *_each(
            "open", *(put(f"{S}/4/attributes/0/value", new) for new in ("10", [1.5], [True], ["a"], 1, {"a": 1}, [[1]]))
        ),
        *_each("open", put(f"{S}/2/attributes/0/value", 3), put(f"{S}/2/attributes/0/value", ["w"])),
    ],
    "an attribute is given twice": _each("open", put(f"{S}/0/attributes", lambda old: old * 2)),
    "an attribute names a blob that is no weights": _each("open", put(f"{S}/2/attributes/0/value", "ghost")),
    "a reformat has one input and one output": _each(
        "chain", step(2, inputs=[4, 3]), step(2, inputs=[-1]), step(2, inputs=[]), step(2, outputs=[-1])
    ),
    "a reformat changes the number of dimensions": _each("chain", value(7, dims=["_d0", 3, 16])),
    # control flow
    "unknown control flow": _each("loop", step(0, op="While"), step(3, op="if")),
    "has another number of bodies": _each("loop", step(0, op="If"), put(f"{S}/3/bodies", lambda old: old[:1])),
    "its body has another number of inputs": [
        *_each("loop", step(0, inputs=[1, 2]), step(0, inputs=[1, 2, 0, 0])),
    ],
    "its body has too few outputs": _each("loop", body(0, outputs=[4]), body(3, outputs=[])),
    "an output of control flow is not dynamic": _each(
        "loop", value(8, kind="output", dims=[3]), value(3, kind="planned", dims=[3])
    ),
    "If has one input": _each("loop", step(3, inputs=[]), step(3, inputs=[-1]), step(3, inputs=[7, 7])),
    "Loop has a count, a condition and its state": _each("loop", step(0, inputs=[]), step(0, inputs=[1])),
    "malformed num_scan_inputs": _each(
        "loop",
        step(0, op="Scan"),
        *(
            step(0, op="Scan", attributes=[{"name": "num_scan_inputs", "type": "int", "value": n}])
            for n in (0, -1, 4, 2**40)
        ),
        step(0, op="Scan", attributes=[{"name": "num_scan_inputs", "type": "string", "value": "1"}]),
    ),
    "an axis or direction is needed for each scan": _each(
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
    "a plugin has no absent inputs or outputs": _each("chain", step(1, inputs=[-1]), step(1, outputs=[-1])),
    "a plugin has at least one output": _each("sizes", step(1, outputs=[])),
    "plugins have no such type": _each(
        "chain", value(4, dtype="float64"), value(4, dtype="complex64"), value(4, dtype="uint32")
    ),
    "an output of a plugin has no shape": _each("sizes", value(3, dims=None)),
    "the name of a plugin is too long": _each("chain", put(f"{S}/1/plugin/name", "p" * 1024)),
    "the name of a field is too long": _each("chain", put(f"{FIELD}/name", "ü" * 600)),
    "a plugin field is malformed": _each(
        "chain",
        *(
            put(f"{FIELD}/data", data)
            for data in ("%%%", "AAAAQA", "AAAAQA=", "AAAAQA==\n", "\u00e9", "AAA=", "AAAAQAA=")
        ),
        *(put(f"{FIELD}/type", name) for name in ("FLOAT", "float32", "", "FLOAT64", "INT64")),
    ),
    "the size of a plugin field does not fit its data": _each(
        "chain", *(put(f"{FIELD}/size", size) for size in (-1, 0, 3, 8, 2**62)), put(f"{FIELD}/data", "")
    ),
    "bounds a symbol that is not a size it writes": [
        *_each("sizes", step(0, sizes={"_d0": 1}), step(0, sizes={"gone": 1}), step(1, sizes={"step0_size1": 1})),
    ],
    "a size tensor is not one integer": _each(
        "sizes",
        both(value(2, dtype="float32"), put("outputs/1/dtype", "float32")),
        both(value(2, dims=[1]), put("outputs/1/dims", [1])),
    ),
    "a size tensor is part of an expression": _each(
        "sizes", value(1, dims=[["sum", "step0_size1", 1]]), value(1, dims=[["max", 1, "step0_size1"]])
    ),
    "a shape depends on what is not known yet": [
        *_each("sizes", step(0, sizes={}), step(0, sizes={"step0_size1": "step0_size1"})),
        *_each("sizes", step(0, sizes={"step0_size1": "step1_in0_0"}), value(1, dims=["step1_in0_0"])),
        *_each("sizes", put("programs/0/symbols/3/value", 3), put("programs/0/symbols/3/value", 4)),
    ],
}
