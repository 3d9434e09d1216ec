"""Every error a user can meet, each saying what, where, expected, got and fix.

The classes are split by *who must act*: the author of the model, of the plugin, of the back end, the person who
passes inputs, or us. Everything here may be used from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.escapes import escape, escape_line

if TYPE_CHECKING:
    from traceback import FrameSummary

__all__ = [
    "BuildCancelledError",
    "BuildError",
    "DeviceMissingError",
    "DovetailError",
    "ForeignLibraryError",
    "InputError",
    "InternalError",
    "ModelError",
    "PlanCorruptError",
    "PlanDeviceMismatchError",
    "PlanError",
    "PlanTrustError",
    "PlanVersionError",
    "PluginError",
    "ProviderError",
    "ResourceError",
    "RunCancelledError",
    "TimingCacheError",
    "UnsupportedOpError",
    "UsageError",
]


class DovetailError(Exception):
    r"""The root of all errors raised on purpose.

    >>> str(InputError("shape does not fit", where="input 'x'", expected="(1..8, 3)", got="(9, 3)", fix="split it"))
    "input 'x': shape does not fit; expected (1..8, 3), got (9, 3)\n  fix: split it"
    """

    exit_code = 2
    """What the command line returns for this class (see docs/cli.md)."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = None,
        got: object = None,
        fix: str | None = None,
    ) -> None:
        # Names from files stand in all of these, and every message may end on a terminal.
        self.what = escape(what)
        self.where = None if where is None else escape_line(where)
        self.expected = expected
        self.got = got
        self.fix = None if fix is None else escape(fix)
        self.parts: tuple[DovetailError, ...] = ()
        """The single errors that one gathers; none for an error about one thing."""
        super().__init__(_format_message(self.what, self.where, expected, got, self.fix))

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the line that called Dovetail, and the message.

        IPython asks for it by this name. ``DOVETAIL_TRACEBACK=1`` in the environment shows every frame.
        """
        import os
        import traceback

        if os.environ.get("DOVETAIL_TRACEBACK"):
            return "".join(traceback.format_exception(self)).splitlines()
        frames = _find_caller(traceback.extract_tb(self.__traceback__))
        return "".join([*traceback.format_list(frames), *traceback.format_exception_only(self)]).splitlines()


def _find_caller(frames: list[FrameSummary]) -> list[FrameSummary]:
    """The last frame before the first of Dovetail's own, which is the line that somebody wrote."""
    package = __file__.rpartition("errors.py")[0]
    ours = next((index for index, frame in enumerate(frames) if frame.filename.startswith(package)), len(frames))
    return frames[max(ours - 1, 0) : max(ours, 1)]


def _format_message(what: str, where: str | None, expected: object, got: object, fix: str | None) -> str:
    text = f"{where}: {what}" if where else what
    facts = [f"expected {escape(expected)}"] if expected is not None else []
    if got is not None:
        facts.append(f"got {escape(got)}")
    if facts:
        text += "; " + ", ".join(facts)
    return f"{text}\n  fix: {fix}" if fix else text


class UsageError(DovetailError):
    """A call or a command line that can never be right."""

    exit_code = 1


class ModelError(DovetailError):
    """The model or network is wrong."""


class UnsupportedOpError(ModelError):
    """The model is right, but no provider and no plugin takes one of its operators."""

    exit_code = 3


class InputError(DovetailError):
    """What was passed to a run does not fit the engine."""


class PluginError(DovetailError):
    """A plugin or its creator broke the contract or raised."""


class ForeignLibraryError(PluginError):
    """A compiled plugin library has another binary interface than this version of Dovetail."""


class ProviderError(DovetailError):
    """A back end broke its contract or raised."""


class DeviceMissingError(ProviderError):
    """A back end has no such device here."""

    exit_code = 6


class BuildError(DovetailError):
    """The network could not be turned into a plan."""

    exit_code = 3


class BuildCancelledError(BuildError):
    """A progress monitor said stop."""


class RunCancelledError(DovetailError):
    """Whoever asked for a run wants it to end before it is done."""


class TimingCacheError(BuildError):
    """A timing cache is damaged, from another device, or lacks an entry that was required."""

    exit_code = 4


class PlanError(DovetailError):
    """A plan file cannot be used."""

    exit_code = 5


class PlanCorruptError(PlanError):
    """The file is damaged: a rule of the container or a digest does not hold."""


class PlanVersionError(PlanError):
    """The file was written by a version this one does not read."""


class PlanDeviceMismatchError(PlanError):
    """The plan was built for a device or provider that is not here."""


class PlanTrustError(PlanError):
    """The plan carries code, and the caller did not allow that kind of code."""


class ResourceError(DovetailError):
    """Memory, disk or time ran out."""

    exit_code = 6


class InternalError(DovetailError):
    """A bug in Dovetail itself; please report it."""

    exit_code = 70
