"""The command line, in a network of its own."""

from __future__ import annotations

import sys

from dovetail.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
