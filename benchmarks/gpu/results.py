"""Results by commit: each call adds its rows to what earlier calls found, as JSON and as a table for people."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.gpu.rows import MAX_BUILD_S, MAX_ERROR, MAX_LOAD_MS, MAX_REBUILD_S, Row, find_rows

__all__ = ["Results", "describe_machine", "find_commit"]

_HEAD = "| row | ms | peer | part | most | compile | error | build s | again s | load ms | launches | elsewhere |"
_PACKAGES = ("cuda-bindings", "triton", "torch", "torchvision", "transformers", "onnx", "numpy", "nvidia-cudnn-cu13")


def find_commit() -> str:
    """The commit that is measured: what the caller says where there is no repository."""
    return (os.environ.get("COMMIT") or _ask("git", "rev-parse", "HEAD"))[:12] or "unknown"


def _ask(*command: str) -> str:
    """What a program prints; nothing where it is not there."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def describe_machine() -> dict[str, Any]:
    """Device, driver, versions and date."""
    return {
        "device": _ask("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "python": platform.python_version(),
        "versions": {name: version for name in _PACKAGES if (version := _find_version(name))},
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
    }


def _find_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


class Results:
    """The rows of one commit, in a folder that other calls use too."""

    def __init__(self, folder: Path, commit: str) -> None:
        self._path = folder / f"gpu-{commit}.json"
        found = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.commit = commit
        self.machine: dict[str, Any] = found.get("machine", {})
        self.rows: dict[str, dict[str, Any]] = found.get("rows", {})

    def add(self, row: Row, side: str, found: dict[str, Any]) -> None:
        """Keep what one side of a row gave."""
        self.rows.setdefault(row.name, {})[side] = found

    def save(self) -> None:
        """Write both files."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        whole = {"commit": self.commit, "machine": self.machine, "rows": self.rows}
        self._path.write_text(json.dumps(whole, indent=1) + "\n")
        self._path.with_suffix(".md").write_text(self.make_table())

    def make_table(self) -> str:
        """The rows for people; what misses its limit is marked."""
        lines = [_show_machine(self.commit, self.machine), "", _HEAD, "|" + "---|" * 12]
        lines += [_show_row(row, self.rows[row.name]) for row in find_rows([]) if row.name in self.rows]
        return "\n".join([*lines, "", *_list_notes(self.rows)]) + "\n"


def _show_machine(commit: str, machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.get("versions", {}).items())
    text = f"Commit {commit}, {machine.get('date', '')}, {machine.get('device', '')}, {versions}."
    count = machine.get("builds_at_once", 1)
    return text if count == 1 else f"{text} Builds ran {count} at once, so that they took longer and chose by chance."


def _show_row(row: Row, sides: dict[str, dict[str, Any]]) -> str:
    ours, build, again = (sides.get(side, {}) for side in ("run", "build", "rebuild"))
    made = again if "launches" in again else build
    calibrator = {int(batch): ms for batch, ms in sides.get("calibrator", {}).items() if batch.isdecimal()}
    peer = row.scale_peer(calibrator) if calibrator else row.peer_ms
    peer = sides.get("plain", {}).get("ms", peer)
    part = ours["ms"] / peer if "ms" in ours else None
    failed = " ".join(f"{side}: {found['failed'][:200]}" for side, found in sides.items() if "failed" in found)
    cells = [
        row.name,
        _show(ours.get("ms"), 3),
        _show(peer, 3),
        _show(part, 2, row.most),
        f"{row.most:.2f}",
        _show(sides.get("witness", {}).get("ms"), 3),
        _show_error(ours.get("error")),
        _show(build.get("build_s"), 1, MAX_BUILD_S),
        _show(again.get("build_s"), 1, MAX_REBUILD_S),
        _show(ours.get("load_ms"), 0, MAX_LOAD_MS),
        str(made.get("launches", "")),
        ", ".join(f"{count} {op}" for op, count in build.get("elsewhere", {}).items())
        or failed[:300].replace("\n", " "),
    ]
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


def _show(value: float | None, digits: int, most: float = math.inf) -> str:
    return "" if value is None else f"{value:.{digits}f}" + (" (!)" if value > most else "")


def _show_error(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}" + ("" if error < MAX_ERROR else " (!)")


def _list_notes(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Why something runs elsewhere, what PyTorch's own float16 is off, and what a plugin costs."""
    notes = []
    for name, sides in rows.items():
        made = {**sides.get("build", {}), **sides.get("rebuild", {})}
        notes += [f"- {name}: {count} x {reason}" for reason, count in made.get("reasons", {}).items()]
        if "torch_error" in sides.get("export", {}):
            notes.append(f"- {name}: float16 in PyTorch is off by {sides['export']['torch_error']:.1e}")
        if "extra_us" in sides.get("plugin", {}):
            cost = sides["plugin"]
            notes.append(f"- {name}: a plugin of {cost['kernel_us']:.1f} us costs {cost['extra_us']:.1f} us more")
    return notes
