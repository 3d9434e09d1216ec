"""What ``python -m dovetail`` runs: the command line."""

from __future__ import annotations

import sys

from dovetail.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
