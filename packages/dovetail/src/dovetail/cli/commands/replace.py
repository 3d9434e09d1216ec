"""``dovetail replace``: a part of an ONNX model replaced by one node, for a plugin to take."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dovetail.cli.answers import Document, Reply
from dovetail.cli.options import finish_command
from dovetail.cli.screen import Screen, format_bytes
from dovetail.cli.targets import require_file
from dovetail.errors import UsageError
from dovetail.files import write_file

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["declare", "parse_attributes", "run"]

_MOST_INSIDE: Final = 1 << 30
"""Bytes of weights up to which they lie in the model's own file; ONNX files end at 2 GB."""
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}")
_WORDS: Final = {"true": 1, "false": 0}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    finish_command(parser, run)
    parser.add_argument("model", metavar="MODEL", help="the ONNX model")
    parser.add_argument(
        "--from",
        dest="inputs",
        action="append",
        default=[],
        metavar="NAME[,...]",
        help="values that the new node takes",
    )
    parser.add_argument(
        "--to", dest="outputs", action="append", required=True, metavar="NAME[,...]", help="values that it makes"
    )
    parser.add_argument("--op", required=True, metavar="OP", help="its operator, or DOMAIN::OP")
    parser.add_argument(
        "--attr",
        nargs="+",
        action="extend",
        default=[],
        metavar="K=V",
        help="its attributes: a number, true or false, numbers with commas, or a text, which quotes keep a text",
    )
    parser.add_argument("--name", default="", metavar="NAME", help="its name (default: the operator's)")
    parser.add_argument(
        "-o", "--output", metavar="MODEL", help="where to write the model (default: the model's name, .replaced.onnx)"
    )


def run(args: argparse.Namespace) -> Reply:
    """Cut, and write the model."""
    source = require_file(args.model)
    target = Path(args.output) if args.output is not None else source.with_suffix(".replaced.onnx")
    if target.resolve() == source.resolve():
        raise UsageError("the model would be overwritten", where=str(target), fix="give another name with -o")
    attributes = parse_attributes(args.attr)
    domain, _, op = args.op.rpartition("::")

    from dovetail.network.surgery import replace_subgraph

    model = _read(source)
    inputs, outputs = _names(args.inputs, "--from"), _names(args.outputs, "--to")
    done = replace_subgraph(
        model, inputs=inputs, outputs=outputs, op=op, domain=domain, attributes=attributes, name=args.name
    )
    written = _write(model, target)
    document = {
        "model": str(target),
        "bytes": written,
        "node": {
            "name": done.node.name,
            "op": op,
            "domain": domain,
            "inputs": inputs,
            "outputs": outputs,
            "attributes": attributes,
        },
        "removed_nodes": list(done.removed),
        "removed_weights": list(done.weights),
    }
    return Reply(document=document, show=_show)


def _read(path: Path) -> ir.Model:
    from dovetail.network.importer.problems import Problems
    from dovetail.network.importer.read import read_model

    def note_nothing_else(proto: onnx.ModelProto) -> None:
        """Operators are nobody's business here."""

    problems = Problems()
    model = read_model(path, problems, note_nothing_else)
    problems.raise_if_any()
    return model


def _write(model: ir.Model, target: Path) -> int:
    """Write the model; weights that are too many for one file lie beside it."""
    from dovetail.network.importer.maps import model_to_proto, save_model

    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if size <= _MOST_INSIDE:
        data = model_to_proto(model).SerializeToString()
        write_file(target, data, option="-o")
        return len(data)
    write_file(target, b"", option="-o")
    save_model(model, target, external_data=f"{target.name}.data")
    return target.stat().st_size + target.with_name(f"{target.name}.data").stat().st_size


def _names(texts: Iterable[str], option: str) -> list[str]:
    names = [name.strip() for text in texts for name in text.split(",")]
    if not all(names):
        raise UsageError("a name is empty", where=option, expected="names of values with commas between them")
    return names


def parse_attributes(texts: Iterable[str]) -> dict[str, Any]:
    """Attribute values by name, with the kinds that their texts have.

    >>> parse_attributes(["axis=1", "alpha=0.5", "pads=0,1", "scales=1.0,2", "mode=same", "id='7'", "on=true"])
    {'axis': 1, 'alpha': 0.5, 'pads': [0, 1], 'scales': [1.0, 2.0], 'mode': 'same', 'id': '7', 'on': 1}
    """
    attributes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("an attribute cannot be read", where=f"--attr {text!r}", expected="name=value")
        if name in attributes:
            raise UsageError(f"attribute '{name}' is given twice", where="--attr")
        attributes[name] = _value(value)
    return attributes


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if "," in text:
        numbers = [_number(part.strip()) for part in text.split(",") if part.strip()]
        if any(number is None for number in numbers):
            return text
        whole = all(isinstance(number, int) for number in numbers)
        return numbers if whole else [float(number) for number in numbers if number is not None]
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _show(document: Document, screen: Screen) -> None:
    node = document["node"]
    op = f"{node['domain']}::{node['op']}" if node["domain"] else node["op"]
    screen.line(f"wrote {document['model']} ({format_bytes(document['bytes'])})")
    screen.line(
        f"{node['name']} ({op}) takes {', '.join(node['inputs']) or 'nothing'}, makes {', '.join(node['outputs'])}"
    )
    screen.line(f"it replaces {len(document['removed_nodes'])} node(s): {', '.join(document['removed_nodes'])}")
    if document["removed_weights"]:
        names = ", ".join(document["removed_weights"])
        screen.line(f"weights that went with them, name them in --from to keep them: {names}")
