"""Build the site: ``python -m tools.docs_site [FOLDER]``, in the environment of requirements/docs.txt.

The folder, build/site by default, gets one folder for this version, a list of all versions in it, and a first page that
leads to the newest. Folders of other versions that are there already stay and take part in the list.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.docs_site.api import write_api
from tools.docs_site.commands import find_moved, write_commands
from tools.docs_site.config import write_config
from tools.docs_site.dead_links import find_dead
from tools.docs_site.errors import write_errors
from tools.docs_site.foreign import find_foreign
from tools.docs_site.gather import gather
from tools.docs_site.layout import ROOT
from tools.docs_site.operators import write_operators
from tools.docs_site.versions import read_version, write_versions


def main(arguments: list[str]) -> int:
    """Gather the pages, make those that come from the source, and have the generator write HTML."""
    site = Path(arguments[0] if arguments else ROOT / "build/site").resolve()
    pages = ROOT / "build/docs"
    shutil.rmtree(pages, ignore_errors=True)
    gather(pages, find_moved())
    write_commands(pages)
    write_api(pages)
    write_errors(pages)
    write_operators(pages)
    config = write_config(pages)
    code = generate(config)
    if foreign := find_foreign(pages.parent / "html"):
        raise SystemExit("error: pages fetch from other hosts\n" + "\n".join(foreign))
    if dead := find_dead(pages.parent / "html"):
        raise SystemExit("error: links lead nowhere\n" + "\n".join(dead))
    if code == 0:
        publish(pages.parent / "html", site / read_version())
        write_versions(site)
    return code


def generate(config: Path) -> int:
    """Have the generator of this environment write HTML; a warning of it is a failure."""
    generator = Path(sysconfig.get_path("scripts"), "zensical")
    words = [generator, "build", "--strict", "--clean", "--config-file", config]
    settings = os.environ | {"PYTHONPATH": str(ROOT)}  # for the extension that reads docstrings
    code = subprocess.run(words, env=settings, check=False).returncode  # noqa: S603 - what this tool wrote
    # The generator's page for what is not there works in the root of a host alone; the site has one for all versions.
    (config.parent / "html/404.html").unlink(missing_ok=True)
    return code


def publish(html: Path, folder: Path) -> None:
    """Put what was written in the place of what is there for this version."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(html, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
