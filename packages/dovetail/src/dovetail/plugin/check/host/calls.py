"""Calling a plugin: whatever a callback raises becomes a finding with the file and line of the raise.

``OWNERS`` names the rule that reports a raise of each callback, so that every other rule that needed the callback can
point there instead of failing too.
"""

from __future__ import annotations

import dis
import os
import sysconfig
import traceback
from pathlib import Path
from typing import Any, Final

from dovetail.plugin.check.isolation.journal import Journal
from dovetail.rules import Blocked

__all__ = [
    "LIBRARY_FOLDERS",
    "OWNERS",
    "CallbackRaised",
    "blocked_by",
    "call",
    "journal",
    "read",
    "read_or",
    "record_in",
]

OWNERS: Final[dict[str, str]] = {
    "create_plugin": "R01",
    "get_capability_interface": "R02",
    "plugin_name": "R03",
    "plugin_version": "R03",
    "plugin_namespace": "R03",
    "name": "R04",
    "field_names": "R05",
    "num_outputs": "R06",
    "format_combination_limit": "R16",
    "timing_cache_id": "R16",
    "metadata_string": "R16",
    "get_aliased_input": "R18",
    "get_output_data_types": "R18",
    "get_output_shapes": "R18",
    "supports_format_combination": "R18",
    "configure_plugin": "R18",
    "get_valid_tactics": "R18",
    "get_workspace_size": "R18",
    "clone": "R24",
    "attach_to_context": "R29",
    "get_fields_to_serialize": "R34",
    "set_tactic": "R40",
    "on_shape_change": "R40",
    "enqueue": "R40",
    "destroy": "R56",
}
"""Callback or attribute -> the rule that reports it when it raises."""

_JOURNALS: Final[list[Journal]] = [Journal()]
"""Where callbacks are recorded."""

_OWN_FOLDER: Final = str(Path(__file__).resolve().parents[3]) + os.sep
LIBRARY_FOLDERS: Final = (_OWN_FOLDER, *(sysconfig.get_path(name) for name in ("stdlib", "platlib", "purelib")))


def journal() -> Journal:
    """The record of callbacks of this process."""
    return _JOURNALS[-1]


def record_in(journal: Journal) -> None:
    """Record the callbacks of this process, which is there for one check alone, where another process can read."""
    _JOURNALS[-1] = journal


class CallbackRaised(Exception):
    """A callback of the plugin raised."""

    def __init__(self, method: str, error: BaseException, where: str) -> None:
        self.method, self.error, self.where = method, error, where
        self.situation = ""
        text = " ".join(str(error).split())
        super().__init__(f"{method} raised {type(error).__name__}: {text} ({where})")

    @property
    def is_deliberate(self) -> bool:
        """Whether the author of the plugin wrote the ``raise`` or ``assert``, so that it refuses and does not fail."""
        trace = self.error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is None or trace.tb_frame.f_code.co_filename.startswith(LIBRARY_FOLDERS):
            return False
        return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def call(target: Any, method: str, *args: Any) -> Any:
    """Call a method of a plugin object, whatever it does.

    Raises:
        CallbackRaised: The method raised, or does not exist.
    """
    _JOURNALS[-1].enter(method)
    try:
        return getattr(target, method)(*args)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise CallbackRaised(method, error, _locate(error, getattr(type(target), method, None))) from error
    finally:
        _JOURNALS[-1].leave()


def read(target: Any, attribute: str) -> Any:
    """Read an attribute of a plugin object, which may be a property of its own.

    Raises:
        CallbackRaised: Reading raised, or the attribute was never set.
    """
    _JOURNALS[-1].enter(attribute)
    try:
        return getattr(target, attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise CallbackRaised(attribute, error, _locate(error, type(target))) from error
    finally:
        _JOURNALS[-1].leave()


def read_or(target: Any, attribute: str, default: Any) -> Any:
    """Read an attribute, or give the default where reading raises; the rule about the attribute reports that."""
    try:
        return read(target, attribute)
    except CallbackRaised:
        return default


def blocked_by(raised: CallbackRaised) -> Blocked:
    """What a rule that needed the callback says."""
    return Blocked(f"{raised.method} raised, see {OWNERS.get(raised.method, 'R18')}")


def _locate(error: BaseException, definition: Any) -> str:
    """The innermost frame outside this package; without one, where the callback was defined."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN_FOLDER)]
    if frames:
        return f"{_shorten(frames[-1].filename)}:{frames[-1].lineno}"
    code = getattr(definition, "__code__", None)
    if code is not None and not code.co_filename.startswith(_OWN_FOLDER):
        return f"{_shorten(code.co_filename)}:{code.co_firstlineno}"
    owner = definition if isinstance(definition, type) else type(definition)
    return f"class {owner.__qualname__}" if isinstance(definition, type) else "not defined by the plugin"


def _shorten(filename: str) -> str:
    path = Path(filename)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename
