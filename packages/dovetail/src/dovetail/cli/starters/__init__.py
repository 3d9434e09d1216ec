"""Where a new plugin starts: a library that passes the checker, and its test, with the names filled in."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.resources import files
from string import Template
from typing import Final

from dovetail.errors import UsageError

__all__ = ["FORMS", "make_starter"]

FORMS: Final = ("layer", "class")
_NAME: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9_.]*)::)?([A-Za-z][A-Za-z0-9_]*)")
_DEFAULT_DOMAIN: Final = "custom"
"""Of the ONNX node, where the name has none."""
_IMPORTED: Final = frozenset(("dovetail", "numpy", "onnx", "pytest"))
"""What the files import."""


def make_starter(name: str, form: str) -> dict[str, str]:
    """The files of a new plugin, by their names.

    >>> sorted(make_starter("acme::ScaledRelu", "layer"))
    ['scaled_relu.py', 'test_scaled_relu.py']

    Args:
        name: The operator, or ``DOMAIN::OP``.
        form: One of ``FORMS``: a function, or a class under the plugin contract.

    Raises:
        UsageError: The name is none that an operator can have.
    """
    match = _NAME.fullmatch(name[:200])
    if match is None:
        raise UsageError("this is no name for an operator", where=repr(name[:80]), expected="MyOp, or acme::MyOp")
    namespace, op = match[1] or "", match[2]
    function = _snake_case(op)
    names = {
        "name": name,
        "op": op,
        "namespace": namespace,
        "domain": namespace or _DEFAULT_DOMAIN,
        "function": function,
        "file": function,
        "namespace_attribute": f', plugin_namespace="{namespace}"' if namespace else "",
    }
    return {
        f"{function}.py": _fill(f"{form}.txt", names),
        f"test_{function}.py": _fill("test.txt", names),
    }


def _snake_case(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    # A file beside the test goes before every installed module of its name, and the test itself needs some.
    is_taken = keyword.iskeyword(words) or words in sys.stdlib_module_names or words in _IMPORTED
    return f"{words}_" if is_taken else words


def _fill(template: str, names: dict[str, str]) -> str:
    return Template(files(__name__).joinpath(template).read_text(encoding="utf-8")).substitute(names)
