"""Open damaged copies of a plugin library, each in a forked process.

Arguments: the library, a folder for copies, the number of random mutations, the seed, and the number of systematic
mutations (all without it). Prints one JSON object for each copy that ended its process by a signal or raised something
else than a named error, and at the end the counts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dovetail.errors import DovetailError
from dovetail.plugin.registry import PluginRegistry

LIMIT_S = 20
VALUES = (0, 1, 2, 7, 8, 16, 0xFF, 0xFFF, 0x1000, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def find_headers(data: bytes) -> dict[str, range]:
    """The parts of the file that the dynamic linker or the validation reads as headers."""
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phnum, shnum = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    parts = {"file header": range(64), "program headers": range(phoff, phoff + 56 * phnum)}
    parts["section headers"] = range(shoff, shoff + 64 * shnum)
    for index in range(phnum):
        kind, _, offset, _, _, size, *_ = struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * index)
        if kind == 2:
            parts["dynamic section"] = range(offset, offset + size)
    return parts


def list_fixed(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Damage of each field of the headers by values at limits, and files that are cut short."""
    for share in range(1, 20):
        yield f"cut to {share} of 20", data[: len(data) * share // 20]
    for size in (8, 16, 40, 63, 64, 65, 120, 200):
        yield f"cut to {size} bytes", data[:size] + b"dovetail_plugin_abi"
    yield "nothing behind", data[:-1]
    for name, part in find_headers(data).items():
        if name == "section headers":
            continue
        for offset in range(part.start, part.stop, 8):
            for value in VALUES:
                changed = bytearray(data)
                struct.pack_into("<Q", changed, offset, value)
                yield f"{name} at {offset - part.start}: {value:#x}", bytes(changed)


def list_random(data: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Damage of one to four random bytes of a random header."""
    chance, parts = random.Random(seed), list(find_headers(data).items())
    for number in range(count):
        name, part = chance.choice(parts)
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            offset = chance.choice(part)
            changed[offset] = chance.choice((changed[offset] ^ (1 << chance.randrange(8)), chance.randrange(256)))
        yield f"{name}, random {number}", bytes(changed)


def open_forked(path: Path) -> str:
    """Open a copy in a child; the outcome."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        status = 3
        try:
            PluginRegistry().load_library(path)
            status = 0
        except DovetailError:
            status = 1
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return ("loaded", "refused", "", "another exception")[os.WEXITSTATUS(status)]


def main() -> None:
    """Try all mutations."""
    source, folder, count, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    data, path, outcomes = source.read_bytes(), folder / "damaged.so", Counter[str]()
    open_forked(source)
    PluginRegistry()
    fixed = list(list_fixed(data))
    if len(sys.argv) > 5:
        fixed = random.Random(seed).sample(fixed, int(sys.argv[5]))
    for title, changed in [*fixed, *list_random(data, count, seed)]:
        path.unlink(missing_ok=True)
        path.write_bytes(changed)
        outcome = open_forked(path)
        outcomes[outcome] += 1
        if outcome not in ("loaded", "refused"):
            print(json.dumps({"damage": title, "outcome": outcome}), flush=True)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
