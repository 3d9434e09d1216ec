"""Tables of operators: what each back end covers, as ``dovetail parity`` reports it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tools.docs_site.commands import capture
from tools.docs_site.gather import write_page

__all__ = ["write_operators"]


def write_operators(target: Path) -> None:
    """Write the page that compares the back ends of this package operator by operator."""
    document = _compare("cpu", "onnxruntime")
    write_page(target / "reference/operators.md", _show(document))


def _compare(first: str, second: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "operators.json")
        code, printed = capture(["parity", first, second, "--export", str(path)])
        if code:
            raise SystemExit(f"error: dovetail parity ended with code {code}\n{printed}")
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _show(document: dict[str, Any]) -> str:
    first, second = document["a"], document["b"]
    text = (
        f"# Operators\n\nWhat the back ends `{first}` and `{second}` have kernels for, as `dovetail parity {first} "
        f"{second}` reports it. Versions are those at which the schema of an operator changed; *body* means that ONNX "
        "defines the operator by others, which run in its place. What no back end has, a plugin may have. The CUDA "
        "back end has [a page of its own](../cuda-operators.md).\n\n"
        f"| domain | of ONNX | `{first}` | `{second}` |\n|---|---|---|---|\n"
    )
    text += "".join(f"| {d['domain']} | {d['onnx']} | {d['a']} | {d['b']} |\n" for d in document["domains"])
    return text + "".join(_show_domain(row["domain"], document) for row in document["domains"])


def _show_domain(domain: str, document: dict[str, Any]) -> str:
    rows = "".join(_show_row(op) for op in document["ops"] if op["domain"] == domain)
    titles = f"| operator | `{document['a']}` | `{document['b']}` | types of one of them |\n|---|---|---|---|\n"
    return f"\n## {domain}\n\n{titles}{rows}"


def _show_row(op: dict[str, Any]) -> str:
    body = "body" if op["has_body"] else "-"
    covered = [_show_versions(op[side]) or body for side in ("a", "b")]
    return f"| {op['op']} | {covered[0]} | {covered[1]} | {_show_types(op)} |\n"


def _show_versions(side: dict[str, Any] | None) -> str:
    return ", ".join(map(str, side["versions"])) if side else ""


def _show_types(op: dict[str, Any]) -> str:
    newest = max((row["version"] for row in op["type_differences"]), default=0)
    parts = [
        f"{name}: {row['constraint']} {' '.join(row[side])}"
        for row in op["type_differences"]
        if row["version"] == newest
        for side, name in (("only_a", "cpu"), ("only_b", "onnxruntime"))
        if row[side]
    ]
    return "; ".join(parts)
