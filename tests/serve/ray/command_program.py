"""The command line in a network of its own, ended by a signal when a file is there: FILE WORDS..."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from dovetail.cli import main


def end_when(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_when, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.exit(main(sys.argv[2:]))
