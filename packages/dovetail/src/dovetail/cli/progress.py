"""Who is told how far a command is that builds or tunes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.cli.streams import messages

if TYPE_CHECKING:
    from dovetail.build.progress import IProgressMonitor

__all__ = ["make_monitor"]


def make_monitor(*, quiet: bool, verbose: bool) -> IProgressMonitor | None:
    """Progress is for a person who waits: on a terminal, and in a log only when it was asked for."""
    from dovetail.build.progress import make_progress

    stream = messages()
    return make_progress(stream, quiet=quiet or not (verbose or stream.isatty()))
