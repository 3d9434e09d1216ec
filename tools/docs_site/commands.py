"""A page for each command: its part of docs/cli.md, what it prints for a small model, and all of its options."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dovetail.cli import main as run_command
from dovetail.cli.catalogue import COMMANDS, PACKAGE_COMMANDS
from tools.docs_site.gather import write_page
from tools.docs_site.layout import ROOT, rewrite_links
from tools.docs_site.samples import write_samples
from tools.docs_site.served import show_server

__all__ = ["EXAMPLES", "SUMMARIES", "find_moved", "split_page", "write_commands"]

SUMMARIES = COMMANDS | {name: command.summary for name, command in PACKAGE_COMMANDS.items()}
"""Every command that has a page, those of packages included, and what it is for."""

_SOURCE = "docs/cli.md"
_FOLDER = "reference/commands"
_SHAPES = "--shapes image:1x3x32x32:4x3x32x32:8x3x32x32"
EXAMPLES: dict[str, tuple[str, ...]] = {
    "build": (
        f"build model.onnx -o model.plan {_SHAPES} --detailed",
        "build averaged.onnx --plugins moving_average.py --shapes x:1x8:4x256:16x4096",
    ),
    "tune": ("tune model.plan",),
    "run": ("run model.plan --shapes image:2x3x32x32", "run model.plan --shapes image:9x3x32x32"),
    "bench": ("bench model.plan --iterations 50 --profile",),
    "compare": ("compare model.onnx --layers --shapes image:2x3x32x32",),
    "inspect": ("inspect model.onnx", "inspect model.plan --layers", "inspect averaged.plan --tuning"),
    "report": ("report model.plan -o report.html",),
    "refit": ("build model.onnx --refit -o refit.plan --quiet", "refit refit.plan --weights weights.npz"),
    "replace": ("replace model.onnx --from c1 --to r2 --op acme::Block -o replaced.onnx",),
    "reduce": ("reduce replaced.onnx -o small.onnx",),
    "check": ("check moving_average.py --fields window=5 --shapes 4x256",),
    "plan": ("plan check model.plan",),
    "provider": ("provider list",),
    "plugin": ("plugin new acme::MyOp", "plugin list --plugins moving_average.py"),
    "parity": ("parity cpu onnxruntime --op Conv",),
    "batch": ("batch model.plan images.npy results", "batch model.plan images.npy results"),
    "trtexec": (
        "trtexec --onnx=model.onnx --shapes=image:2x3x32x32 --fp16 --saveEngine=half.plan --iterations=50 --duration=0",
        "trtexec --onnx=model.onnx --fp61",
    ),
    "migrate": ("migrate double.py --diff", "migrate double.py"),
    "lint": ("lint double.py", "lint double_v3.py"),
}
"""What is run for each command, in this order and in one folder; the others print paths and facts of a machine."""

_CODES = {
    "run model.plan --shapes image:9x3x32x32": 2,
    "trtexec --onnx=model.onnx --fp61": 1,
    "lint double.py": 2,
}
"""Commands that are there to show a failure."""


def find_moved() -> dict[str, str]:
    """The page of each section of docs/cli.md that has one of its own, by ``path#anchor``."""
    return {f"{_SOURCE}#{_anchor(name)}": f"{_FOLDER}/{name}.md" for name in SUMMARIES}


def _anchor(command: str) -> str:
    return f"dovetail-{command}"


def split_page(text: str) -> tuple[str, dict[str, str]]:
    """What docs/cli.md says of all commands, and what it says of each."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    sections = {part.split("\n", 1)[0][3:].removeprefix("dovetail "): part for part in parts[1:]}
    if missing := [name for name in SUMMARIES if name not in sections]:
        raise SystemExit(f"error: {_SOURCE} has no section for {', '.join(missing)}")
    rest = [part for name, part in sections.items() if name not in SUMMARIES]
    return "".join([parts[0], *rest]), {name: sections[name].split("\n", 1)[1].strip() for name in SUMMARIES}


def write_commands(target: Path) -> None:
    """Write the page of the command line without its commands, and one page for each command."""
    moved = find_moved()
    overview, sections = split_page((ROOT / _SOURCE).read_text(encoding="utf-8"))
    text, _ = rewrite_links(overview, _SOURCE, moved)
    write_page(target / "cli.md", f"{text}\n{_list_commands()}")
    shown = show_examples()
    for name, section in sections.items():
        text, _ = rewrite_links(section, _SOURCE, moved, page=f"{_FOLDER}/{name}.md")
        write_page(target / _FOLDER / f"{name}.md", _show_page(name, text, shown.get(name, "")))


def _list_commands() -> str:
    rows = "".join(f"| [dovetail {name}]({_FOLDER}/{name}.md) | {text} |\n" for name, text in SUMMARIES.items())
    return f"## Every command\n\n| command | what it does |\n|---|---|\n{rows}"


def _show_page(name: str, section: str, examples: str) -> str:
    shown = f"## Example\n\n{examples}\n\n" if examples else ""
    _, usage = capture([*shlex.split(name), "-h"])
    return f"# dovetail {name}\n\n{_tell_package(name)}{section}\n\n{shown}## Usage\n\n```text\n{usage.rstrip()}\n```\n"


def _tell_package(name: str) -> str:
    if name not in PACKAGE_COMMANDS:
        return ""
    package = PACKAGE_COMMANDS[name].package
    return f"A command of the package [{package}](../../packages/{package}.md).\n\n"


def show_examples() -> dict[str, str]:
    """The examples of each command as blocks of a page, run in one folder with small models."""
    with tempfile.TemporaryDirectory() as name, _inside(Path(name)):
        write_samples(Path(name))
        shown = {command: "\n\n".join(_show(line) for line in lines) for command, lines in EXAMPLES.items()}
        return shown | {"serve": show_server("serve models")}


def _show(line: str) -> str:
    code, printed = capture(shlex.split(line))
    if code != _CODES.get(line, 0):
        raise SystemExit(f"error: 'dovetail {line}' ended with code {code}\n{printed}")
    return f"```console\n$ dovetail {line}\n{printed.rstrip()}\n```"


def capture(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it writes to both of its streams."""
    if words[0] in PACKAGE_COMMANDS:
        return _capture_apart(words)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            code = run_command(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, stream.getvalue()


def _capture_apart(words: list[str]) -> tuple[int, str]:
    """The same in a process of its own: commands of packages register plugins, which messages of others would list."""
    command = [sys.executable, "-m", "dovetail", *words]
    done = subprocess.run(  # noqa: S603 - a command of this site
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False
    )
    return done.returncode, done.stdout


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ |= {"COLUMNS": "100", "NO_COLOR": "1"}
    sys.path.insert(0, str(folder))
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path.remove(str(folder))
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
