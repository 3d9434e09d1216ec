"""A page for each class of errors and each exit code, with messages that programs of this site really raise."""

from __future__ import annotations

import contextlib
import re
import runpy
import tempfile
from pathlib import Path

from dovetail import errors
from dovetail.errors import DovetailError
from tools.docs_site.error_samples import SAMPLES, ErrorSample
from tools.docs_site.gather import write_page
from tools.docs_site.layout import ROOT

__all__ = ["raise_sample", "read_codes", "write_errors"]


def write_errors(target: Path) -> None:
    """Write the pages, and one that lists them."""
    codes = read_codes()
    for name in errors.__all__:
        write_page(target / "errors" / f"{name}.md", _show_class(name, codes))
    for code, meaning in codes.items():
        write_page(target / "errors" / f"exit-{code}.md", _show_code(code, meaning))
    write_page(target / "errors/index.md", _show_index(codes))


def read_codes() -> dict[int, str]:
    """The exit codes and their meanings, from the table of docs/cli.md."""
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8").partition("## For scripts")[2].partition("\n## ")[0]
    return {int(code): meaning for code, meaning in re.findall(r"^\| (\d+) \| (.+?) \|$", text, flags=re.MULTILINE)}


def raise_sample(name: str, sample: ErrorSample) -> str:
    """The message that a program raises, which must be of exactly this class."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("program.py").write_text(sample.program, encoding="utf-8")
        try:
            runpy.run_path("program.py")
        except DovetailError as error:
            if type(error).__name__ != name:
                raise SystemExit(f"error: the program of {name} raises {type(error).__name__}: {error}") from error
            return str(error)
    raise SystemExit(f"error: the program of {name} in tools/docs_site/error_samples.py raises nothing")


def _kind(name: str) -> type[DovetailError]:
    kind: type[DovetailError] = getattr(errors, name)
    return kind


def _show_class(name: str, codes: dict[int, str]) -> str:
    kind, sample = _kind(name), SAMPLES[name]
    above = [base.__name__ for base in kind.__mro__[1:] if issubclass(base, DovetailError)]
    below = sorted(other.__name__ for other in kind.__subclasses__() if other.__module__ == errors.__name__)
    text = f"# {name}\n\n{(kind.__doc__ or '').strip().splitlines()[0]}\n\n"
    text += f"- Exit code of the command line: [{kind.exit_code}](exit-{kind.exit_code}.md), {codes[kind.exit_code]}\n"
    text += f"- Caught by: {_list([name, *above, 'Exception'])}\n"
    text += f"- More particular: {_list(below)}\n" if below else ""
    text += f"\n## What to do\n\n{sample.advice}\n"
    if sample.program:
        shown = raise_sample(name, sample)
        text += f"\n## Example\n\n```python\n{sample.program}```\n\n```text\n{name}: {shown}\n```\n"
    return text


def _list(names: list[str]) -> str:
    return ", ".join(f"[{name}]({name}.md)" if name in errors.__all__ else f"`{name}`" for name in names)


def _show_code(code: int, meaning: str) -> str:
    names = [name for name in errors.__all__ if _kind(name).exit_code == code]
    text = f"# Exit code {code}\n\n{meaning[0].upper()}{meaning[1:]}.\n"
    return text + (f"\nErrors that end a command with it: {_list(names)}.\n" if names else "")


def _show_index(codes: dict[int, str]) -> str:
    text = (
        "# Errors\n\nEvery failure is one message: what, where, what was expected and found, and a line with the fix. "
    )
    text += "Classes say who must act. With `--json`, `kind` is the name of the class.\n\n"
    text += "| error | meaning | exit code |\n|---|---|---|\n"
    for name in errors.__all__:
        kind = _kind(name)
        text += f"| [{name}]({name}.md) | {(kind.__doc__ or '').strip().splitlines()[0]} | {kind.exit_code} |\n"
    text += "\n## Exit codes\n\n| code | meaning |\n|---|---|\n"
    return text + "".join(f"| [{code}](exit-{code}.md) | {meaning} |\n" for code, meaning in codes.items())
