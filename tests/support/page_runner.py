"""Runs pages that teach: the blocks of each in order, in one folder. ``python -m tests.support.page_runner PAGE...``.

A block of Python with a title is the file of that name; others run one after the other and share their names. Commands
of ``sh`` blocks run. Commands of ``console`` blocks run too and print what the block shows, where ``...`` stands for
anything; a code other than 0 is shown with ``$ echo $?``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import sys
import traceback
from pathlib import Path

from dovetail.cli import main as run_command

_BLOCK = re.compile(r'^```(python|sh|console)(?: title="([^"]+)")?\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", flags=re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(page: Path) -> int:
    """Run every block of a page, and return how many there were."""
    names: dict[str, object] = {}
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    for number, (language, title, text) in enumerate(blocks):
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(text, encoding="utf-8")
        elif language == "python":
            names |= _run_python(text, names, number)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                code, shown = _run_line(line)
                assert code == 0, f"{line}: code {code}\n{shown}"
        else:
            _run_console(_COMMAND.findall(text))
    return len(blocks)


def _run_python(text: str, names: dict[str, object], number: int) -> dict[str, object]:
    path = Path(f"block_{number}.py")
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path), init_globals=names)


def _run_console(commands: list[tuple[str, str]]) -> None:
    """Run commands and hold what they print against the page; ``$ echo $?`` must follow one that fails."""
    code = 0
    for line, expected in commands:
        if line == "echo $?":
            shown, code = f"{code}\n", 0
        else:
            assert code == 0, f"the page does not show the code {code} of the command before: {line}"
            code, shown = _run_line(line)
        _check(line, expected, shown)
    assert code == 0, f"the page does not show the code {code} of its last command"


def _run_line(line: str) -> tuple[int, str]:
    words = shlex.split(line, comments=True)
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        if words[0] == "python" and len(words) == 2:
            runpy.run_path(words[1], run_name="__main__")
            return 0, stream.getvalue()
        assert words[0] == "dovetail", f"only scripts and commands of dovetail can be run: {line}"
        code = run_command(words[1:])
    return code, stream.getvalue()


def _check(line: str, expected: str, shown: str) -> None:
    if not doctest.OutputChecker().check_output(expected, shown, _FLAGS):
        raise AssertionError(f"$ {line}\n--- the page shows\n{expected}\n--- it prints\n{shown}")


def run_pages(pages: list[Path]) -> list[str]:
    """Run each page in a copy of this process and a folder of its own; the names of those that failed."""
    import onnx  # noqa: F401 - what every page imports is imported once, before the copies are made
    import onnxruntime  # noqa: F401

    import dovetail.build.builder
    import dovetail.network.importer.read  # noqa: F401

    return [page.name for page in pages if _run_copy(page) != 0]


def _run_copy(page: Path) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            folder = Path(page.stem)
            folder.mkdir()
            os.chdir(folder)
            assert run_page(page) > 0, "the page has no block to run"
            code = 0
        except BaseException:  # noqa: BLE001 - the copy ends here whatever happened
            print(f"=== {page}", file=sys.stderr)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.path.insert(0, "")
    if failed := run_pages([Path(name) for name in sys.argv[1:]]):
        sys.exit(f"these pages failed: {', '.join(failed)}")
