"""Which Python a host without one should start: found here, written to a file beside the library, read by library.c.

A program that is not Python loads the library through ONNX Runtime, and the library then has to start an interpreter.
It cannot guess which, and a wheel does not know where it will be installed, so
`python -m onnxruntime_ep_dovetail.library.host` writes the one that runs it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path

__all__ = ["RECORD_NAME", "describe_python", "find_libpython", "main", "write_record"]

RECORD_NAME = "libdovetail_ep.python"


def find_libpython() -> Path | None:
    """Return the shared library of this interpreter, or None if it has none because it was linked statically."""
    names = [sysconfig.get_config_var(key) for key in ("INSTSONAME", "LDLIBRARY")]
    folders = [sysconfig.get_config_var("LIBDIR"), str(Path(sys.base_prefix, "lib")), sysconfig.get_config_var("LIBPL")]
    candidates = [Path(folder, name) for folder in folders if folder for name in names if name]
    return next((path for path in candidates if ".a" not in path.suffixes and path.is_file()), None)


def describe_python() -> dict[str, str]:
    """Return what a host must know to start this interpreter; without a libpython there is nothing to start."""
    libpython = find_libpython()
    if libpython is None:
        return {}
    return {"libpython": str(libpython), "executable": sys.executable}


def write_record(folder: Path) -> Path | None:
    """Write the record for this interpreter into a folder and return its path, or None if there is nothing to write."""
    facts = describe_python()
    if not facts or any("\n" in value for value in facts.values()):
        return None
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{RECORD_NAME}-")
    with os.fdopen(handle, "wb") as file:
        file.writelines(os.fsencode(f"{key}={value}\n") for key, value in facts.items())
    Path(temporary).chmod(0o644)
    return Path(temporary).replace(folder / RECORD_NAME)


def main() -> int:
    """Write the record beside the installed library and say so."""
    path = write_record(Path(__file__).resolve().parent)
    if path is None:
        sys.stderr.write("error: this Python has no shared library, so a host that is not Python cannot start it\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
