"""Changes to manifests that keep every type right and break one rule of the engine: what the rule says, then the cases.

The numbers are those of tests/support/attack_plans.py: "chain" adds (step 0: values 0 and 2 give 3), works in place
(1: 3 -> 4), reformats (2: 4 -> 5), runs packed (3: 5 -> 6), reformats (4: 6 -> 7), softmax (5: 7 -> 8), fills
(6: 7 -> 9, an output) and negates (7: 8 -> 10, an output).
"""

from __future__ import annotations

from tests.adversarial.plan.edits import FIELD, LIB, Case, S, V, W, both, drop, each, nested, put, step, twice, value

__all__ = ["ENGINE_RULES"]

ENGINE_RULES: dict[str, list[Case]] = {
    # tensors
    "two tensors have the same name": each(
        "chain", put("inputs/1/name", "x"), put("outputs/1/name", "y"), put("outputs/0/name", "x")
    ),
    "the plan has no outputs": each("chain", both(put("outputs", []), put("programs/0/outputs", []))),
    "is an input and has what only outputs have": each(
        "chain", put("inputs/0/alias", "s"), put("inputs/0/max_dims", [1, 3, 4, 4])
    ),
    "aliases no input": each("chain", put("outputs/0/alias", "nobody"), put("outputs/0/alias", "y")),
    "a name is empty": [
        *each("chain", put("inputs/0/name", ""), put(f"{S}/0/op", ""), put("programs/0/symbols/0/name", "")),
        *each("chain", put(f"{S}/1/plugin/name", ""), put(f"{FIELD}/name", ""), put("devices/0/provider", "")),
        *each("library", put("libraries/0/name", "")),
        *each("open", put(f"{S}/0/attributes/0/name", "")),
    ],
    "a name has a NUL character": [
        *each("chain", *(put(f"{path}/name", "x\0y") for path in ("inputs/0", "outputs/0", f"{V}/3", f"{S}/0"))),
        *each("chain", put(f"{S}/0/op", "Add\0"), put(f"{S}/0/domain", "\0"), put("devices/0/provider", "cpu\0")),
        *each("chain", *(put(f"{S}/1/plugin/{part}", "T\0") for part in ("name", "version", "namespace"))),
        *each("chain", put(f"{FIELD}/name", "factor\0"), put("programs/0/symbols/0/name", "_d0\0")),
        *each("chain", put("tuning/0/name", "\0"), put("refit/weights", {"\0": W})),
        *each("library", put("libraries/0/name", "lib\0")),
        *each("open", put(f"{S}/0/attributes/0/name", "alpha\0")),
        *each("loop", put(f"{S}/0/bodies/0/values/0/name", "i\0"), put(f"{S}/0/bodies/0/steps/0/name", "i\0")),
    ],
    "a name has over 65536 characters": each(
        "chain", put(f"{S}/0/name", "n" * 70_000), put("inputs/0/name", "n" * 10**5)
    ),
    "unknown element type": [
        *each(
            "chain",
            *(
                put("inputs/0/dtype", name)
                for name in ("object", "O", "void", "V8", "datetime64[s]", "timedelta64", "S4")
            ),
            *(put(f"{V}/3/dtype", name) for name in ("float31", "f4", "<f4", ">f4", "str", "", "float32\0", "FLOAT")),
            put("outputs/0/dtype", "float"),
            put(f"blobs/{W}/dtype", "f4,f4"),
        ),
        *each("loop", put(f"{S}/0/bodies/0/values/4/dtype", "bool_")),
    ],
    "unknown location": each("chain", put("outputs/0/location", "CLOUD")),
    "unknown format": each("chain", put("outputs/0/format", "CHW33"), value(5, format="chw32"), value(3, format="")),
    "the format does not exist for that rank": [
        *each("chain", put("outputs/1/format", "CHW32"), value(9, format="HWC8"), value(3, format="DLA_LINEAR")),
        *each("sizes", value(1, format="CHW2")),
    ],
    "too many dimensions": each(
        "chain", put("inputs/0/dims", [1] * 33), value(3, dims=[1] * 40), put("inputs/0/dims", [1] * 100_000)
    ),
    "a dimension is out of range": each(
        "chain",
        *(put("outputs/0/dims/1", dim) for dim in (-1, 2**40, 2**63 - 1, -(2**63))),
        *(put(f"{V}/3/dims/1", dim) for dim in (-1, 2**62)),
    ),
    "a dimension has a number out of range": each(
        "chain",
        value(3, dims=[["prod", "_d0", 2**40], 3, 4, 4]),
        value(3, dims=[["sum", ["sub", -(2**63), 1], "_d0"], 3, 4, 4]),
    ),
    "a dimension is malformed": [
        *each("chain", put(f"{V}/3/dims/0", None)),
        *each("sizes", step(0, sizes={"step0_size1": None})),
    ],
    "the manifest is malformed": [
        *each(
            "chain",
            *(put(f"{V}/3/dims/0", dim) for dim in (True, 1.5, {}, [], ["sum"], ["sum", 1], ["sum", 1, 2, 3])),
            *(put(f"{V}/3/dims/0", dim) for dim in (["pow", "_d0", 2], ["sum", None, 1], [["sum"], 1, 2], [1, 2, 3])),
            *(put("outputs/0/dims/1", dim) for dim in (2**63, 2**64, -(2**70), 10**300, ["sum", "_d0", 2**63])),
            put(f"{V}/3/dims/0", nested(250)),
            put("outputs/0/dims/0", ["SumX", "_d0", 1]),
        ),
        *each("sizes", step(0, sizes={"step0_size1": ["max", "_d0"]})),
    ],
    "has what only a build or a value knows of a tensor": each(
        "chain",
        put("inputs/0/scale", 0.5),
        put("outputs/0/shapes", {"min": [1], "opt": [1], "max": [1]}),
    ),
    "has shapes of a profile, which only a build knows": each(
        "chain", put(f"{V}/3/shapes", {"min": [1], "opt": [1], "max": [None]})
    ),
    "has bounds of another rank": [
        *each("sizes", put("outputs/0/max_dims", []), put("outputs/0/max_dims", ["_d0", 1])),
        *each("chain", put("profiles/0/shapes/x", [[1, 3], [2, 3], [4, 3]])),
    ],
    # blobs
    "unknown kind": [
        *each("chain", put(f"blobs/{W}/kind", "code"), step(0, kind="kernels"), step(2, kind="move")),
        *each("loop", step(0, kind="loop")),
    ],
    "unknown digest algorithm": each("chain", *(put(f"blobs/{W}/algorithm", name) for name in ("md5", "", "SHA256"))),
    "code without a sha256 digest": [
        *each("library", put(f"blobs/{LIB}/algorithm", "xxh3")),
        *each("chain", put(f"blobs/{W}/kind", "kernel")),
    ],
    "code is bytes": each("library", both(put(f"blobs/{LIB}/dtype", "int8"))),
    "has too many dimensions": each("chain", put(f"blobs/{W}/shape", [1] * 40)),
    "has a dimension out of range": each("chain", *(put(f"blobs/{W}/shape/1", n) for n in (-1, -3, 2**47, 2**64))),
    "is larger than any memory": each(
        "chain", put(f"blobs/{W}/shape", [2**40, 2**40, 0]), put(f"blobs/{W}/shape", [2**30, 2**30])
    ),
    "only weights can be stripped": each("library", put(f"blobs/{LIB}/stripped", True)),
    "is stripped and has a digest": each("chain", put(f"blobs/{W}/stripped", True)),
    "is stripped and in the file": each("chain", both(put(f"blobs/{W}/stripped", True), put(f"blobs/{W}/digest", ""))),
    "is not in the file": each("chain", put("blobs", lambda old: {**old, "ghost": old[W]})),
    "the file has blobs that the manifest does not name": [
        *each("open", drop("blobs/w")),
        *each("chain", put("blobs", {})),
    ],
    "malformed digest": each(
        "chain",
        *(put(f"blobs/{W}/digest", edit) for edit in (str.upper, lambda d: d[:-1], lambda d: d + "0", lambda d: "")),
    ),
    "blob does not match its": [
        *each("chain", put(f"blobs/{W}/digest", "0" * 32)),
        *each("library", put(f"blobs/{LIB}/digest", "0" * 64)),
        *each("chain", both(put(f"blobs/{W}/algorithm", "sha256"), put(f"blobs/{W}/digest", "a" * 64))),
    ],
    "has another size than its type and shape say": each(
        "chain",
        put(f"blobs/{W}/dtype", "float64"),
        put(f"blobs/{W}/dtype", "float16"),
        put(f"blobs/{W}/dtype", "int4"),
        put(f"blobs/{W}/shape", [1, 4, 1, 1]),
        put(f"blobs/{W}/shape", [0]),
        put(f"blobs/{W}/shape", []),
    ),
    "is stored as another type than the manifest says": [
        *each("chain", put(f"blobs/{W}/dtype", "int32"), put(f"blobs/{W}/dtype", "uint32")),
        *each("loop", put("blobs/keep/dtype", "int8"), put("blobs/limit/dtype", "float64")),
    ],
    "is stored with another shape": each("chain", put(f"blobs/{W}/shape", [3]), put(f"blobs/{W}/shape", [1, 3, 1])),
    # host code
    "names a blob that is no library": [
        *each("library", put("libraries/0/blob", "ghost")),
        *each("library", put("libraries", lambda old: [{**old[0], "blob": ""}])),
        *each("chain", lambda m: m.update(libraries=[{"name": "weights", "blob": W}])),
    ],
    "two libraries name the same blob": each("library", twice("libraries", 0)),
    "a library is carried and not named": each("library", put("libraries", []), drop("libraries")),
    # profiles, devices, tables
    "the engine is open and has profiles": [
        *each("chain", put("open", True)),
        *each("open", put("profiles", [{}])),
    ],
    "there must be one a profile": [
        *each("chain", twice("programs", 0), put("programs", []), twice("profiles", 0)),
        *each("library", twice("programs", 0)),
    ],
    "names an unknown input": each("chain", put("profiles/0/shapes", lambda old: {"q": old["x"]})),
    "has min, opt and max of different lengths": each("chain", put("profiles/0/shapes/x/1", [2, 3, 4])),
    "min, opt and max are not in order": each(
        "chain",
        put("profiles/0/shapes/x", [[4, 3, 4, 4], [2, 3, 4, 4], [1, 3, 4, 4]]),
        put("profiles/0/shapes/x/1/0", 5),
        put("profiles/0/values/s/2", [1, 1]),
    ),
    "has a bound out of range": each(
        "chain", put("profiles/0/shapes/x/2/0", 2**47), put("profiles/0/values/s/2/0", 2**63)
    ),
    "has a negative bound": each("chain", put("profiles/0/shapes/x/0/0", -1)),
    "has bounds for a dimension that is fixed": each("chain", put("profiles/0/shapes/x/2/1", 4)),
    "the plan names no device": each("chain", put("devices", [])),
    "two devices are of one provider": each("chain", twice("devices", 0)),
    "belongs to no profile": each("chain", put("tuning/0/profile", 1), put("tuning/0/profile", -1)),
    "has a negative time": each(
        "chain", *(put(f"tuning/0/candidates/0/{field}", -1.0) for field in ("time_us", "low_us", "high_us"))
    ),
    "has a negative number of rounds": each("chain", put("tuning/0/candidates/0/rounds", -1)),
}
