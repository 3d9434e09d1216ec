"""``dovetail parity A B``: what two back ends cover of operators, versions and types, and how much of ONNX each has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply, dump_document
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen
from dovetail.cli.settings import require_providers
from dovetail.errors import UsageError
from dovetail.near_names import suggest

if TYPE_CHECKING:
    from dovetail.provider.schemas.parity import Coverage, DomainCounts, OpCoverage, ParityReport, ParityRow

__all__ = ["declare", "run"]

_ONNX: Final = "onnx"
_PLUGIN: Final = "ort-ep:"
_COLUMNS: Final = ("domain", "op", "status", "versions_a", "versions_b", "types_only_a", "types_only_b", "has_body")
_SHOWN_TYPES: Final = 4
_SHOWN_CONSTRAINTS: Final = 2


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    for name in ("a", "b"):
        kinds = f"a provider, '{_ONNX}' for the operator set itself, or {_PLUGIN}NAME for ONNX Runtime's plugin NAME"
        parser.add_argument(name, metavar=name.upper(), help=kinds)
    parser.add_argument("--domain", metavar="D", help="only this domain; 'ai.onnx' for ONNX's own")
    parser.add_argument("--op", metavar="OP", help="only this operator, also when both cover it alike")
    parser.add_argument("--export", metavar="FILE", help="write every operator to FILE.csv, FILE.json or FILE.md")
    finish_command(parser, run)


def run(args: argparse.Namespace) -> Reply:
    """Compare, and export when asked to."""
    from dovetail.provider.schemas.parity import compare

    suffix = _export_suffix(args.export)
    a, b = _cover(args.a), _cover(args.b)
    _require_known(args.domain, args.op, [a, b])
    domain = "" if args.domain == "ai.onnx" else args.domain
    report = compare(a, b, names=(args.a, args.b), domain=domain, op=args.op)
    document = _describe(report)
    if args.export is not None:
        _export(Path(args.export), suffix, document)
    return Reply(document=document, show=_show_one if args.op else _show)


def _require_known(domain: str | None, op: str | None, covers: Sequence[Coverage]) -> None:
    """Check that somebody has heard of the domain and of the operator: ONNX, or one of the two."""
    from dovetail.provider.schemas.op_schemas import onnx_operator_set

    keys = [key for known in (onnx_operator_set(), *covers) for key in known]
    for option, name, names in (
        ("domain", domain, {key[0] or "ai.onnx" for key in keys}),
        ("operator", op, {key[1] for key in keys}),
    ):
        if name is not None and (name or "ai.onnx") not in names:
            raise UsageError(f"there is no {option} {name!a}", where="parity", fix=suggest(name, sorted(names)))


def _cover(name: str) -> Coverage:
    from dovetail.provider.schemas.parity import cover_kernels, cover_onnx

    if name == _ONNX:
        return cover_onnx()
    if not name.startswith(_PLUGIN):
        require_providers([name], where="parity")
    if name == "onnxruntime":  # its registry says more than ranges: an open range serves one schema alone
        from dovetail.providers.onnxruntime.kernel_defs import read_kernel_defs

        return cover_kernels(read_kernel_defs())
    if name.startswith(_PLUGIN):
        from dovetail.providers.onnxruntime.plugin_eps import read_ep_kernels

        return cover_kernels(read_ep_kernels(name.removeprefix(_PLUGIN)))
    from dovetail.provider.loader import get_any_provider

    return cover_kernels(get_any_provider(name).kernels)


# the document


def _describe(report: ParityReport) -> dict[str, Any]:
    return {
        "a": report.a,
        "b": report.b,
        "total": _describe_counts(report.total),
        "domains": [_describe_counts(counts) for counts in report.domains],
        "ops": [_describe_row(row) for row in report.rows],
    }


def _describe_counts(counts: DomainCounts) -> dict[str, Any]:
    from dataclasses import asdict

    facts = asdict(counts)
    return facts | {"domain": None if counts.domain is None else counts.domain or "ai.onnx"}


def _describe_row(row: ParityRow) -> dict[str, Any]:
    return {
        "domain": row.domain or "ai.onnx",
        "op": row.op,
        "status": row.status,
        "is_onnx": row.is_onnx,
        "has_body": row.has_body,
        "known_versions": list(row.known),
        "a": _describe_side(row.a),
        "b": _describe_side(row.b),
        "type_differences": [
            {"version": d.version, "constraint": d.constraint, "only_a": list(d.only_a), "only_b": list(d.only_b)}
            for d in row.type_differences
        ],
    }


def _describe_side(side: OpCoverage | None) -> dict[str, Any] | None:
    if side is None:
        return None
    types = {
        str(version): {name: sorted(types) for name, types in sorted(side.types[version].items())}
        for version in side.versions
    }
    return {"versions": list(side.versions), "types": types}


# text


def _show(document: Document, screen: Screen) -> None:
    _show_counts(document, screen)
    rows = [row for row in document["ops"] if row["status"] != "same"]
    if not rows:
        screen.line("no operator is covered differently")
        return
    a, b = document["a"], document["b"]
    screen.title("Operators that are covered differently")
    screen.table(
        ("operator", a, b, f"types of {a} alone", f"types of {b} alone"), [_cells(row) for row in rows], prose=(3, 4)
    )
    screen.line(f"{len(document['ops']) - len(rows)} covered alike; (body): a function body stands in for a kernel")


def _show_counts(document: Document, screen: Screen) -> None:
    a, b = document["a"], document["b"]
    headers = ("domain", "in ONNX", a, b, "both", "versions differ", "types differ")
    rows = list(document["domains"]) + ([document["total"]] if len(document["domains"]) > 1 else [])
    screen.table(
        headers,
        [
            (
                row["domain"] or "all",
                row["onnx"],
                _share(row["a"], row["a_of_onnx"], row["onnx"]),
                _share(row["b"], row["b_of_onnx"], row["onnx"]),
                *(row[key] for key in ("both", "differing_versions", "differing_types")),
            )
            for row in rows
        ],
        right=range(1, len(headers)),
    )


def _share(count: int, of_onnx: int, onnx: int) -> str:
    return f"{count} ({100 * of_onnx // onnx}%)" if onnx else str(count)


def _cells(row: Document) -> tuple[str, ...]:
    name = row["op"] if row["domain"] == "ai.onnx" else f"{row['domain']}::{row['op']}"
    sides = (_versions(row, side) or ("(body)" if row["has_body"] else "-") for side in ("a", "b"))
    return (name, *sides, _first_types(row, "only_a"), _first_types(row, "only_b"))


def _versions(row: Document, side: str) -> str:
    """Versions that are served, runs of neighbours joined: ``6..13``."""
    served = set(row[side]["versions"]) if row[side] else set()
    runs: list[list[int]] = []
    for version in row["known_versions"]:
        if version not in served:
            runs.append([])
        elif runs and runs[-1]:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs if run)


def _first_types(row: Document, key: str) -> str:
    """The types of the newest version that differs; one line of a table has no room for all."""
    found = [difference for difference in row["type_differences"] if difference[key]]
    newest = [difference for difference in found if difference["version"] == found[0]["version"]]
    shown = [f"{difference['constraint']}: {_shorten(difference[key])}" for difference in newest[:_SHOWN_CONSTRAINTS]]
    return "; ".join(shown) + (" ..." if len(newest) > len(shown) else "")


def _shorten(types: list[str]) -> str:
    rest = len(types) - _SHOWN_TYPES
    return ", ".join(types[:_SHOWN_TYPES]) + (f" +{rest}" if rest > 0 else "")


def _show_one(document: Document, screen: Screen) -> None:
    """Everything about one operator: each version and constraint."""
    a, b = document["a"], document["b"]
    if not document["ops"]:
        screen.line(f"neither {a} nor {b} has it")
    for row in document["ops"]:
        screen.title(f"{row['domain']}::{row['op']}")
        rows = [cells for version in row["known_versions"] for cells in _version_cells(row, str(version), a, b)]
        screen.table(
            ("version", "who", "constraint", "types of both", f"of {a} alone", f"of {b} alone"), rows, prose=(3, 4, 5)
        )


def _version_cells(row: Document, version: str, a: str, b: str) -> list[tuple[str, ...]]:
    one, other = ((row[side] or {"types": {}})["types"].get(version) for side in ("a", "b"))
    who = " and ".join(name for name, side in ((a, one), (b, other)) if side is not None) or "nobody"
    cells = []
    for name in sorted({*(one or ()), *(other or ())}):
        left, right = set((one or {}).get(name, ())), set((other or {}).get(name, ()))
        cells.append(
            (version, who, name, *(", ".join(sorted(types)) for types in (left & right, left - right, right - left)))
        )
    return cells or [(version, who, "", "", "", "")]


# files


def _export_suffix(path: str | None) -> str:
    suffix = Path(path or "x.json").suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(
            "the kind of file is not known", where="--export", expected=" or ".join(_WRITERS), got=suffix or path
        )
    return suffix


def _export(path: Path, suffix: str, document: dict[str, Any]) -> None:
    from dovetail.files import write_file

    write_file(path, _WRITERS[suffix](document).encode("utf-8"), option="--export")


def _flat_rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            row["domain"],
            row["op"],
            row["status"],
            *(" ".join(map(str, (row[side] or {"versions": []})["versions"])) for side in ("a", "b")),
            *(_all_types(row, key) for key in ("only_a", "only_b")),
            "yes" if row["has_body"] else "no",
        )
        for row in document["ops"]
    ]


def _all_types(row: Document, key: str) -> str:
    return "; ".join(
        f"{difference['version']} {difference['constraint']}: {' '.join(difference[key])}"
        for difference in row["type_differences"]
        if difference[key]
    )


def _write_csv(document: dict[str, Any]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_flat_rows(document))
    return text.getvalue()


def _write_markdown(document: dict[str, Any]) -> str:
    total = document["total"]
    lines = [
        f"# {document['a']} (a) and {document['b']} (b)",
        "",
        *(f"- {key.replace('_', ' ')}: {value}" for key, value in total.items() if key != "domain"),
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "---|" * len(_COLUMNS),
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in _flat_rows(document)),
    ]
    return "\n".join(lines) + "\n"


_WRITERS: Final = {".csv": _write_csv, ".json": lambda document: dump_document(document) + "\n", ".md": _write_markdown}
