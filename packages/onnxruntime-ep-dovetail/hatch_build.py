"""The build hook: compiles the native part of the package, which the package does not work without.

An install in place gets its files in the source tree, where git ignores them; a wheel gets them from a folder of its
own. A build that cannot compile ends with one line that says what to install. Run as a script, it compiles into the
source tree with whichever Python runs it, for a machine where nothing can be installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

PACKAGE = Path("onnxruntime_ep_dovetail", "library")
LIBRARY = "libdovetail_ep.so"
FLAGS = ["-O2", "-fPIC", "-shared", "-fexceptions", "-fvisibility=hidden", "-Wall", "-Wextra"]


class CompileError(Exception):
    """The native part cannot be compiled here."""


def find_compiler() -> list[str]:
    """Return the C compiler as words of a command line: CC, or else the one Python was built with, or cc."""
    named = os.environ.get("CC")
    for command in [named] if named else [sysconfig.get_config_var("CC"), "cc"]:
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    what = f"CC names '{named}', which is not there" if named else "none was found"
    raise CompileError(f"a C compiler is needed to build it from source, and {what}: install gcc or clang, or a wheel")


def find_headers() -> str:
    """Return the folder with Python.h of the Python that builds."""
    folder = sysconfig.get_path("include")
    if not Path(folder, "Python.h").is_file():
        package = f"python{sysconfig.get_python_version()}-dev"
        raise CompileError(f"Python.h is needed to build it from source, and {folder} has none: install {package}")
    return folder


def compile_file(command: list[str], source: Path, target: Path) -> None:
    """Compile one source file to one shared library, which replaces an older one whole."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    words = [*command, "-o", str(temporary), str(source), "-ldl", "-lpthread"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        temporary.unlink(missing_ok=True)
        raise CompileError(f"{shlex.join(words)} failed:\n{finished.stderr}")
    # A process that has the old file loaded keeps it: the new one is another file under the same name.
    temporary.replace(target)


def compile_all(source: Path, target: Path, *more: str) -> None:
    """Compile the library and the extension module of a source folder into a target folder."""
    command = [*find_compiler(), *FLAGS, *more]
    headers = find_headers()
    compile_file(command, source / "library.c", target / LIBRARY)
    extension = f"_compute{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_file([*command, f"-I{headers}"], source / "compute.c", target / extension)


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Adds the shared library and the extension module to a wheel, or to the source tree of an install in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        try:
            self._compile(version, build_data)
        except CompileError as error:
            self.app.abort(f"onnxruntime-ep-dovetail: {error}")

    def _compile(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src", PACKAGE)
        if version == "editable":
            compile_all(source, source, "-Werror")
            return
        self._folder = tempfile.TemporaryDirectory(prefix="dovetail-ep-build-")
        compile_all(source, Path(self._folder.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        built = Path(self._folder.name).iterdir()
        build_data["force_include"].update({str(path): str(PACKAGE / path.name) for path in built})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        if version != "editable":
            self._folder.cleanup()


if __name__ == "__main__":
    folder = Path(__file__).parent / "src" / PACKAGE
    compile_all(folder, folder)
