"""``python -m tests.fuzz MINUTES [TARGET...]``: fuzz each target for its share of the time, one process at a time.

What may not happen: a process that ends, an exception that is no named error, a case over five seconds, a process over
two gigabytes. Each is written to ``build/fuzz`` and told. Counts are added to ``tests/fuzz/counts.json``, and
cases that end in a way that no kept one does are kept in ``tests/fuzz/corpus``.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any, Final

from tests.fuzz.targets import CORPUS, MAX_KEPT_BYTES, TARGETS, read_corpus

_ROOT: Final = Path(__file__).parents[2]
_COUNTS: Final = Path(__file__).parent / "counts.json"
_FOUND: Final = _ROOT / "build" / "fuzz"
_CASE_SECONDS: Final = 5.0
_WALL_SECONDS: Final = 30.0
"""A machine that does other things as well may take so long for what takes a second of its own."""
_MAX_KIB: Final = 2 << 20
_MAX_KEPT: Final = 150
_START_SECONDS: Final = 120.0


class Campaign:
    """The cases of one target."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self.slowest_s = 0.0
        self.peak_kib = 0
        self._corpus = read_corpus(name)
        self._data = b""
        self._end = 0.0

    def run(self, seconds: float) -> None:
        """Run cases for so long, in a new process whenever one has ended."""
        self._end = time.monotonic() + seconds
        while time.monotonic() < self._end:
            self._run_process()
        if self.name not in ("plans", "cuda"):  # their cases are numbers
            self._save_corpus()

    def _run_process(self) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker"]
        command += [self.name, str(self.seed), str(self.number)]
        errors = (_FOUND / f"{self.name}.stderr").open("wb")
        with errors, subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=errors) as process:
            try:
                self._watch(process)
            finally:
                process.kill()
                process.wait()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        pipe = process.stdout
        assert pipe is not None
        begun, cpu_s, is_ready = time.monotonic(), 0.0, False
        while time.monotonic() < self._end or not is_ready:
            line = _read_line(pipe, 0.5)
            if line:
                facts = json.loads(line)
                if not is_ready:  # the time is for cases, and not for getting ready
                    self._end, is_ready = self._end + time.monotonic() - begun, True
                if "begin" in facts:
                    self._data, begun, cpu_s = (
                        base64.b64decode(facts["data"]),
                        time.monotonic(),
                        _cpu_seconds(process.pid),
                    )
                else:
                    self._finish(facts, time.monotonic() - begun)
                self._check_memory(process.pid)
                continue
            if line == b"" or process.poll() is not None:
                self._end_of_process(process.wait(), is_ready)
                return
            waited, used_s = time.monotonic() - begun, _cpu_seconds(process.pid) - cpu_s
            if is_ready and (waited > _WALL_SECONDS or used_s > _CASE_SECONDS):
                self._report(f"hang: {waited:.1f} s, {used_s:.1f} s of its own")
                self.number += 1
                return
            if not is_ready and waited > _START_SECONDS:
                raise SystemExit(f"the process for '{self.name}' does not start")

    def _end_of_process(self, code: int, is_ready: bool) -> None:
        text = (_FOUND / f"{self.name}.stderr").read_text(errors="replace")
        if not is_ready:
            raise SystemExit(f"the process for '{self.name}' ended with {code}\n{text[-2000:]}")
        self._report(f"the process ended with {code}\n{text[-3000:]}")
        self.number += 1

    def _finish(self, facts: dict[str, Any], seconds: float) -> None:
        self.slowest_s = max(self.slowest_s, seconds)
        self.number = facts["end"] + 1
        if "foreign" in facts:
            self._report(f"{facts['foreign']}\n{facts['place']}")
            return
        outcome = facts["outcome"]
        self.counts[outcome.partition(":")[0]] += 1
        if outcome not in self._corpus and len(self._data) <= MAX_KEPT_BYTES and len(self._corpus) < _MAX_KEPT:
            self._corpus[outcome] = self._data

    def _report(self, what: str) -> None:
        first = what.splitlines()[0]
        self.found.append(first)
        self.counts["FOUND"] += 1
        path = _FOUND / f"{self.name}-{self.seed}-{self.number}"
        path.with_suffix(".case").write_bytes(self._data)
        path.with_suffix(".txt").write_text(what, encoding="utf-8")
        print(f"{self.name} {self.seed}/{self.number}: {first}", flush=True)

    def _check_memory(self, pid: int) -> None:
        peak = _peak_kib(pid)
        if peak > _MAX_KIB >= self.peak_kib:
            self._report(f"the process has {peak} KiB")
        self.peak_kib = max(self.peak_kib, peak)

    def _save_corpus(self) -> None:
        CORPUS.mkdir(exist_ok=True)
        kept = {name: base64.b64encode(data).decode() for name, data in sorted(self._corpus.items())}
        (CORPUS / f"{self.name}.json").write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _read_line(pipe: IO[bytes], seconds: float) -> bytes | None:
    """The next line; None when there is none yet, and nothing at the end."""
    if not select.select([pipe], [], [], seconds)[0]:
        return None
    return pipe.readline()


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _add_counts(campaign: Campaign, seconds: float) -> None:
    known = json.loads(_COUNTS.read_text(encoding="utf-8")) if _COUNTS.exists() else {}
    entry = known.setdefault(campaign.name, {"cases": 0, "seconds": 0, "outcomes": {}})
    entry["cases"] += campaign.number
    entry["seconds"] += round(seconds)
    entry["slowest_s"] = round(max(entry.get("slowest_s", 0), campaign.slowest_s), 1)
    entry["peak_mib"] = max(entry.get("peak_mib", 0), campaign.peak_kib >> 10)
    for outcome, count in campaign.counts.items():
        entry["outcomes"][outcome] = entry["outcomes"].get(outcome, 0) + count
    _COUNTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(minutes: float, names: list[str]) -> int:
    """Fuzz and count; the exit code says whether anything was found."""
    _FOUND.mkdir(parents=True, exist_ok=True)
    found = 0
    for name in names:
        known = json.loads(_COUNTS.read_text(encoding="utf-8")) if _COUNTS.exists() else {}
        campaign = Campaign(name, seed=known.get(name, {}).get("cases", 0))
        start = time.monotonic()
        campaign.run(minutes * 60 / len(names))
        _add_counts(campaign, time.monotonic() - start)
        print(f"{name}: {campaign.number} cases, {dict(campaign.counts.most_common(8))}")
        found += len(campaign.found)
    print(f"{found} found" + (f"; see {_FOUND.relative_to(_ROOT)}" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:] or list(TARGETS)))
