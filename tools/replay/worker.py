"""Replay of every case in this process: one text file for each build."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one text file for each build of the selected cases.

    Args:
        arguments: Command line; that of the process if None.

    Returns:
        0, or 1 if a case could not be replayed, which is a defect of this tool or of a test helper.
    """
    parser = argparse.ArgumentParser(prog="replay.worker", description="Replay the cases with this source tree.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--suite", action="append", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args(arguments)
    start, num_builds = time.perf_counter(), 0
    for suite in args.suite:
        for name, text in _replay(suite, is_quick=args.quick, only=args.only):
            path = args.out / suite / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            num_builds += path.suffix == ".txt"
    print(f"{args.out}: {num_builds} builds in {time.perf_counter() - start:.0f} s")
    return 0 if num_builds else _fail(f"no case contains {args.only!r}")


def _replay(suite: str, *, is_quick: bool, only: str) -> Iterator[tuple[str, str]]:
    _check_tree()
    if suite == "cpu":
        from replay.cpu_suite import replay_cpu

        return replay_cpu(is_quick=is_quick, only=only)
    if importlib.util.find_spec("triton") is None:
        raise SystemExit(
            "replay: the suite 'cuda' needs Triton; use `make replay`, or CUDA=off for the CPU cases alone"
        )
    from replay.cuda_suite import replay_cuda

    return replay_cuda(is_quick=is_quick, only=only)


def _check_tree() -> None:
    """Reject an installed package: the text would describe another version than that of the folder."""
    import dovetail

    if not Path(dovetail.__file__).is_relative_to(Path.cwd()):
        raise SystemExit(f"replay: dovetail is imported from {dovetail.__file__}, not from {Path.cwd()}")


def _fail(message: str) -> int:
    print(f"replay: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
