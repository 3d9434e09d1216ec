"""What ``python -m dovetail`` runs: the command line.

Python puts the current folder first on the path for ``-m``, so that a file called ``json.py`` that lies where somebody
looks at a model would be imported and run. It is taken off again before anything else is imported.
"""

from __future__ import annotations

import os
import sys

__all__: list[str] = []


def _leave_current_folder() -> None:
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - pathlib is not imported
        del sys.path[0]


if __name__ == "__main__":
    _leave_current_folder()
    from dovetail.cli import main

    sys.exit(main())
