"""Regular expressions from models, in time that is linear in the text whatever the expression is.

ONNX defines them by RE2, and so does ONNX Runtime. Python's own engine tries alternatives one after the other, so that
a pattern of ten characters can run for years: no pattern of a model ever reaches it.
"""

from __future__ import annotations

from typing import Any

from dovetail.errors import ResourceError
from dovetail.providers.cpu.kernels._checks import fail

__all__ = ["compile_pattern"]


def compile_pattern(op: str, pattern: str, *, longest: bool = False) -> Any:
    """An expression that can be matched.

    Args:
        op: Who has it, for messages.
        pattern: The expression, as RE2 writes it: without back references and without looking around.
        longest: Whether a match is as long as it can be, and not the first alternative that fits.

    Raises:
        InputError: RE2 does not take the expression.
        ResourceError: RE2 is not installed.
    """
    try:
        import re2
    except ImportError as error:
        raise ResourceError(
            "this needs the package 'google-re2', which is not installed",
            where=f"op {op}",
            fix="pip install 'dovetail-engine[text]', or build for a provider that runs the operator",
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.longest_match = longest
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        fail(op, f"RE2 does not take the expression: {_reason(error)}", got=ascii(pattern)[:200])


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.decode(errors="backslashreplace") if isinstance(first, bytes) else str(first)
