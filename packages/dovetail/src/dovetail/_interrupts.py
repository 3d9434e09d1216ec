"""Ctrl-C while something is imported: it takes effect when the import is done.

An import that is broken off leaves modules behind that cannot be imported again in the same process: NumPy and ONNX
Runtime refuse to be initialised twice. So the first use of Dovetail, which imports them, is finished first.
"""

from __future__ import annotations

__all__ = ["UninterruptedImport"]


class UninterruptedImport:
    """A block in which Ctrl-C waits; it is raised when the block ends.

    Only the main thread hears of signals; elsewhere nothing needs to be done.
    """

    def __enter__(self) -> None:
        import signal  # late, and none of typing: `import dovetail` has to be fast
        import threading

        self._heard: tuple[int, object] | None = None
        self._before: object = None
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):  # ignored, or not Python's
            return
        self._before = before
        signal.signal(signal.SIGINT, self._hear)

    def _hear(self, number: int, frame: object) -> None:
        self._heard = (number, frame)

    def __exit__(self, *exc: object) -> None:
        if self._before is None:
            return
        import signal

        before = self._before
        signal.signal(signal.SIGINT, before)  # type: ignore[arg-type]  # it was there
        if self._heard is not None and callable(before):
            before(*self._heard)
