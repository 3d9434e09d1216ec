"""The build hook: compiles the native part of the package when there is a C compiler, and leaves it out when not.

An install in place gets its files in the source tree, where git ignores them; a wheel gets them from a folder of its
own. DOVETAIL_EP_BUILD_NATIVE=0 builds without them on purpose. A compiler that is there and fails is an error, because
a slower package is not what was asked for.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("onnxruntime_ep_dovetail", "library")
LIBRARY = "libdovetail_ep.so"
FLAGS = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]


def find_compiler() -> list[str] | None:
    """Return the C compiler as words of a command line: CC, the one Python was built with, or cc."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"):
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            return words
    return None


def compile_file(compiler: list[str], flags: list[str], source: Path, target: Path) -> None:
    """Compile one source file to one shared library, which replaces an older one whole."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, *flags, "-o", str(temporary), str(source), "-ldl", "-lpthread"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        temporary.unlink(missing_ok=True)
        raise RuntimeError(f"{shlex.join(command)} failed:\n{finished.stderr}")
    # A process that has the old file loaded keeps it: the new one is another file under the same name.
    temporary.replace(target)


def load_host_module(source: Path) -> ModuleType:
    """Load host.py by its path, because the package is not installed yet."""
    spec = importlib.util.spec_from_file_location("dovetail_ep_host", source / "host.py")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{source / 'host.py'} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NativeBuildHook(BuildHookInterface):  # type: ignore[type-arg, misc, unused-ignore]
    """Adds the shared library and the extension module to a wheel, or to the source tree of an install in place."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected."""
        compiler = None if os.environ.get("DOVETAIL_EP_BUILD_NATIVE") == "0" else find_compiler()
        if compiler is None:
            self.app.display_warning("no C compiler: the package will do without its native part")
            return
        source = Path(self.root, "src", PACKAGE)
        if version == "editable":
            self._compile(compiler, ["-Werror"], source, source)
            return
        self._folder = Path(tempfile.mkdtemp(prefix="dovetail-ep-build-"))
        self._compile(compiler, [], source, self._folder)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(path): str(PACKAGE / path.name) for path in self._folder.iterdir()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder)

    def _compile(self, compiler: list[str], flags: list[str], source: Path, target: Path) -> None:
        compile_file(compiler, flags, source / "library.c", target / LIBRARY)
        load_host_module(source).write_record(target)
        include = sysconfig.get_path("include")
        if Path(include, "Python.h").is_file():
            name = f"_compute{sysconfig.get_config_var('EXT_SUFFIX')}"
            compile_file(compiler, [*flags, f"-I{include}"], source / "compute.c", target / name)
        else:
            self.app.display_warning(f"no Python.h in {include}: the package will run partitions through ctypes")
