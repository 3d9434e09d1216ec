"""The same for what providers built: kernels with payloads, device code, packed weights, reports and notes.

The numbers are those of the plan "built": a kernel with a packed weight (step 1), a partition with a report (step 4)
and a kernel of the host (step 6), with copies between them. "carried" is a partition with candidates (step 1).
"""

from __future__ import annotations

from tests.adversarial.plan.edits import Case, S, append, both, drop, each, put, step
from tests.support.attack_plans import BUILDER

__all__ = ["BUILT_RULES"]

K, P = f"{S}/1/kernel", f"{S}/4/partition"
NODE = f"{P}/report/nodes/0"
C = f"{S}/1/partition/candidates"
PACKED = "packed/packed:w"
LONG = "n" * 70_000

BUILT_RULES: dict[str, list[Case]] = {
    "has what only kernels and plugins are built to": each(
        "built", step(0, kernel={"tactic": "fast"}), step(4, kernel={}), step(5, kernel={"payload": "kernel:product"})
    ),
    "a plugin that is a kernel has a launch and its code": each(
        "chain", step(1, kernel={}), step(1, kernel={"tactic": "fast"}), step(1, kernel={"version": "1"})
    ),
    "has a workspace that it cannot use": each("built", step(0, workspace_bytes=64), step(3, workspace_bytes=1)),
    "workspace out of range": each("built", *(step(1, workspace_bytes=n) for n in (-1, 2**47, 2**70))),
    "its workspace lies outside the arena": each("built", step(1, workspace_bytes=769), step(4, workspace_bytes=2**30)),
    "lies on the bytes of another value that is still needed": each(
        "built", step(1, workspace_bytes=257), step(4, workspace_offset=256)
    ),
    "names a blob that is no payload": [
        *each("built", *(put(f"{K}/payload", name) for name in ("w", "ghost", "code:main", "kernel:Product"))),
        *each("built", *(put(f"{P}/payload", name) for name in ("", "v", "code:main"))),
    ],
    "names a blob that is no device code": [
        *each("built", *(put(f"{K}/code/main", name) for name in ("w", "ghost", "", "kernel:product"))),
        *each("built", put(f"{P}/code", {"main": "partition:tanh"}), put(f"{P}/code/main", "v")),
        *each("built", put("blobs/code:main/kind", "payload")),
        *each("carried", *(put(f"{C}/code", {"way fast": name}) for name in ("", "ghost", "partition:relu"))),
    ],
    "names candidates that are no payload": each(
        "carried", *(put(f"{C}/payload", name) for name in ("", "ghost", "code:main"))
    ),
    "two pieces of device code have one name": each(
        "carried", *(put(f"{C}/code", {name: "code:way fast"}) for name in ("main", "way slow"))
    ),
    "no step names it": [
        *each("built", drop(f"{K}/code"), put(f"{P}/code", {}), put(f"{P}/code", {"main": "code:main"})),
        *each("carried", drop(C), put(f"{C}/code", {})),
    ],
    "code without a sha256 digest": each("built", put("blobs/code:main/algorithm", "xxh3")),
    "code is bytes": each("built", put("blobs/code:main/dtype", "int8")),
    "only weights can be stripped": each(
        "built", both(put("blobs/code:main/digest", ""), lambda m: m["blobs"]["code:main"].update(stripped=True))
    ),
    "blob does not match its": each(
        "built", put("blobs/code:main/digest", "0" * 64), put("blobs/kernel:product/digest", "0" * 64)
    ),
    # names and texts
    "a name is empty": each("built", put(f"{K}/code", {"": "code:main"}), put(f"{PACKED}/sources", {"": "w"})),
    "a name has a NUL character": each(
        "built",
        put(f"{K}/version", "1\0"),
        put(f"{K}/tactic", "\0"),
        put(f"{K}/code", {"main\0": "code:main"}),
        put(f"{NODE}/op", "Tanh\0"),
        put(f"{NODE}/layers", ["\0"]),
        put(f"{NODE}/tactic", "\0"),
        put(f"{PACKED}/recipe", "\0"),
        put("notes/0/text", "\0"),
    ),
    "a name has over 65536 characters": each(
        "built",
        put(f"{K}/tactic", LONG),
        put(f"{NODE}/name", LONG),
        put(f"{PACKED}/recipe", LONG),
        put("notes/0/text", LONG),
        lambda m: m["notes"][0].update(layer=LONG),
        lambda m: m["programs"][0]["steps"][4]["partition"]["report"].update(refusals={"tanh": LONG}),
        lambda m: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][0].update(made_by=LONG),
    ),
    # reports
    "has a count out of range": each(
        "built",
        *(
            lambda m, f=field, n=number: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][1].update({f: n})
            for field in ("flops", "bytes")
            for number in (-1, 2**63, 2**80)
        ),
        put("passes/0/changes", -1),
    ),
    "has a negative time": each(
        "built",
        lambda m: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][1].update(time_us=-0.5),
        put("phases/0/seconds", -0.5),
    ),
    "names what does not come before it, or is not there": each(
        "built",
        *(
            lambda m, f=field, n=number: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][1].update(
                {f: [n]}
            )
            for field, numbers in (("inputs", (-1, 1, 2**70)), ("reads", (-1, 9)), ("writes", (-1, 9)))
            for number in numbers
        ),
    ),
    "is in a node that does not come before it": each(
        "built",
        *(
            lambda m, n=number: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][1].update(parent=n)
            for number in (-2, 1, 9)
        ),
    ),
    "has a shape that cannot be": each(
        "built",
        *(
            lambda m, n=shape: m["programs"][0]["steps"][4]["partition"]["report"]["nodes"][1].update(shape=n)
            for shape in ([-2], [2**63], [1] * 65)
        ),
    ),
    # packed weights
    "are no weights of the plan": each(
        "built",
        put("packed", lambda old: {"ghost": old["packed:w"]}),
        put("packed", lambda old: {"code:main": old["packed:w"]}),
    ),
    "names another provider": each("built", put(f"{PACKED}/provider", "tensorrt"), put(f"{PACKED}/provider", "")),
    "a source is no weights of the plan": each(
        "built", *(put(f"{PACKED}/sources/w", name) for name in ("ghost", "kernel:product", "code:main"))
    ),
    "a source is packed itself": each("built", put(f"{PACKED}/sources/w", "packed:w")),
    "some of its sources are stored and some are not": each(
        "built", put(f"{PACKED}/sources", {"w": "w", "v": ""}), put(f"{PACKED}/sources", {"a": "", "w": "w"})
    ),
    "has another shape than its blob": each("built", put("programs/0/values/2/dims", [9])),
    "names a blob that is not weights": each("built", put("programs/0/values/2/blob", "kernel:product")),
    "touches a value in the memory of another provider": each(
        "built", both(put(f"{S}/1/provider", "cpu"), append(f"{S}/1/inputs", 2)), put(f"{S}/4/provider", BUILDER)
    ),
}
