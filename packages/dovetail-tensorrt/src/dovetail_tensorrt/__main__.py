"""``python -m dovetail_tensorrt script.py args...``: the script runs as by ``python``, with Dovetail as ``tensorrt``.

``python -m dovetail_tensorrt -m module args...`` runs a module, as ``python -m module`` does.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

from dovetail_tensorrt.modules import install

_USAGE: Final = "usage: python -m dovetail_tensorrt (script.py | -m module) [argument ...]"


def main() -> None:
    """Run what the command line names."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{_USAGE}\n\n{__doc__}\n")
        return
    is_module = arguments[:1] == ["-m"]
    if is_module:
        arguments = arguments[1:]
    if not arguments or (arguments[0].startswith("-") and not is_module):
        sys.stderr.write(f"{_USAGE}\n")
        raise SystemExit(2)
    install()
    sys.argv = arguments
    try:
        _run_module(arguments[0]) if is_module else _run_script(arguments[0])
    except Exception as error:  # noqa: BLE001 - what the script raised is shown as Python shows it
        shown = error.with_traceback(_own_frames(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        raise SystemExit(1) from None


def _run_module(name: str) -> None:
    sys.path.insert(0, "")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_script(name: str) -> None:
    path = Path(name)
    if not path.exists():
        sys.stderr.write(f"{Path(sys.executable).name}: can't open file {name!r}: no such file\n")
        raise SystemExit(2)
    if path.is_file():
        sys.path[0] = str(path.resolve().parent)
    runpy.run_path(name, run_name="__main__")


def _own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The frames of the script, without those that started it; all of them where it never started."""
    frame = traceback
    while frame is not None and _is_starter(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame


def _is_starter(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen ")


if __name__ == "__main__":
    main()
